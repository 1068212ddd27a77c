"""What is kept of a trace is what reading it gives; a damaged or foreign cache is as good as none."""

from __future__ import annotations

import os

import numpy as np
import pytest

from unstall.readers import _kept, kineto
from unstall.readers.kineto import read_trace

from traced import trace, write  # isort: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(_kept.OFF, raising=False)
    monkeypatch.setattr(_kept, "LEAST_BYTES", 0)
    return tmp_path / "cache" / "unstall" / "traces"


@pytest.fixture
def decoded(monkeypatch):
    """The files that were really decoded."""
    seen = []
    decode = kineto._decode
    monkeypatch.setattr(kineto, "_decode", lambda path: seen.append(path.name) or decode(path))
    return seen


def same(one, other):
    assert one.facts == other.facts and one.trace.names == other.trace.names
    assert (one.rank, one.pid, one.start_ns, one.end_ns) == (other.rank, other.pid, other.start_ns, other.end_ns)
    assert (one.trace.threads, one.trace.main, one.trace.cut_at) == (
        other.trace.threads, other.trace.main, other.trace.cut_at
    )  # fmt: skip
    for left, right in (
        (one.trace.calls, other.trace.calls),
        (one.trace.work, other.trace.work),
        (one.events, other.events),
    ):
        for name in left.__slots__:
            mine, yours = getattr(left, name), getattr(right, name)
            assert np.array_equal(mine, yours) and getattr(mine, "dtype", None) == getattr(yours, "dtype", None), name


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_is_decoded_once_and_reads_the_same(tmp_path, cache, decoded, name):
    path = write(tmp_path / name, trace(rank=1, world=2))
    first, again = read_trace(path), read_trace(path)
    same(first, again)
    assert decoded == [name] and len(list(cache.iterdir())) == 1


def test_a_cut_trace_is_kept_with_its_cut(tmp_path, cache, decoded):
    path = write(tmp_path / "t.json", trace())
    path.write_bytes(path.read_bytes()[:3000])
    same(read_trace(path), read_trace(path))
    assert decoded == ["t.json"]


def test_a_copy_is_not_decoded_and_a_changed_file_is(tmp_path, cache, decoded):
    path = write(tmp_path / "t.json", trace())
    read_trace(path)
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    assert read_trace(copy).facts.known["trace.path"] == "copy.json"
    assert decoded == ["t.json"]
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"aten::mm", b"aten::mv"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "aten::mv" in read_trace(path).trace.names
    assert decoded == ["t.json", "t.json"]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "newer"])
def test_a_damaged_or_foreign_cache_is_made_anew(tmp_path, cache, decoded, damage):
    path = write(tmp_path / "t.json", trace())
    wanted = read_trace(path)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    if damage == "newer":
        with np.load(kept) as held:
            columns = dict(held)
        about = bytes(columns["about"]).replace(b'"format": 1', b'"format": 9')
        np.savez(kept, **{**columns, "about": np.frombuffer(about, np.uint8)})
    else:
        middle = len(whole) // 2
        kept.write_bytes(
            {
                "empty": b"",
                "cut": whole[:middle],
                "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
                "foreign": b"not ours",
            }[damage]
        )
    same(read_trace(path), wanted)
    assert decoded == ["t.json", "t.json"]
    same(read_trace(path), wanted)
    assert decoded == ["t.json", "t.json"]


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path, cache):
    path = write(tmp_path / "t.json", trace(steps=1))
    wanted = read_trace(path)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for at in range(0, len(whole), 37):
        kept.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        same(read_trace(path), wanted)


def test_what_was_used_least_lately_is_removed(tmp_path, cache, decoded, monkeypatch):
    paths = [write(tmp_path / f"{i}.json", trace(steps=1 + i)) for i in range(3)]
    for path in paths[:2]:
        read_trace(path)
    sizes = sorted(file.stat().st_size for file in cache.iterdir())
    for file in cache.iterdir():
        os.utime(file, ns=(1, 1))
    read_trace(paths[0])
    monkeypatch.setattr(_kept, "LARGEST_BYTES", 2 * sizes[-1] + 1000)
    read_trace(paths[2])
    assert len(list(cache.iterdir())) == 2
    decoded.clear()
    read_trace(paths[0])
    read_trace(paths[1])
    assert decoded == ["1.json"]


def test_the_cache_can_be_switched_off(tmp_path, cache, decoded, monkeypatch):
    monkeypatch.setenv(_kept.OFF, "1")
    path = write(tmp_path / "t.json", trace())
    read_trace(path)
    read_trace(path)
    assert decoded == ["t.json"] * 2 and not cache.exists()


def test_small_files_are_not_kept(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(_kept, "LEAST_BYTES", 1 << 20)
    read_trace(write(tmp_path / "t.json", trace()))
    assert not cache.exists()


def test_a_place_that_cannot_be_written_costs_nothing(tmp_path, cache, decoded):
    (tmp_path / "cache").write_text("a file where a folder should be")
    path = write(tmp_path / "t.json", trace())
    same(read_trace(path), read_trace(path))


def test_nothing_is_left_beside_what_is_kept(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(
        np, "savez", lambda file, **columns: file.write(b"x") and (_ for _ in ()).throw(OSError("full"))
    )
    read_trace(write(tmp_path / "t.json", trace()))
    assert list(cache.iterdir()) == []
