"""Plant every pair of ten faults together: is the first finding the one that saves more, and is no time given twice?

usage: python bench/pairs.py [--only CAUSE ...] [--alone]

What a fault saves is measured by taking it out alone. 57 runs of some 8 s; the load of the machine is printed beside
each, since a pair on a busy machine says little. One pair of the 45 cannot be planted (`together.IMPOSSIBLE`).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from unstall.testing.contract import train
from unstall.testing.together import FAULTS, Measured, judged, measured, pairs_of, script_with


def run(faults: tuple[str, ...], console: Console) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        found = measured(train(script_with(faults), Path(folder)))
    said = ", ".join(f"{f.cause} {f.share:.0%}" for f in found.faults)
    load = os.getloadavg()[0]
    console.print(f"load {load:.1f}  {' + '.join(faults) or 'none':60} {found.step_ns / 1e6:8.2f} ms  {said}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(FAULTS), choices=list(FAULTS), metavar="CAUSE")
    parser.add_argument("--with", dest="one", choices=list(FAULTS), metavar="CAUSE", help="only the pairs of this one")
    parser.add_argument("--alone", action="store_true", help="the faults one by one, no pairs")
    options = parser.parse_args()
    console = Console(stderr=True, soft_wrap=True)
    sound = [run((), console)]
    alone = {fault: run((fault,), console) for fault in options.only}
    sound += [run((), console) for _ in range(2)]
    usual = sorted(sound, key=lambda one: one.step_ns)[1]
    if options.alone:
        return
    table = Table("pair", "first", "saves more", "allotted", "both save", "right", "within")
    verdicts = []
    for pair in pairs_of(options.only):
        if options.one and options.one not in pair:
            continue
        verdict = judged(pair, run(pair, console), alone, usual)
        verdicts.append(verdict)
        row = [" + ".join(pair), verdict.first, verdict.larger or "alike"]
        row += [f"{ns / 1e6:.2f} ms" for ns in (verdict.allotted_ns, verdict.saved_ns)]
        table.add_row(*row, *("yes" if ok else "NO" for ok in (verdict.is_first_right, verdict.is_within)))
    Console(width=150).print(table)
    right, within = sum(v.is_first_right for v in verdicts), sum(v.is_within for v in verdicts)
    print(f"first right {right}/{len(verdicts)}, allotted within what both save {within}/{len(verdicts)}")


if __name__ == "__main__":
    main()
