"""What lies between a call of compiled code and the code itself is entering; the code and the loop around it are not."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.accounts.label import Labelled
from unstall.accounts.regions import entering, enters
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.run import Facts, Place

CODE = "/tmp/generated.py"
LOOP, FORWARD = Place("/work/train.py", 50, "main"), Place("/work/train.py", 7, "forward")
PACKAGES = "/env/site-packages/torch"
MODULE = Place(f"{PACKAGES}/nn/modules/module.py", 3, "Module._wrapped_call_impl")
WRAPPER = Place(f"{PACKAGES}/_dynamo/eval_frame.py", 9, "_TorchDynamoContext.__call__.<locals>.compile_wrapper")
NEVER = Place(f"{PACKAGES}/_dynamo/eval_frame.py", 5, "DisableContext.__call__.<locals>._fn")
RUNTIME = Place(f"{PACKAGES}/_functorch/_aot_autograd/runtime_wrappers.py", 4, "runtime_wrapper")
COMPILER = Place(f"{PACKAGES}/_dynamo/convert_frame.py", 6, "compile")
KERNEL = Place(CODE, 12, "Runner.call")


@pytest.mark.parametrize("stack", [(LOOP, MODULE, WRAPPER), (LOOP, MODULE, WRAPPER, FORWARD, RUNTIME), (RUNTIME,)])
def test_guards_and_wrappers_are_entering(stack):
    assert enters(stack, {CODE})


@pytest.mark.parametrize(
    "stack",
    [
        (LOOP, MODULE),
        (LOOP, MODULE, WRAPPER, FORWARD, RUNTIME, KERNEL),
        (LOOP, MODULE, WRAPPER, FORWARD),
        (LOOP, MODULE, WRAPPER, FORWARD, RUNTIME, Place("<eval_with_key>.3", 5, "forward")),
        (LOOP, MODULE, WRAPPER, COMPILER),
        (LOOP, NEVER),
    ],
    ids=[
        "uncompiled",
        "the code itself",
        "a frame that runs uncompiled",
        "a graph as traced",
        "compiling",
        "what is never compiled",
    ],
)
def test_all_else_is_not(stack):
    assert not enters(stack, {CODE})


def made(facts):
    """Return what entering takes of 100 ms of FORWARD that ran: samples in a wrapper, in a kernel and in the loop."""
    stacks = ((LOOP, MODULE, WRAPPER), (LOOP, MODULE, WRAPPER, FORWARD, RUNTIME, KERNEL), (LOOP,))
    samples = Labelled(
        np.arange(3), np.array([30, 50, 20]), np.full(3, Phase.FORWARD, np.uint8), np.arange(3, dtype=np.int32), stacks,
        (None,) * 3, np.tile([0.0, 1.0, 0.0], (3, 1)), np.zeros(3, np.bool_),
    )  # fmt: skip
    ledger = Ledger.of(
        [
            (0, 0, Phase.FORWARD, Activity.COMPUTE, Basis.SAMPLED, 100_000_000),
            (0, 0, Phase.FORWARD, Activity.STARVED, Basis.SAMPLED, 60_000_000),
        ],
        [160_000_000],
    )
    return entering(Facts(facts), (samples,), (np.ones(3, np.bool_),), ledger, np.ones(2, np.bool_), "/work")


def region(operators, guards, line=7):
    return {"frame": f"/work/train.py:{line}:forward", "operators": operators, "guards": guards}


ENTRIES = {"steps": 2, "entered": {"/work/train.py:7": 24}, "graphs": 48}
TOLD = {
    "fusion:0": {"file": CODE},
    "compile:0": {"site": "/work/train.py:30:main", "target": "/work/train.py:7"},
    "compile:1": {"site": "/work/train.py:31:main", "target": "/work/train.py:17"},
    "region:0": region(2, 10),
    "region:1": region(4, 12),
    "region:2": region(9, None, line=17),
    "entries": ENTRIES,
}


def test_time_is_that_of_the_samples_and_only_of_what_ran():
    found = made(TOLD)
    assert found.spent == ((Phase.FORWARD, 30_000_000),)
    assert (found.samples, found.graphs) == (1, 24.0)


def test_the_variants_of_a_function_are_one_region_with_its_own_site():
    first, second = made(TOLD).regions
    assert (first.frame.line, first.operators, first.guards, first.entries) == (7, 3.0, 22, 12.0)
    assert first.site is not None and first.site.line == 30
    assert (second.guards, second.entries) == (None, 0.0)


def test_nothing_is_told_where_no_step_was_counted():
    assert made({name: fact for name, fact in TOLD.items() if name != "entries"}) is None
