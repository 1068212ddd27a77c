"""The device's account of the mean steady step, and what a report says of traces."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.accounts.device_summary import bound_by, device_summary, of_traces, warnings
from unstall.model.device import Critical, DeviceUse, Idle, Idling
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.report import Traced
from unstall.model.run import Coverage, Run
from unstall.model.steps import Steps

MS = 1_000_000


def use(compute=0, collective=0, copy=0, idle=0, why=(), critical=()):
    """Return what a device did, in ms of all steps."""
    idling = tuple(Idling(reason, Phase.FORWARD, Activity.LAUNCH, ns * MS, 3) for reason, ns in why)
    busy = (compute + collective + copy) * MS
    return DeviceUse(
        busy,
        compute * MS,
        collective * MS,
        copy * MS,
        idle * MS,
        idling,
        (),
        (),
        (),
        (),
        critical,
        120.0,
        6000,
        dilation=1.2,
    )


def steps_of(*lengths_ms):
    edges = np.cumsum([0, *lengths_ms])[:, None] * MS
    count = len(lengths_ms)
    return Steps(edges[:-1], edges[1:], np.ones(count, np.bool_), np.ones(count, np.int32))


def ledger_of(*entries, wall_ms):
    step, phase, device, ms = (np.array(column) for column in zip(*entries))
    small, count = np.uint8, len(entries)
    return Ledger(
        step.astype(np.int32), np.zeros(count, small), phase.astype(small), np.full(count, Activity.LAUNCH, small),
        device.astype(small), np.full(count, Basis.MEASURED, small), ms * MS, np.array([wall_ms * MS]),
    )  # fmt: skip


LEDGER = ledger_of(
    (0, Phase.FORWARD, Device.COMPUTE, 60), (0, Phase.BACKWARD, Device.IDLE, 40), (1, Phase.FORWARD, Device.COMPUTE, 100),
    wall_ms=200,
)  # fmt: skip
STEPS = steps_of(100, 100)


def shares(found):
    return {share.name: (share.ns // MS, share.share) for share in found}


def test_states_and_reasons_are_those_of_one_step_and_make_the_whole():
    found = device_summary(
        use(120, 20, 20, 40, [(Idle.HOST, 10), (Idle.DATA, 25), (Idle.HOST, 5)]), LEDGER, STEPS, ranks=1
    )
    assert shares(found.states) == {
        "compute": (60, 0.6), "collectives": (10, 0.1), "copies": (10, 0.1), "idle": (20, 0.2),
    }  # fmt: skip
    idle = found.states[-1]
    assert [(part.name, part.ns // MS) for part in idle.parts] == [(Idle.DATA.value, 12), (Idle.HOST.value, 7)]
    assert (found.launches_per_step, found.launch_ns, found.dilation) == (120.0, 6000, 1.2)


def test_the_device_by_phase_comes_out_of_the_ledger():
    found = device_summary(use(160, idle=40), LEDGER, STEPS, ranks=1)
    assert shares(found.by_phase) == {"forward": (80, 0.8), "backward": (20, 0.2)}
    assert shares(found.by_phase[0].parts) == {"compute": (80, 0.8)}


def test_the_critical_path_is_told_by_what_it_runs_over():
    path = (
        Critical(Phase.FORWARD, None, Device.COMPUTE, 50 * MS), Critical(Phase.BACKWARD, None, Device.COMPUTE, 30 * MS),
        Critical(Phase.FORWARD, Activity.LAUNCH, Device.IDLE, 90 * MS),
        Critical(Phase.FORWARD, Activity.COMPUTE, Device.NONE, 30 * MS),
    )  # fmt: skip
    found = device_summary(use(160, idle=40, critical=path), LEDGER, STEPS, ranks=1)
    assert shares(found.critical) == {
        "launching": (45, 0.45), "kernels": (40, 0.4), "compute on the host": (15, 0.15),
    }  # fmt: skip


def test_a_device_that_was_not_observed_has_no_summary():
    assert device_summary(None, LEDGER, STEPS, ranks=1) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (use(180, idle=20, why=[(Idle.HOST, 20)]), "Bound by the device. It is busy for 90% of the step, most of it in kernels."),
        (use(20, 160, idle=20), "Bound by the device. It is busy for 90% of the step, most of it in collectives."),
        (
            use(100, idle=100, why=[(Idle.DATA, 75), (Idle.HOST, 25)]),
            "Bound by data. The device idles for 50% of the step, 75% of that because the host waited for data; "
            "a device that never idled could give at most 2.0x.",
        ),
        (
            use(100, idle=100, why=[(Idle.HOST, 100)]),
            "Bound by the host. The device idles for 50% of the step because the host had not launched more; "
            "a device that never idled could give at most 2.0x.",
        ),
    ],
)  # fmt: skip
def test_what_bounds_the_step_is_the_device_or_the_largest_reason_why_it_idles(given, said):
    assert bound_by(device_summary(given, LEDGER, STEPS, ranks=1)) == said


@pytest.mark.parametrize("why", Idle)
def test_every_reason_has_words(why):
    said = bound_by(device_summary(use(100, idle=100, why=[(why, 100)]), LEDGER, STEPS, ranks=1))
    assert said.startswith("Bound by ")


@pytest.mark.parametrize(("dilation", "warned"), [(None, False), (1.04, False), (1.4, True)])
def test_a_profiler_that_slows_the_step_down_is_warned_of(dilation, warned):
    said = warnings(Run((), coverage=Coverage(frozenset())), Traced((), ""), dilation, steady=9)
    assert any("1.40 times as long" in one for one in said) is warned


def test_many_missing_ranks_are_not_all_listed():
    run = Run((), coverage=Coverage(frozenset()))
    (said,) = warnings(run, Traced((), "", tuple(range(1, 300))), None, steady=9)
    assert said.startswith("no trace of rank 1, 2, 3, 4, 5, 6, 7, 8, ...: ")


def test_a_live_run_is_left_as_it_is():
    report = object()
    assert of_traces(report, Run(())) is report
