"""Which of the sampled threads is the one that trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstall.readers import stacks

PID = 4711
OTHER = "thread (0x7F00000000AA): Thread-1"


def window(folder: Path, label: str, thread: int) -> None:
    """Write one window of samples: *label*'s thread in `work` for 1 s, another in `wait`."""
    about = {"pid": PID, "thread": thread, "role": "main", "spawn_ns": 0, "hz": 10, "gil_hz": 10, "active_hz": 10}
    events = []
    for tid, (name, function) in enumerate([(OTHER, "wait"), (label, "work")]):
        for phase, at, inner in (("B", 0, name), ("B", 0, function), ("E", 1e6, function), ("E", 1e6, name)):
            args = {"filename": "t.py", "line": 3}
            events.append({"name": inner, "ph": phase, "ts": at, "tid": tid, "args": args})
    (folder / f"stacks-{PID}-0.all.json").write_text(json.dumps(events))
    (folder / f"stacks-{PID}-0.gil.txt").write_text(f"{label};work (t.py:3) 10\n{OTHER};wait (t.py:9) 4\n")
    (folder / f"stacks-{PID}-0.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("label", "thread"),
    [
        (f"thread ({PID}): MainThread", PID),
        ("thread (4720): Thread-2", 4720),
        ("thread (0x7F367E474B80): MainThread", PID),  # Python 3.10: the address of the thread, no native id
    ],
)
def test_the_training_threads_samples_are_taken_and_no_others(label: str, thread: int, tmp_path: Path) -> None:
    window(tmp_path, label, thread)
    found = stacks.read(tmp_path, {})[0][PID]
    assert [[place.function for place in stack] for stack in found.stacks] == [["work"]]
    assert int(found.weight_ns.sum()) == 1_000_000_000
    assert found.gil is not None and list(found.gil.values()) == [10]


def test_another_thread_whose_native_id_is_not_known_is_not_taken_for_the_main_one(tmp_path: Path) -> None:
    window(tmp_path, "thread (0x7F367E474B80): MainThread", 4720)
    assert PID not in stacks.read(tmp_path, {})[0]


def test_a_file_name_that_was_read_while_it_changed_is_left_out(tmp_path: Path) -> None:
    window(tmp_path, f"thread ({PID}): MainThread", PID)
    path = tmp_path / f"stacks-{PID}-0.all.json"
    path.write_text(path.read_text().replace("t.py", "t\\u0000.py"))
    found = stacks.read(tmp_path, {})[0][PID]
    assert {place.file for stack in found.stacks for place in stack} == {""}
