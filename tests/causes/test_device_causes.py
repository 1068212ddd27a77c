"""What the drawn cases cannot show: why a cause abstains, what it is unsure of, and which remedy comes first."""

from dataclasses import replace

import pytest

from unstall import causes
from unstall.causes._device import idle_stakes, spread
from unstall.causes.distributed.exposed_collective import operation
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import Idle, Idling
from unstall.model.finding import Abstained, Candidate, Operator, Stake
from unstall.model.ledger import Activity, Device, Phase
from unstall.model.run import Sensor
from unstall.pipeline import account, explained
from unstall.testing.contract import With, said_of
from unstall.testing.timeline import draw

BY_ID = {cause.id: cause for cause in causes.load()}
OF_DEVICE = [cause for cause in BY_ID.values() if Sensor.DEVICE in cause.needs]


def said(cause, case, **changes):
    use = replace(case.given.tables["device"], **changes)
    given = Given(tables={**case.given.tables, "device": use})
    drawn = draw(case.timeline, given)
    ledger, tables, _ = account(drawn)
    return list(cause.find(drawn, ledger, With(tables, given.tables)))


def first(cause, kind=Fires):
    """Return the first case that gives the table of the device."""
    return next(case for case in cause.cases if isinstance(case, kind) and "device" in case.given.tables)


def test_launching_abstains_and_says_why_where_the_profiler_made_the_steps_longer():
    cause = BY_ID["kernels/launch-bound"]
    (one,) = said(cause, first(cause), dilation=1.6)
    assert isinstance(one, Abstained)
    assert "1.60 times as long" in one.because


def test_it_does_not_abstain_from_what_it_would_not_have_found():
    cause = BY_ID["kernels/launch-bound"]
    assert said(cause, first(cause), dilation=1.6, idling=()) == []


def test_the_pipeline_lists_such_an_abstention():
    cause = BY_ID["kernels/launch-bound"]
    case = first(cause, Silent)
    drawn = draw(case.timeline, case.given)
    ledger, tables, segments = account(drawn)
    told = explained(drawn, ledger, With(tables, case.given.tables), segments, (cause,))
    assert [one.cause for one in told.abstained] == [cause.id]


def test_full_precision_is_a_candidate_where_the_device_is_not_known():
    cause = BY_ID["kernels/full-precision-matmul"]
    kernels = first(cause).given.tables["device"].kernels
    (one,) = said(
        cause, first(cause), tensor_cores=None, kernels=(replace(kernels[0], name="maxwell_sgemm_128x64_tn"),)
    )
    assert isinstance(one, Candidate)


def test_small_products_are_promised_nothing():
    cause = BY_ID["kernels/full-precision-matmul"]
    kernels = first(cause).given.tables["device"].kernels
    (large,) = said(cause, first(cause))
    (small,) = said(cause, first(cause), kernels=(replace(kernels[0], count=4000),))
    assert large.saving.low_ns > 0 == small.saving.low_ns


def test_volta_is_told_of_float16_and_no_tf32():
    cause = BY_ID["kernels/full-precision-matmul"]
    case = [case for case in cause.cases if isinstance(case, Fires)][2]
    assert [remedy.title for remedy in said_of(cause, case).remedies[0]] == [
        "mixed precision with torch.autocast (dtype=torch.float16)"
    ]


def test_an_operator_is_named_where_no_stack_was_recorded():
    cause = BY_ID["host/sync-every-step"]
    syncs = first(cause).given.tables["device"].syncs
    (one,) = said(cause, first(cause), syncs=(replace(syncs[0], line=None),))
    assert one.where == Operator("aten::item", "forward")


def test_a_wait_for_the_size_of_a_result_has_a_remedy_of_its_own():
    cause, case = BY_ID["host/sync-every-step"], first(BY_ID["host/sync-every-step"])
    use = case.given.tables["device"]
    given = Given(
        tables={**case.given.tables, "device": replace(use, syncs=(replace(use.syncs[0], operator="aten::nonzero"),))}
    )
    assert said_of(cause, replace(case, given=given)).remedies[0][0].id == "host/sync-every-step#fixed-size"


def test_stacks_slow_the_host_down_so_more_idle_time_is_needed_and_no_saving_promised(monkeypatch):
    cause = BY_ID["kernels/launch-bound"]
    idling = first(cause).given.tables["device"].idling
    little = tuple(replace(row, ns=row.ns // 7, gaps=row.gaps // 7) for row in idling)  # 7 % of the step
    (plain,) = said(cause, first(cause), idling=little)
    monkeypatch.setattr("unstall.causes.kernels.launch_bound.has_stacks", lambda run: True)
    assert said(cause, first(cause), idling=little) == []
    (slowed,) = said(cause, first(cause))
    assert plain.saving.low_ns > 0 == slowed.saving.low_ns


def test_one_rank_alone_promises_no_saving_of_its_collectives():
    cause = BY_ID["distributed/exposed-collective"]
    (alone,) = said(cause, first(cause))
    assert alone.saving.low_ns == 0
    assert "one rank's trace" in alone.notes[0]


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "AllReduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ReduceScatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "SendRecv"),
        ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", "ncclDevKernel_Generic"),
        ("void cross_device_reduce_1stage<__hip_bfloat16, 8>(RankData*)", "Reduce"),
    ],
)
def test_the_operation_is_told_by_the_kernel(name, does):
    assert operation(name) == does


@pytest.mark.parametrize("cause", OF_DEVICE, ids=lambda cause: cause.id)
def test_nothing_is_said_where_no_device_table_could_be_made(cause):
    drawn = draw(first(cause).timeline)
    ledger, tables, _ = account(drawn)
    assert not list(cause.find(drawn, ledger, With(tables, {"device": None})))


def test_time_is_spread_to_the_nanosecond_and_no_further_than_there_is():
    parts = {
        (Phase.FORWARD, Activity.COMPUTE, Device.COMPUTE): 100,
        (Phase.FORWARD, Activity.PYTHON, Device.COMPUTE): 50,
        (Phase.BACKWARD, Activity.COMPUTE, Device.COMPUTE): 7,
        (Phase.BACKWARD, Activity.COMPUTE, Device.IDLE): 1000,
    }
    assert sum(stake.ns for stake in spread(101, parts, Device.COMPUTE)) == 101
    assert sum(stake.ns for stake in spread(10_000, parts, Device.COMPUTE)) == 157
    assert spread(7, parts, Device.COMPUTE, Phase.BACKWARD) == (
        Stake(Phase.BACKWARD, Activity.COMPUTE, 7, device=Device.COMPUTE),
    )


def test_idle_time_is_taken_from_the_first_rows_first():
    rows = [
        Idling(Idle.SYNC, Phase.FORWARD, Activity.PYTHON, 5, 1),
        Idling(Idle.HOST, Phase.FORWARD, Activity.PYTHON, 5, 1),
    ]
    assert idle_stakes(rows, 7) == (Stake(Phase.FORWARD, Activity.PYTHON, 7, device=Device.IDLE),)
