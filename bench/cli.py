"""How long the command line takes to answer: ``python bench/cli.py [--repeats N]``.

Wall and CPU time of fresh processes, best and median; the bare interpreter beside them. The aim is `unstall --help` under 0.15 s.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import unstall": ["-c", "import unstall"],
    "unstall --help": ["-m", "unstall", "--help"],
    "unstall run --help": ["-m", "unstall", "run", "--help"],
    "unstall causes": ["-m", "unstall", "causes"],
}
HEAVY = ("torch", "numpy", "libcst", "rich", "msgspec")


def seconds(arguments: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of one fresh process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imported(arguments: list[str]) -> list[str]:
    """Return which of the HEAVY packages the command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    return [name for name in HEAVY if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    print(f"{'':20} {'wall s best':>12} {'median':>8} {'CPU s best':>12} {'median':>8}   imports of note")
    for name, arguments in COMMANDS.items():
        wall, cpu = zip(*(seconds(arguments) for _ in range(repeats)), strict=True)
        times = f"{min(wall):12.3f} {statistics.median(wall):8.3f} {min(cpu):12.3f} {statistics.median(cpu):8.3f}"
        print(f"{name:20} {times}   {', '.join(imported(arguments)) or 'none'}")
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} CPUs")


if __name__ == "__main__":
    main()
