"""How often does a whole plan of live trials call a remedy that does nothing faster or slower?

usage: python bench/live_nulls.py [--plans N] [--keep FILE]

Each plan is what `unstall fix` does with one remedy: fresh processes in pairs, in the order A B B A by lot, waiting for a
quiet machine, disturbed ones set aside, and `decide` after each pair.  The remedy sets a variable that nobody reads, so
"faster" and "slower" are both false.  The trainings take turns; with --keep a stopped bench goes on where it was.
The interval is that of Clopper & Pearson 1934.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from nulls import share

from unstall.launch.workspace import Workspace
from unstall.model.remedy import Edit, SetEnvironment
from unstall.model.trial import Measure, Verdict
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.length import Length
from unstall.pipeline.proving import Clock, OutOfBudget, Prover
from unstall.pipeline.trial import Bench
from unstall.testing.journal import Journal
from unstall.trials.sequence import Design

NOTHING: tuple[Edit, ...] = (SetEnvironment("UNSTALL_BENCH_READ_BY_NOBODY", "1"),)
STEPS, EXPECTED_S, PLAN_S = 70, 6.0, 240.0
HEAD = """import time
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""
TRAININGS = {
    "tensors": """
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8))
loader = DataLoader(TensorDataset(torch.randn(8192, 512), torch.randn(8192, 8)), batch_size=128, shuffle=True)
""",
    "python": """
class Rows(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        return torch.full((64,), float(sum(k % 7 for k in range(2000 + i % 50)))), torch.zeros(8)

model = torch.nn.Linear(64, 8)
loader = DataLoader(Rows(), batch_size=64, shuffle=True)
""",
    "reads": """
class Rows(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((64,), float(i)), torch.zeros(8)

model = torch.nn.Linear(64, 8)
loader = DataLoader(Rows(), batch_size=16, num_workers=2, persistent_workers=True)
""",
    "many small": """
model = torch.nn.Sequential(*[layer for _ in range(40) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())])
model.append(torch.nn.Linear(64, 8))
loader = DataLoader(TensorDataset(torch.randn(8192, 64), torch.randn(8192, 8)), batch_size=256)
""",
}


def plan(script: str, folder: Path, seed: int) -> dict[str, object]:
    """Return what one plan said: its verdict, pairs, trials set aside, ratio, and how long it took."""
    (folder / "train.py").write_text(script)
    options = FixOptions(("train.py",), budget_s=PLAN_S, seed=seed)
    bench = Bench(("train.py",), folder / "trials", Workspace(folder, None), patience_s=PLAN_S / 4)
    clock = Clock(PLAN_S)
    prover = Prover(bench, options, clock, folder)
    pairs, verdict = None, None
    try:
        pairs, verdict = prover.against((), NOTHING, Measure.STEP, Length(STEPS, EXPECTED_S), "nothing", 0)
    except OutOfBudget:
        pass
    ratio = pairs.ratio() if pairs is not None else None
    numbers = [ratio.value, ratio.low, ratio.high] if ratio is not None else None
    said, made = (verdict or Verdict.INCONCLUSIVE).value, len(pairs.pairs) if pairs is not None else 0
    return {"verdict": said, "pairs": made, "discarded": bench.discarded, "ratio": numbers, "took_s": clock.spent_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    options = parser.parse_args()
    journal = Journal(options.keep)
    names = list(TRAININGS)
    for number in range(options.plans):
        name, key = names[number % len(names)], str(number)
        if key in journal.rows:
            continue
        load, began = os.getloadavg()[0], time.strftime("%H:%M")
        with tempfile.TemporaryDirectory() as folder:
            found = plan(HEAD + TRAININGS[name] + LOOP, Path(folder), seed=number)
        journal.add(key, {"training": name, "load": load, **found})
        ratio = " ".join(f"{n:.3f}" for n in found["ratio"]) if isinstance(found["ratio"], list) else "-"
        print(
            f"{began} load {load:.1f}  {name:12} {found['verdict']!s:14} {found['pairs']:>2} pairs  ratio {ratio}",
            flush=True,
        )
    said = Counter(str(row["verdict"]) for row in journal.rows.values())
    print(", ".join(f"{verdict} {share(n, len(journal.rows))}" for verdict, n in said.most_common()))
    print(f"promised of equal arms: faster in {Design().alpha:.0%} at most, slower in {Design().alpha_slower:.0%}")


if __name__ == "__main__":
    main()
