"""Two faults planted together: the first finding is the one that saves more, and no time is given twice."""

import itertools
from types import SimpleNamespace

import pytest

from unstall.testing.contract import train
from unstall.testing.together import FAULTS, Measured, judged, measured, script_with

A, B = "io/checkpoint-in-loop", "host/collecting-garbage"
PAIRS = [
    (A, B),
    ("io/logging-in-loop", "compiler/recompile-storm"),
    ("data/workers-respawned", "host/collecting-garbage"),
]


def run_of(step_ns, **spent):
    """Return a measured run in which causes got *spent* ns a step, the first one first."""
    named = {name.replace("_", "/", 1).replace("_", "-"): ns for name, ns in spent.items()}
    return Measured(step_ns, tuple(SimpleNamespace(cause=cause) for cause in named), named)


@pytest.mark.parametrize(
    "faults", [(), *((fault,) for fault in FAULTS), *itertools.combinations(FAULTS, 2)], ids="+".join
)
def test_every_pair_makes_one_script_that_differs_from_each_alone(faults):
    source = script_with(faults)
    compile(source, "train.py", "exec")
    assert all(source != script_with(set(faults) - {fault}) for fault in faults)


def test_the_pair_is_told_right_where_the_first_saves_more():
    both = run_of(100, io_checkpoint_in_loop=50, host_collecting_garbage=20)
    verdict = judged((A, B), both, {A: run_of(75), B: run_of(45)}, run_of(20))
    assert (verdict.larger, verdict.is_first_right, verdict.is_within) == (A, True, True)


def test_the_pair_is_told_wrong_where_the_second_saves_more():
    both = run_of(100, io_checkpoint_in_loop=50, host_collecting_garbage=20)
    verdict = judged((A, B), both, {A: run_of(45), B: run_of(75)}, run_of(20))
    assert (verdict.larger, verdict.is_first_right) == (B, False)


def test_of_two_that_save_alike_either_may_be_first_but_no_third():
    alone = {A: run_of(60), B: run_of(62)}
    assert judged((A, B), run_of(100, host_collecting_garbage=30), alone, run_of(20)).is_first_right
    assert not judged((A, B), run_of(100, data_row_by_row=30), alone, run_of(20)).is_first_right


def test_more_time_than_both_save_is_told():
    both = run_of(100, io_checkpoint_in_loop=70, host_collecting_garbage=40)
    assert not judged((A, B), both, {A: run_of(60), B: run_of(60)}, run_of(20)).is_within


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_the_one_that_saves_more_is_first_and_time_is_given_once(pair, tmp_path):
    """All 45 pairs: `python bench/pairs.py`. A pair is run again where a busy machine told it wrong."""
    for n in range(3):
        runs = [measured(train(script_with(faults), tmp_path / f"{n}-{k}"))
                for k, faults in enumerate([(), pair[:1], pair[1:], pair])]  # fmt: skip
        verdict = judged(pair, runs[3], dict(zip(pair, runs[1:3], strict=True)), runs[0])
        if verdict.is_first_right and verdict.is_within:
            return
    pytest.fail(str(verdict))
