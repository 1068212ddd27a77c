"""However a training ends: its exit code, its report up to there, no process left behind."""

from __future__ import annotations

import os
import signal

import pytest

# Trains 40 steps of at least 10 ms; at the end of step 30 it does what the argument says.
TRAINS = """
import os, signal, sys, time, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(40):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if step == 29:
            exec(sys.argv[1])
finally:
    print("cleaned up", flush=True)
"""
WAIT = """
open("ready.part", "w").write(f"{os.getpid()}\\n")
os.rename("ready.part", "ready")
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("ending", "code", "cleans"),
    [
        ("raise ValueError('the data are bad')", 1, True),
        pytest.param("sys.exit(3)", 3, True, marks=pytest.mark.slow),
        pytest.param("os._exit(5)", 5, False, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, False),
        pytest.param("os.abort()", 128 + 6, False, marks=pytest.mark.slow),
    ],
)
def test_the_steps_before_the_end_are_reported_with_the_trainings_own_exit_code(bench, ending, code, cleans):
    bench.write(TRAINS)
    left = bench.watched("train.py", ending)
    assert left.code == left.report["exit_code"] == code
    assert ("cleaned up" in left.out) == cleans
    # A kill loses what was not yet flushed: 50 ms (5 steps) so early, and the step in progress; more where the machine stalls.
    assert left.steps == 30 if cleans else 15 <= left.steps <= 30
    assert f"ended with exit code {code}" in left.err
    assert ("without saying so" in left.warnings) != cleans
    assert sum(left.ledger().values()) == left.report["run"]["rank_wall_ns"][0]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 128 + 2), pytest.param(signal.SIGTERM, 128 + 15, marks=pytest.mark.slow)]
)
def test_a_signal_to_unstall_ends_the_training_and_the_report_is_printed(bench, number, code):
    bench.write(TRAINS)
    running = bench.start("train.py", WAIT)
    training = int(bench.wait_for("ready", running))
    os.kill(running.pid, number)
    out, err = running.communicate(timeout=60)
    left = bench.left(running.returncode, out, err)
    assert left.code == left.report["exit_code"] == code
    assert left.steps >= 25
    assert "steps in" in err
    assert ("cleaned up" in out) == (number == signal.SIGINT)
    assert bench.group_is_gone(running.pid)
    with pytest.raises(ProcessLookupError):
        os.kill(training, 0)


@pytest.mark.slow
def test_a_training_that_handles_the_signal_gets_it_once_and_goes_on(bench):
    bench.write("import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n" + TRAINS)
    running = bench.start("train.py", WAIT.replace("time.sleep(100)", "time.sleep(3)"))
    bench.wait_for("ready", running)
    os.killpg(running.pid, signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    left = bench.left(running.returncode, out, err)
    assert out.count("heard") == 1
    assert (left.code, left.steps) == (0, 40)
    assert bench.group_is_gone(running.pid)


@pytest.mark.slow
def test_data_workers_do_not_outlive_a_killed_training(bench):
    bench.write("""
        import os, signal, torch
        from torch.utils.data import DataLoader, TensorDataset
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if __name__ == "__main__":
            loader = DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=16, num_workers=2)
            for step, (x,) in enumerate(loader):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                if step == 100:
                    os.kill(os.getpid(), signal.SIGKILL)
    """)
    running = bench.start("train.py")
    out, err = running.communicate(timeout=60)
    assert bench.left(running.returncode, out, err).code == 128 + 9
    assert bench.group_is_gone(running.pid)
