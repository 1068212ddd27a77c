"""A recording that is cut short, foreign, newer or damaged: a message, or what came before the cut."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model import wire
from unstall.model.errors import NotARecording, NothingRecorded, UnstallError
from unstall.model.exclusive import BASE, CUT, OUTSIDE, WITHIN
from unstall.model.report import Job
from unstall.model.wire import Activity, Frame, Kind, Phase, cell
from unstall.pipeline import diagnose
from unstall.readers.wire import read as read_wire

PID, STEPS, STEP_NS, FIRST_NS = 4711, 12, 10_000_000, 1_000_000_000
SHARES = ((Phase.FORWARD, 6_000_000), (Phase.BETWEEN, 4_000_000))


def row(number: int) -> bytes:
    """Return the frame of a step of 10 ms: 6 forward, 4 between."""
    start = FIRST_NS + number * STEP_NS
    row = [number, 1, 0, 0, start, start + STEP_NS, STEP_NS, len(SHARES), len(SHARES)]
    row += [cell(phase, Activity.UNKNOWN) for phase, _ in SHARES]
    row += [ns for _, ns in SHARES]
    at = start
    for phase, ns in SHARES:
        row += [phase, at]
        at += ns
    body = [struct.pack(f"<{len(row)}q", *row)]
    payload = b"".join(body)
    return wire.HEAD.pack(Frame.ROW, len(payload)) + payload


def noted(first: int, steps: int) -> bytes:
    """Return the frame of *steps* such steps as what was noted in them."""
    begun, base = FIRST_NS + first * STEP_NS, cell(Phase.BETWEEN, Activity.UNKNOWN)
    cuts, events = [], []
    for number in range(first, first + steps):
        start = FIRST_NS + number * STEP_NS
        cuts += [number + 1, 1, 0, 0, number * STEP_NS + STEP_NS, 1]
        events += [cell(Phase.FORWARD, Activity.UNKNOWN), start, -1, start + SHARES[0][1], CUT, start + STEP_NS]
    numbers = [begun, base, first * STEP_NS, steps, *cuts, *events]
    return wire.HEAD.pack(Frame.EVENTS, 8 * len(numbers)) + struct.pack(f"<{len(numbers)}q", *numbers)


def record(folder: Path, steps: int = STEPS) -> Path:
    """Write a whole recording of one process to *folder*, the second half of its steps as events; return its .wire file."""
    for part in ("seen", "torch", "trains"):
        (folder / part).mkdir(parents=True)
    end = FIRST_NS + steps * STEP_NS
    about = {
        "format": 1, "command": ["train.py"], "cwd": str(folder), "pid": PID, "spawn_ns": 0, "reap_ns": end + 5,
        "exit_code": 0,
    }  # fmt: skip
    (folder / "recording.json").write_text(json.dumps(about))
    path = folder / f"{PID}-{FIRST_NS}.wire"
    writer = wire.Writer(str(path))
    hello = {
        "pid": PID,
        "ppid": 1,
        "role": "main",
        "origin_ns": FIRST_NS,
        "thread": PID,
        "python": "3.11",
        "torch": "2",
    }
    writer.json(Frame.HELLO, hello)
    writer.json(Frame.FACTS, {"optimizer:0": {"class": "SGD"}})
    for number in range(steps):
        if number < steps // 2:
            writer.raw(row(number))
        elif number == steps // 2:
            writer.raw(noted(number, steps - number))
        name = writer.text(f"/code/train.py:{number}:train|")
        start = FIRST_NS + number * STEP_NS
        writer.frame(Frame.SPANS, wire.SPAN.pack(Kind.GC, number, start, start + 1000, name, 2))
    writer.json(Frame.BYE, {"at_ns": end})
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    return record(tmp_path_factory.mktemp("whole") / "recording").read_bytes()


def test_a_whole_recording_is_read(tmp_path):
    record(tmp_path / "recording")
    report = diagnose(tmp_path / "recording", Job())
    assert (report.steps, report.warnings) == (STEPS, ())


@pytest.mark.parametrize("keep", [0, 5, len(wire.MAGIC), len(wire.MAGIC) + 3])
def test_a_file_cut_before_its_first_frame_is_that_of_a_process_that_came_to_nothing(tmp_path, keep):
    path = record(tmp_path / "recording")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(NothingRecorded):
        diagnose(tmp_path / "recording", Job())


def test_such_a_file_beside_a_good_one_does_no_harm(tmp_path):
    path = record(tmp_path / "recording")
    path.with_name("99-1.wire").write_bytes(b"")
    assert diagnose(tmp_path / "recording", Job()).steps == STEPS


def test_every_cut_gives_the_whole_frames_before_it(tmp_path, whole):
    path = tmp_path / "cut.wire"
    last = 0
    for keep in range(len(wire.MAGIC), len(whole)):
        path.write_bytes(whole[:keep])
        process = read_wire(path)
        assert process.steps >= last and process.ended_ns is None
        last = process.steps
    assert last == STEPS


def test_events_make_the_rows_that_the_training_process_would_have_made(tmp_path, whole):
    path = tmp_path / "rows.wire"
    found = []
    for frames in (b"".join(map(row, range(STEPS))), noted(0, STEPS), noted(0, 5) + noted(5, STEPS - 5)):
        path.write_bytes(whole[: whole.index(row(0))] + frames)
        rows = read_wire(path).rows
        columns = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
        lasts = rows.mark_end_ns > rows.mark_start_ns  # events tell the base as well where it lasts no time
        marks = {name for name in columns if name.startswith("mark_")}
        found.append([(column[lasts] if name in marks else column).tolist() for name, column in columns.items()])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "code", [cell(Phase.SHUTDOWN, 13) + 1, WITHIN + 14, BASE - 1, CUT + 1, OUTSIDE + 9999, 1 << 40]
)
def test_an_event_that_nothing_writes_is_damage(tmp_path, whole, code):
    path = tmp_path / "events.wire"
    good = noted(0, STEPS)
    bad = good.replace(struct.pack("<q", cell(Phase.FORWARD, Activity.UNKNOWN)), struct.pack("<q", code))
    assert len(bad) == len(good) != 0 and bad != good
    path.write_bytes(whole[: whole.index(row(0))] + bad)
    with pytest.raises(NotARecording, match="none that is known"):
        read_wire(path)


def test_the_report_of_a_file_that_was_cut_says_so(tmp_path, whole):
    path = record(tmp_path / "recording")
    path.write_bytes(whole[: whole.rindex(row(STEPS // 2 - 1)) + 30])
    report = diagnose(tmp_path / "recording", Job())
    assert report.steps == STEPS // 2 - 1
    assert any("ends in the middle of a record" in said for said in report.warnings)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"unstall-wire/9\n" + b"x" * 50, "written in format 9, this version reads formats 1 to 2"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 50, "not an unstall recording"),
        (b"garbage", "not an unstall recording"),
    ],
)
def test_a_foreign_or_newer_file_is_named(tmp_path, content, said):
    path = record(tmp_path / "recording")
    path.write_bytes(content)
    with pytest.raises(NotARecording, match=said) as error:
        diagnose(tmp_path / "recording", Job())
    assert path.name in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "it has no recording.json"),
        ("{", "cannot be read"),
        ("[]", "names no format"),
        ("{}", "names no format"),
        ('{"format": 1}', "no command that was started"),
        ('{"format": 1, "spawn_ns": "soon"}', "no command that was started"),
        ('{"format": 3}', "recorded in format 3, this version reads formats 1 to 2"),
    ],
)
def test_a_folder_that_is_no_recording_is_a_message(tmp_path, content, said):
    record(tmp_path / "recording")
    about = tmp_path / "recording" / "recording.json"
    about.unlink() if content is None else about.write_text(content)
    with pytest.raises(NotARecording, match=said):
        diagnose(tmp_path / "recording", Job())


def test_a_file_and_a_missing_folder_are_messages(tmp_path):
    (tmp_path / "train.py").write_text("")
    with pytest.raises(NotARecording, match="it is a file"):
        diagnose(tmp_path / "train.py", Job())
    with pytest.raises(NotARecording, match="there is none"):
        diagnose(tmp_path / "nowhere", Job())


def test_a_recording_whose_launcher_was_killed_is_read_to_its_last_step(tmp_path):
    record(tmp_path / "recording")
    about = tmp_path / "recording" / "recording.json"
    told = json.loads(about.read_text())
    del told["reap_ns"], told["exit_code"]
    about.write_text(json.dumps(told))
    assert diagnose(tmp_path / "recording", Job()).steps == STEPS


def test_lines_of_others_in_the_machine_file_are_left_out(tmp_path):
    record(tmp_path / "recording")
    (tmp_path / "recording" / "machine.jsonl").write_bytes(b'[]\n{"at_ns": 5}\n"x"\n\xff\xfe\n{"at_ns": 1, "proc')
    assert diagnose(tmp_path / "recording", Job()).steps == STEPS


def test_a_text_written_during_another_keeps_its_number(tmp_path, whole):
    def frame(number: int) -> bytes:
        payload = struct.pack("<I", number) + f"/code/train.py:{number}:train|".encode()
        return wire.HEAD.pack(Frame.TEXT, len(payload)) + payload

    two = frame(0) + frame(1)
    head = whole[: whole.index(row(0))]
    path = tmp_path / "swapped.wire"
    path.write_bytes(head + frame(1) + frame(0))
    swapped = read_wire(path).texts
    path.write_bytes(head + two)
    assert swapped == read_wire(path).texts


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_damage_anywhere_gives_a_report_or_a_message(tmp_path_factory, whole, seed):
    chance = random.Random(seed)
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 4, 40))):
        at, much = chance.randrange(len(data)), chance.choice((1, 1, 8, 100))
        data[at : at + much] = chance.choice(
            (chance.randbytes(much), b"\0" * much, b"\xff" * much, b"", bytes(data[:much]))
        )
    folder = tmp_path_factory.mktemp("damaged") / "recording"
    record(folder, 1).write_bytes(data)
    try:
        report = diagnose(folder, Job())
    except UnstallError:
        return
    assert report.ledger is not None
