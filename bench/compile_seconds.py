"""Seconds claimed for a fault at compile time beside those it really took: ``python bench/compile_seconds.py [--keep FILE]``.

Each planted training of these causes is run with the fault, without it twice, and with it again; where the fix rests on a
cache that lasts, it is run once before that, to fill it. What the fault took is what the runs with it took longer: by the
wall clock; by the CPU time of all their processes, which a busy machine changes less, put on the wall clock by what a
second of it took in the runs with the fault; and by the ledger, without coming up, shutting down and waiting for a CPU,
which differ by a second from run to run. Beside it stand the time that the finding was allotted (spent), and the bounds
of what its remedy is said to save in this run, as the cause's arithmetic gave them: those that are shown hold 90 % of
planted trainings, and their middle is no estimate.

--keep FILE holds what was measured, a JSON line a training: what is there is not measured again. --only takes parts of names.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall import causes
from unstall.model.case import Planted
from unstall.model.finding import Finding, Scope
from unstall.model.ledger import Activity, Phase
from unstall.model.report import Report
from unstall.testing.contract import train
from unstall.testing.journal import Journal, chosen

COMPILE_TIME = (
    "compiler/recompile-storm", "compiler/compile-in-loop", "compiler/long-cold-start", "compiler/cold-cache",
    "compiler/caches-off", "compiler/rebuilt-extension", "compiler/debug-logging", "compiler/unpaid-autotuning",
)  # fmt: skip
FILLED_BEFORE = ("compiler/cold-cache", "compiler/caches-off", "compiler/rebuilt-extension")
ALLOWED = 0.15  # of the difference, in the median


def plants() -> dict[str, tuple[str, Planted]]:
    """Return (cause, planted training) by name."""
    by_id = {cause.id: cause for cause in causes.load()}
    return {f"{name} {n}": (name, planted) for name in COMPILE_TIME for n, planted in enumerate(by_id[name].planted)}


def run_once(source: str) -> tuple[Report, float, float]:
    """Return the report of one training, its wall time and the CPU time of its processes, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = train(source, Path(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return report, time.monotonic() - began_s, cpu_s


def measured(cause: str, planted: Planted) -> dict[str, object]:
    """Return what was claimed with the fault, mean of two runs, and what it took, s."""
    if cause in FILLED_BEFORE:
        run_once(planted.after)
    claims: list[tuple[float, float, float]] = []
    loop_s: dict[bool, float] = {True: 0.0, False: 0.0}
    wall_s: dict[bool, float] = {True: 0.0, False: 0.0}  # with the fault, without it
    cpu_s: dict[bool, float] = {True: 0.0, False: 0.0}
    for faulty in (True, False, False, True):
        report, wall, cpu = run_once(planted.before if faulty else planted.after)
        wall_s[faulty], cpu_s[faulty] = wall_s[faulty] + wall / 2, cpu_s[faulty] + cpu / 2
        loop_s[faulty] += in_loop_s(report) / 2
        claims += [claimed(f, report) for f in report.findings if faulty and f.cause == cause and f.fault]
    spent, low, high = np.sum(claims, axis=0) / 2 if claims else (0.0, 0.0, 0.0)
    return {
        "spent_s": float(spent), "low_s": float(low), "high_s": float(high), "wall_s": wall_s[True] - wall_s[False],
        "loop_s": loop_s[True] - loop_s[False],
        "cpu_s": (cpu_s[True] - cpu_s[False]) * wall_s[True] / cpu_s[True], "load": os.getloadavg()[0],
    }  # fmt: skip


def claimed(finding: Finding, report: Report) -> tuple[float, float, float]:
    """Return the seconds of the run that were allotted to the finding, and the bounds of what is saved of them."""
    times = report.steady_steps if finding.scope is Scope.STEADY else 1
    saving = finding.saving
    told = saving.calibrated or saving if saving else None
    low, high = (told.low_ns, told.high_ns) if told else (0, 0)
    return finding.spent_ns / 1e9, times * low / 1e9, times * high / 1e9


def in_loop_s(report: Report) -> float:
    """Return the time of the run in which it compiled, or went through its loop with a CPU, s."""
    ledger = report.ledger
    if ledger is None:
        return 0.0
    edges = np.isin(ledger.phase, (Phase.STARTUP, Phase.SHUTDOWN)) & (ledger.activity != Activity.COMPILE)
    return float(ledger.ns[~edges & (ledger.activity != Activity.STARVED)].sum()) / 1e9


def off_by(row: Mapping[str, object], clock: str) -> tuple[float, float]:
    """Return how far the time spent, and the middle of what is saved, are off what the fault took, a share of it."""
    spent, low, high, took = (float(str(row[name])) for name in ("spent_s", "low_s", "high_s", clock))
    return abs(spent - took) / max(0.1, took), abs((low + high) / 2 - took) / max(0.1, took)


def shown(rows: Mapping[str, Mapping[str, object]]) -> str:
    lines = [f"{'':34}{'spent':>8}{'saved':>16}{'took, wall':>12}{'by CPU':>8}{'ledger':>8}{'load':>6}"]
    for name, row in rows.items():
        spent, low, high, wall, cpu, loop, load = (
            float(str(row[key])) for key in ("spent_s", "low_s", "high_s", "wall_s", "cpu_s", "loop_s", "load")
        )
        saved = f"{low:.1f} to {high:.1f}"
        lines.append(f"{name:34}{spent:7.1f}s{saved:>15}s{wall:11.1f}s{cpu:7.1f}s{loop:7.1f}s{load:6.1f}")
    for clock, word in (("wall_s", "wall time"), ("cpu_s", "CPU time on the wall clock"), ("loop_s", "the ledger")):
        errors = np.array([off_by(row, clock) for row in rows.values()])
        spent, saved = np.median(errors, axis=0)
        lines.append(
            f"by {word}: spent is off by {spent:.0%} in the median of {len(rows)}, the middle of what is saved by "
            f"{saved:.0%}; {ALLOWED:.0%} is allowed"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="WORDS", help="trainings with one of these in their names"
    )
    options = parser.parse_args()
    journal = Journal(options.keep)
    found = plants()
    names = chosen(found, options.only, str)
    if not names:
        parser.error(f"no training of that name; there are {', '.join(found)}")
    for name in names:
        if name not in journal.rows:
            journal.add(name, measured(*found[name]))
            print(name, {key: value for key, value in journal.rows[name].items() if key != "key"}, flush=True)
    print(f"\n{shown({name: journal.rows[name] for name in names})}")


if __name__ == "__main__":
    main()
