"""Flags that a compiler noted in a library."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from unstall.probes._elf import noted_flags

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="no g++")


def library(folder, *flags):
    source, made = folder / "one.cpp", folder / "one.so"
    source.write_text("int one(int n) { return n + 1; }")
    subprocess.run(["g++", "-shared", "-fPIC", *flags, str(source), "-o", str(made)], check=True)
    return str(made)


@needs_compiler
@pytest.mark.parametrize("noting", [("-g",), ("-g", "-gz=zlib"), ("-frecord-gcc-switches",)])
def test_flags_are_read_from_debug_strings_packed_or_not_and_from_the_recorded_command(tmp_path, noting):
    flags = noted_flags(library(tmp_path, "-O3", "-mavx2", *noting))
    assert "-O3" in flags and "-mavx2" in flags


@needs_compiler
def test_no_optimisation_is_told_from_nothing_noted(tmp_path):
    noted = noted_flags(library(tmp_path, "-g"))
    assert noted and not [flag for flag in noted if flag.startswith("-O")]
    assert noted_flags(library(tmp_path)) == []


def test_what_is_no_library_has_no_flags(tmp_path):
    other = tmp_path / "other.so"
    assert noted_flags(str(other)) == []
    other.write_bytes(b"")
    assert noted_flags(str(other)) == []
    other.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    assert noted_flags(str(other)) == []
