"""The compiler's records are told once each, and the entries of one step are counted after it is quiet."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from unstall.probes._counted import QUIET_STEPS
from unstall.probes.regions import Regions


def region(x):
    return x


def record(identity, operators=2, code=region.__code__):
    return SimpleNamespace(
        compile_id=identity, graph_op_count=operators, guard_count=5, guard_latency_us=80, co_name=code.co_name,
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno,
    )  # fmt: skip


class Recorder:
    def __init__(self):
        self.facts, self.at_step, self.in_child, self.looks_next = {}, [], [], 0

    def fact(self, facts):
        self.facts.update(facts)

    def mine(self):
        return True

    def look_next(self):
        self.looks_next += 1


@pytest.fixture
def watched(monkeypatch):
    """Return a recorder, the probe on it, and the records that the compiler keeps."""
    records = [record("0/0"), record("0/0", operators=None)]  # of the backward pass no operators are counted
    compiler = SimpleNamespace(get_compilation_metrics=lambda: records)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", compiler)
    recorder = Recorder()
    yield recorder, Regions(SimpleNamespace(recorder=recorder)), records
    sys.setprofile(None)


def test_each_record_with_operators_is_told_once(watched):
    recorder, probe, records = watched
    probe.at_step(2)
    records.append(record("0/1", operators=7))
    probe.at_step(6)
    told = {name: fact["operators"] for name, fact in recorder.facts.items()}
    assert told == {"region:0": 2, "region:1": 7}
    assert recorder.facts["region:0"]["frame"].endswith(f"test_regions.py:{region.__code__.co_firstlineno}:region")


def test_calls_are_counted_in_one_step_only_once_nothing_new_was_compiled(watched):
    recorder, probe, _ = watched
    probe.at_step(2)
    for step in range(3, 2 + QUIET_STEPS):
        probe.at_step(step)
        assert sys.getprofile() is None
    probe.at_step(2 + QUIET_STEPS + 1)
    region(1), region(2), region(3)
    probe.at_step(2 + QUIET_STEPS + 2)
    region(4)
    assert sys.getprofile() is None
    assert recorder.facts["entries"]["steps"] == 1
    assert list(recorder.facts["entries"]["entered"].values()) == [3]
    probe.at_step(2 + QUIET_STEPS + 3)
    assert sys.getprofile() is None  # once is enough


def test_nothing_is_counted_where_nothing_was_compiled(watched):
    recorder, probe, records = watched
    records.clear()
    for step in range(40):
        probe.at_step(step)
        assert sys.getprofile() is None
    assert recorder.facts == {}


def test_a_profiler_of_the_users_is_left_alone(watched):
    recorder, probe, _ = watched
    probe.at_step(2)
    mine = lambda frame, event, value: None  # noqa: E731
    sys.setprofile(mine)
    probe.at_step(8)
    assert sys.getprofile() is mine
    assert "entries" not in recorder.facts
