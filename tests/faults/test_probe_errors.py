"""An error inside a probe: it switches itself off, says so once, and the training goes on as if it were not there."""

from __future__ import annotations

import pkgutil
import sys

import pytest

import unstall.probes

PROBES = sorted(
    info.name
    for info in pkgutil.iter_modules(unstall.probes.__path__)
    if not info.ispkg and not info.name.startswith("_")
)

# What the probes named in BROKEN call of the recorder raises: at the end of what they time (CLOSING), or before it.
BREAK = """
import gc, os, sys
import torch
broken, closing = os.environ.get("BROKEN", "").split(), os.environ.get("CLOSING") == "1"
if "UNSTALL_RECORDING" in os.environ:
    from unstall.probes._accounting import Accounting
    from unstall.probes._recorder import Recorder
    def breaking(function):
        def called(*args, **kwargs):
            file = sys._getframe(1).f_code.co_filename
            if any(file.endswith(f"probes/{name}.py") for name in broken):
                raise RuntimeError("planted")
            return function(*args, **kwargs)
        return called
    opens = [(Accounting, "enter_phase"), (Accounting, "enter_activity"), (Accounting, "collected"),
             (Recorder, "fact"), (Recorder, "write"),
             (Recorder, "write_later")]
    for kind, name in [(Accounting, "leave"), (Recorder, "span")] if closing else opens:
        setattr(kind, name, breaking(getattr(kind, name)))
"""
TRAINS = """
import io
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
square = torch.compile(lambda x: x * x, backend="eager")

def get_batch():
    return torch.randn(16, 8)

def step(x):
    loss = square(model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)

if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for number in range(12):
        step(get_batch())
    data = TensorDataset(torch.randn(160, 8))
    for workers in (0, 2):
        for x, in DataLoader(data, batch_size=16, shuffle=True, num_workers=workers):
            step(x)
    with torch.no_grad():
        print(model(get_batch()).sum().item().hex())
    dist.all_reduce(torch.ones(1))
    gc.collect()
    torch.save(model.state_dict(), io.BytesIO())
    dist.destroy_process_group()
    print(torch.cat([p.flatten() for p in model.parameters()]).sum().item().hex())
"""
# They have nothing to tell of this training: no sampler was refused, and there is no framework, no device, no embedding,
# no second rank and no generated code.
SILENT = {"sampling", "configurations", "devices", "embeddings", "data_parallel", "fusing"}


def went_off(err: str) -> list[str]:
    marker = " switched itself off, the training goes on: RuntimeError: planted"
    return sorted(line.split()[2] for line in err.splitlines() if marker in line)


@pytest.fixture
def training(bench):
    bench.write(BREAK + TRAINS)
    plain = bench.plain(sys.executable, "train.py")
    assert plain.returncode == 0, plain.stderr
    return bench, plain.stdout


def test_all_probes_erring_at_once_leave_the_training_as_it_is(training):
    bench, plain = training
    left = bench.watched("train.py", env={"BROKEN": " ".join(PROBES)})
    assert left.out == plain
    assert left.code == 0
    off = went_off(left.err)
    assert set(off) >= {"backward", "fetching", "garbage", "loaders", "modules", "optimizers", "saving", "settings"}
    # Data workers are processes of their own, and say it for themselves.
    assert [name for name in off if name != "fetching"] == sorted(set(off) - {"fetching"})
    assert "none made a training step" in left.warnings


@pytest.mark.slow
@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("name", sorted(set(PROBES) - SILENT))
def test_one_probe_that_errs_is_listed_and_the_others_go_on(training, name, closing):
    bench, plain = training
    left = bench.watched("train.py", env={"BROKEN": name, "CLOSING": str(int(closing))})
    assert left.out == plain
    assert left.code == 0
    off = set(went_off(left.err))
    assert off <= {name}
    assert off == {name} or (closing and name in ("fetching", "settings", "graphs", "parameters"))  # call neither
    if off and name != "optimizers":
        assert f"probe {name}: RuntimeError: planted" in left.warnings
        assert left.steps == 32
    assert sum(left.ledger().values()) == left.report["run"]["rank_wall_ns"][0]
