"""What the host does, told by the calls of a trace."""

import numpy as np
import pytest
from device_drawn import FRAME, OPERATOR, RANGE, RUNTIME, trace_of

from unstall.accounts.meaning import is_users_frame
from unstall.model.finding import Line
from unstall.model.wire import Activity, Device, Phase
from unstall.pipeline import account

FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
K = [("kernel", 0, 1, 7)]


def parts(*calls, work=K, **more):
    ledger, _, _ = account(trace_of(list(calls), work, **more))
    found = {}
    for phase, activity, ns in zip(ledger.phase.tolist(), ledger.activity.tolist(), ledger.ns.tolist()):
        key = (Phase(phase).name, Activity(activity).name)
        found[key] = found.get(key, 0) + ns
    return found


def test_time_that_no_call_covers_is_not_known():
    assert parts() == {("BETWEEN", "UNKNOWN"): 1000}


def test_an_operator_that_launches_is_launching_and_one_that_does_not_computes():
    assert parts(
        (OPERATOR, "aten::mm", 100, 300), (RUNTIME, "cudaLaunchKernel", 150, 200), (OPERATOR, "aten::add", 300, 400)
    ) == {("BETWEEN", "UNKNOWN"): 700, ("FORWARD", "LAUNCH"): 200, ("FORWARD", "COMPUTE"): 100}  # fmt: skip


def test_waits_are_told_within_operators():
    found = parts((OPERATOR, "aten::item", 100, 300), (RUNTIME, "cudaStreamSynchronize", 150, 290))
    assert found[("FORWARD", "SYNC")] == 140


@pytest.mark.parametrize(
    ("name", "start", "activity"),
    [
        ("Memcpy DtoH (Device -> Pageable)", 250, "SYNC"),
        ("Memcpy HtoD (Pageable -> Device)", 250, "COPY"),
        ("Memcpy HtoD (Pageable -> Device)", 310, "LAUNCH"),
        ("Memcpy HtoD (Pinned -> Device)", 250, "LAUNCH"),
    ],
)
def test_a_copy_that_lasts_until_it_is_done_holds_the_host(name, start, activity):
    found = parts((RUNTIME, "cudaMemcpyAsync", 100, 300, 0, name), work=[(name, start, start + 40, 7)])
    assert found[("BETWEEN", activity)] == 200


def test_a_fetch_waits_or_makes_the_batch():
    assert parts((RANGE, FETCH, 100, 300))[("FETCH", "WAIT_DATA")] == 200
    assert parts((RANGE, ALONE, 100, 300))[("FETCH", "LOAD")] == 200
    assert parts((RANGE, FETCH, 100, 300), (OPERATOR, "aten::stack", 100, 150)) == {
        ("BETWEEN", "UNKNOWN"): 800, ("FETCH", "WAIT_DATA"): 150, ("FETCH", "LOAD"): 50,
    }  # fmt: skip


def test_backward_runs_on_the_engines_thread_while_the_training_thread_waits():
    found = parts(
        (OPERATOR, "aten::mm", 100, 200),
        (OPERATOR, BACKWARD, 300, 400, 1),
        (RUNTIME, "cudaLaunchKernel", 320, 330, 1),
        (OPERATOR, BACKWARD, 450, 500, 1),
        (RANGE, "Optimizer.step#SGD.step", 600, 700),
        (OPERATOR, "aten::add_", 620, 640),
    )
    assert found == {
        ("FORWARD", "COMPUTE"): 100, ("FORWARD", "UNKNOWN"): 100, ("BACKWARD", "LAUNCH"): 100, ("BACKWARD", "COMPUTE"): 50,
        ("BACKWARD", "UNKNOWN"): 50, ("OPTIMIZER", "COMPUTE"): 20, ("OPTIMIZER", "UNKNOWN"): 80, ("BETWEEN", "UNKNOWN"): 500,
    }  # fmt: skip


def test_python_needs_a_frame_and_modules_frames_tell_the_forward():
    found = parts(
        (FRAME, "train.py(41): main", 0, 900),
        (FRAME, "nn.Module: Net_0", 100, 500),
        (OPERATOR, "aten::mm", 200, 300),
        (RUNTIME, "cudaLaunchKernel", 210, 220),
    )
    assert found == {
        ("BETWEEN", "PYTHON"): 500, ("FORWARD", "PYTHON"): 300, ("FORWARD", "LAUNCH"): 100, ("BETWEEN", "UNKNOWN"): 100,
    }  # fmt: skip


def test_forward_done_again_in_a_backward_is_backward():
    found = parts((OPERATOR, BACKWARD, 100, 500, 1), (FRAME, "nn.Module: Net_0", 200, 300, 1))
    assert found[("BACKWARD", "PYTHON")] == 100


def test_compiling_stays_compiling_whatever_it_calls():
    found = parts((RANGE, "dynamo_timed", 100, 500), (OPERATOR, "aten::mm", 200, 300), (FRAME, "a.py(1): f", 300, 400))
    assert found[("BETWEEN", "COMPILE")] + found.get(("FORWARD", "COMPILE"), 0) == 400


def test_time_before_the_first_step_and_after_the_last_is_apart():
    found = parts((OPERATOR, "aten::mm", 0, 1000), steps=((200, 400), (500, 700)))
    assert found[("STARTUP", "COMPUTE")] == 200 and found[("SHUTDOWN", "COMPUTE")] == 300


def test_work_is_the_line_and_the_outermost_operators_that_launched_it():
    run = trace_of(
        [
            (FRAME, "train.py(41): main", 0, 900), (FRAME, "torch/nn/functional.py(7): linear", 10, 500),
            (OPERATOR, "aten::linear", 20, 400), (OPERATOR, "aten::addmm", 30, 300),
            (RUNTIME, "cudaLaunchKernel", 40, 50, 0, "gemm"),
        ],
        [("gemm", 60, 200, 7)],
    )  # fmt: skip
    (kernel,) = account(run)[1].device.kernels
    assert (kernel.name, kernel.kind, kernel.ns, kernel.operator) == ("gemm", Device.COMPUTE, 140, "aten::linear")
    assert kernel.line == Line("train.py", 41, "main")
    assert kernel.critical_ns == 0


@pytest.mark.parametrize(
    ("frame", "users"),
    [
        ("train.py(41): main", True),
        ("pkg/model.py(3): forward", True),
        ("/home/me/project/loop.py(10): <module>", True),
        ("torch/nn/functional.py(7): linear", False),
        ("threading.py(870): run", False),
        ("transformers/trainer.py(1): train", False),
        ("/opt/lib/python3.11/site-packages/pkg/a.py(3): f", False),
        ("<built-in method linear of type object at 0x7f>", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_the_users_frames_are_told_from_libraries(frame, users):
    assert is_users_frame(frame) is users


def test_calls_of_no_length_say_nothing():
    run = trace_of([(RUNTIME, "cudaLaunchKernel", 10, 10, 0, "gemm")], [("gemm", 60, 200, 7)])
    assert np.isclose(account(run)[1].device.busy_ns, 140)
