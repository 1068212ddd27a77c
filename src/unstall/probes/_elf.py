"""The compiler's flags that it noted in a shared library, of the ELF format of Linux; standard library only.

Source: System V ABI, "Sections"; GCC writes its version and switches to DW_AT_producer (with ``-g``) and, with
``-frecord-gcc-switches``, to the section ``.GCC.command.line``.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

MOST_BYTES = 64_000_000  # of a section, as it is once unpacked
_COMPRESSED, _ZLIB = 0x800, 1
_PRODUCER = re.compile(rb"GNU C\+\+[^\0]{0,4000}")
_RANK = {"": 1, "0": 0, "g": 0.5, "1": 1, "s": 1.5, "z": 1.5, "2": 2, "3": 3, "fast": 4}
_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PACKED = struct.Struct("<IIQQ")


def noted_flags(path: str) -> list[str]:
    """Return the flags by which *path* was compiled, as far as its compiler noted them; [] where it did not.

    Where its parts were compiled with several sets, the one that optimises most.
    Cost: the section of debug strings is read whole, some ms a MB.
    """
    try:
        with open(path, "rb") as file:
            found = [switches for name, data in _sections(file) for switches in _noted(name, data)]
    except (OSError, ValueError, struct.error, zlib.error):  # cut short, or damaged
        return []
    return max(found, key=_level, default=[])


def _noted(name: bytes, data: bytes) -> Iterator[list[str]]:
    if name == b".debug_str":
        for match in _PRODUCER.finditer(data):
            yield [word for word in match[0].decode(errors="replace").split() if word.startswith("-")]
    else:  # older compilers put each switch into a string of its own
        yield [word for word in data.replace(b"\0", b" ").decode(errors="replace").split() if word.startswith("-")]


def _level(flags: list[str]) -> float:
    """Return how much *flags* optimise: the last of them counts, and none is no optimisation."""
    return next((_RANK[flag[2:]] for flag in reversed(flags) if flag[:2] == "-O" and flag[2:] in _RANK), 0)


def _sections(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and content of the sections that hold flags; none for what is no 64-bit little-endian ELF file."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or head[:6] != b"\x7fELF\x02\x01":
        return
    *_, at, _, _, _, _, size, count, names_at = _HEAD.unpack(head)
    file.seek(at)
    table = [_SECTION.unpack(file.read(size)[: _SECTION.size]) for _ in range(count)]
    if not names_at < len(table):
        return
    names = _content(file, table[names_at])
    for row in table:
        name = names[row[0] : names.find(b"\0", row[0])]
        if name in (b".debug_str", b".GCC.command.line"):
            yield name, _content(file, row)


def _content(file: BinaryIO, row: tuple[int, ...]) -> bytes:
    _, _, flags, _, at, size, *_ = row
    file.seek(at)
    data = file.read(min(size, MOST_BYTES))
    if not flags & _COMPRESSED:
        return data
    kind = _PACKED.unpack(data[: _PACKED.size])[0]
    return zlib.decompressobj().decompress(data[_PACKED.size :], MOST_BYTES) if kind == _ZLIB else b""
