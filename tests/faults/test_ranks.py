"""Several ranks, processes and threads: who is recorded, how they are joined, and what is said of the rest."""

from __future__ import annotations

import re
import sys

import pytest

DDP = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

torch.set_num_threads(1)

def train(rank, world, how, address=None):
    if address:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if how == "killed at once" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(30):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02 if rank else 0.01)
        if how == "killed later" and step == 20 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        print(loss.item().hex())
    dist.destroy_process_group()

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        address = "file://" + os.path.abspath("store")
        mp.start_processes(train, (2, sys.argv[2], address), 2, start_method=sys.argv[3])
    else:
        train(0, 0, sys.argv[2])
"""
TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--master-port",
    "0",
    "--standalone",
)


def check_balance(left) -> None:
    for rank, wall in enumerate(left.report["run"]["rank_wall_ns"]):
        assert sum(left.ledger(rank).values()) == wall


def test_both_ranks_of_torchrun_are_joined_to_one_run(bench):
    bench.write(DDP)
    left = bench.watched(*TORCHRUN, "train.py", "env", "well")
    assert left.code == 0, left.err
    assert (left.report["run"]["ranks"], left.steps) == (2, 30)
    assert [rank["rank"] for rank in left.report["run"]["by_rank"]] == [0, 1]
    assert "left no recording" not in left.warnings and "without saying so" not in left.warnings
    check_balance(left)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_ranks_started_by_multiprocessing_are_joined(bench, method):
    bench.write(DDP)
    plain = bench.plain(sys.executable, "train.py", "spawn", "well", method)
    assert plain.returncode == 0, plain.stderr
    (bench.folder / "store").unlink(missing_ok=True)
    left = bench.watched("train.py", "spawn", "well", method)
    assert (left.code, left.out) == (0, plain.stdout)
    assert (left.report["run"]["ranks"], left.steps) == (2, 30)
    assert "without saying so" not in left.warnings
    check_balance(left)


@pytest.mark.slow
def test_a_rank_killed_before_its_first_step_is_named(bench):
    bench.write(DDP)
    left = bench.watched(*TORCHRUN, "train.py", "env", "killed at once")
    assert left.code != 0
    assert left.report["exit_code"] == left.code
    assert "rank" in left.warnings or "none made a training step" in left.warnings


@pytest.mark.slow
def test_a_rank_killed_later_is_named_and_the_steps_of_all_until_then_are_reported(bench):
    bench.write(DDP)
    left = bench.watched(*TORCHRUN, "train.py", "env", "killed later")
    assert left.code != 0
    assert left.report["run"]["ranks"] == 2
    assert 15 <= left.steps <= 21
    assert "1 ended without saying so" in left.warnings
    check_balance(left)


TRAIN = """
import sys, threading, time, torch
torch.set_num_threads(1)
def train(steps):
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        loss = net(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    return optimizer
"""


def test_a_training_in_a_thread_is_recorded_with_that_threads_stacks(bench):
    bench.write(TRAIN + "thread = threading.Thread(target=train, args=(60,))\nthread.start()\nthread.join()\n")
    left = bench.watched("train.py")
    assert left.steps == 60
    lines = [finding["where"].get("line") for finding in left.report["findings"]]
    assert 16 not in lines  # thread.join() in the main thread
    check_balance(left)


@pytest.mark.slow
def test_of_two_threads_that_train_the_first_is_recorded_and_the_other_is_told_of(bench):
    start = "threading.Thread(target=train, args=(60,))"
    bench.write(TRAIN + f"first, second = {start}, {start}\nfirst.start(); time.sleep(0.3); second.start()\n")
    left = bench.watched("train.py")
    assert left.steps == 60
    assert left.err.count("two threads train in one process; only the first one is recorded") == 1
    assert "two threads trained in one process" in left.warnings


@pytest.mark.slow
def test_a_thread_takes_over_when_the_one_that_trained_has_ended(bench):
    start = "threading.Thread(target=train, args=(30,))"
    bench.write(TRAIN + f"for _ in range(2):\n    thread = {start}\n    thread.start()\n    thread.join()\n")
    left = bench.watched("train.py")
    assert left.steps == 60
    assert "two threads" not in left.err
    check_balance(left)


def test_two_trainings_one_after_the_other_count_all_their_steps(bench):
    bench.write(TRAIN + "first = train(40)\nsecond = train(25)\n")
    left = bench.watched("train.py")
    assert left.steps == 65
    check_balance(left)


@pytest.mark.slow
def test_two_trainings_whose_first_optimizer_is_gone_count_all_their_steps(bench):
    bench.write(TRAIN + "train(40)\ntrain(25)\n")
    assert bench.watched("train.py").steps == 65


@pytest.mark.slow
def test_of_two_processes_under_one_shell_script_the_longer_training_is_reported(bench):
    bench.write(TRAIN + "train(int(sys.argv[1]))\n")
    bench.write(f"{sys.executable} train.py 20\n{sys.executable} train.py 80\nexit 5\n", "both.sh")
    left = bench.watched("both.sh")
    assert (left.code, left.steps) == (5, 80)
    assert "1 more process trained; the account is of the longest training" in left.warnings


@pytest.mark.slow
def test_an_optimizer_step_that_raises_and_is_caught_does_not_end_the_count(bench):
    bench.write("""
        import torch
        net = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def closure():
            if number == 5:
                raise RuntimeError("out of memory")
            loss = net(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            return loss
        for number in range(40):
            try:
                optimizer.step(closure)
            except RuntimeError:
                pass
    """)
    assert bench.watched("train.py").steps == 39


@pytest.mark.slow
def test_loaders_made_anew_each_epoch_keep_their_numbers(bench):
    bench.write("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(64, 8))
        net = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        evaluation = DataLoader(data, batch_size=64)
        for epoch in range(5):
            for x, in DataLoader(data, batch_size=8, shuffle=True):
                loss = net(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                for x, in evaluation:
                    net(x)
    """)
    left = bench.watched("train.py")
    assert left.steps == 40
    assert sorted(name for name in left.report["facts"] if name.startswith("loader:")) in ([], ["loader:0", "loader:1"])
    assert left.ledger()["EVALUATE"] < left.ledger()["FETCH"]


def test_all_ranks_stop_at_the_same_step(bench):
    bench.write("""
        import time
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        rank, steps = dist.get_rank(), 0
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            while True:
                steps += 1
                loss = model(torch.randn(16, 8)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.02 if rank else 0.01)
        finally:
            print(f"rank {rank} stopped at {steps}", flush=True)
            dist.destroy_process_group()
    """)
    left = bench.watched(*TORCHRUN, "train.py", options=("--steps", "12", "--warmup", "3"))
    assert left.code == left.report["exit_code"] == 0, left.err
    assert sorted(re.findall(r"rank \d stopped at \d+", left.out)) == [  # two processes may write on one line
        "rank 0 stopped at 15",
        "rank 1 stopped at 15",
    ]
    assert left.report["stopped_by_us"]
    assert (left.report["run"]["ranks"], left.report["run"]["steady_steps"]) == (2, 12)
    assert not left.warnings
    check_balance(left)
