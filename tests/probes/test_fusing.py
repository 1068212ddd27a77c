"""How long Inductor took is told of first compilations, of both passes, each once."""

import sys
from types import SimpleNamespace

import pytest
import torch

from unstall.probes.fusing import Fusing


@pytest.fixture
def probe(monkeypatch):
    told = []
    recorder = SimpleNamespace(fact=told.append, at_step=[])
    monkeypatch.setattr(torch._logging, "trace_structured", torch._logging.trace_structured)  # so that it is put back
    made = Fusing(SimpleNamespace(recorder=recorder, on=True))
    made.cache = {"off": False, "miss": 2}
    return made, told


def record(identity, start, took):
    return SimpleNamespace(compile_id=identity, start_time=start, inductor_compile_time_s=took)


def records(monkeypatch, *made):
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(get_compilation_metrics=lambda: list(made)))


def test_both_passes_count_and_each_once(probe, monkeypatch):
    made, told = probe
    forward, backward = record("0/0", 100.0, 8.5), record("0/0", 110.0, 1.5)
    records(monkeypatch, forward)
    made.look(2)
    records(monkeypatch, forward, backward)
    made.look(8)
    assert told[-1]["compile_cache"]["inductor_ns"] == 10_000_000_000


def test_recompilations_and_what_a_cache_served_do_not_count(probe, monkeypatch):
    made, told = probe
    records(monkeypatch, record("0/1", 100.0, 8.5), record("1/0", 110.0, None), record(None, 120.0, 2.0))
    made.look(8)
    assert told == []


def test_the_records_are_read_in_few_steps_and_only_where_inductor_worked(probe, monkeypatch):
    made, told = probe
    records(monkeypatch, record("0/0", 100.0, 8.5))
    made.look(3)
    assert told == []
    made.cache = {}
    made.look(8)
    assert told == []
