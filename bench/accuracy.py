"""How often unstall is right, and how far off what it predicts: ``python bench/accuracy.py [--keep FILE] [--write]``.

Runs the planted trainings of every cause for real, as they stand in its file (`bench/confusion.py` turns their strength).
Rows of the matrix are what was planted, columns what was named first; then how often the first finding was right and
named the marked line, how often a healthy script was blamed, and by the layer of the cause how far the saving that was
claimed is from the one measured between `before` and `after`, and how often its bounds hold it: as claimed, and calibrated
by all other trainings. Each is run before, after, after, before, one training at a time.

--keep FILE holds what was measured, a JSON line a training: what is there is not measured again, but for --again where the
machine was too loud for a row to count. --only takes parts of the names of causes. --shard shares the work out
over machines, each with a file; several files are read by ``--show FILE ...``. --write puts the scores into the package
(`accounts/calibration.json`), which bounds every prediction from then on.

--from-matrix FILE ... measures nothing: it reads journals of ``bench/confusion.py data``, whose cells hold what was claimed
and the step with the fault and without. Shown are, by cause, the median error of what is predicted and the coverage of the
bounds as claimed and as calibrated by all other causes; with --write their scores are put beside those of the trainings of
this bench, in the place of those of an earlier matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from confusion import AFTER

import unstall
from unstall import causes
from unstall.accounts import calibration
from unstall.model.case import Planted
from unstall.model.report import Report
from unstall.testing import predicted
from unstall.testing.claims import Claim, claim_of, whole_ms
from unstall.testing.confusion import Cell, Outcome, from_row, matrix, summary, to_row, trained
from unstall.testing.journal import Journal, chosen, sharded
from unstall.testing.predicted import Realised, by_cause, calibration_of, table

Plant = tuple[str, Planted]  # key: the cause and the number of its planted training


def plants() -> list[Plant]:
    return [(f"{cause.id} {n}", planted) for cause in causes.load() for n, planted in enumerate(cause.planted)]


def run_once(key: str, planted: Planted, has_fault: bool) -> tuple[Outcome, Report]:
    """Run *planted* with its fault or without it, in a folder of its own, so that no cache outlives the run."""
    cause = key.partition(" ")[0]
    if has_fault:
        cell = Cell(key, "planted", planted.before, cause, planted.also, candidate=planted.candidate)
    else:
        cell = Cell(f"{key} without", "without the fault", planted.after, "", planted.also)
    with tempfile.TemporaryDirectory() as folder:
        return trained(cell, Path(folder))


def claimed(report: Report, cause: str) -> Claim | None:
    """Return what the first finding of *cause* claims; None where there is none, or it claims nothing."""
    found = next((finding for finding in report.findings if finding.cause == cause), None)
    return None if found is None else claim_of(report, found)


def measured(key: str, planted: Planted) -> dict[str, object]:
    """Return the row of one planted training: what was named with the fault and without, and the claim beside the times."""
    before, report = run_once(key, planted, True)
    claim = claimed(report, before.planted)
    after, healthy = run_once(key, planted, False)
    row: dict[str, object] = {"before": to_row(before), "after": to_row(after), "claim": None}
    if claim is None:
        return row
    healthy_again, again = (run_once(key, planted, has_fault) for has_fault in (False, True))
    runs = [report, healthy, healthy_again[1], again[1]]
    first, second, third, fourth = (whole_ms(run, claim.scope) for run in runs)
    load = max(before.numbers["load"], after.numbers["load"], os.getloadavg()[0])
    busy = [run.machine_load for run in runs]
    made = Realised(claim, (first, fourth), (second, third), load, len(os.sched_getaffinity(0)))
    return {**row, "claim": predicted.to_row(made), "machine": busy}


def outcomes_of(rows: Sequence[Mapping[str, object]]) -> list[Outcome]:
    seen = [row[which] for row in rows for which in ("before", "after")]
    return [from_row(one) for one in seen if isinstance(one, dict)]


def realised_of(rows: Sequence[Mapping[str, object]]) -> list[Realised]:
    return [predicted.from_row(row["claim"]) for row in rows if isinstance(row["claim"], dict)]


def is_left_out(row: Mapping[str, object]) -> bool:
    return not all(one.is_sound for one in realised_of([row]))


def line_of(row: Mapping[str, object]) -> str:
    """Return one training's result, a line."""
    before, after = outcomes_of([row])
    line = "" if before.line or before.named != before.planted else " (another line)"
    blamed = f"  without the fault: {', '.join(after.blamed)}" if after.blamed else ""
    said = "nothing claimed"
    for one in realised_of([row]):
        low, high = one.claim.left_ms
        said = f"{one.claim.whole_ms:.1f} -> {low:.1f} to {high:.1f} ms claimed, {one.measured_ms:.1f} measured"
        runs = "; ".join(" and ".join(f"{ms:.1f}" for ms in times) for times in (one.before_ms, one.after_ms))
        said += "" if one.agrees else f" (two runs each: {runs})"
        said += "" if one.is_sound else " (left out)"
    failed = f"  {before.error}{after.error}"
    return f"{before.key:36} {before.named}{line}: {said}  load {before.numbers['load']:.1f}{blamed}{failed}".rstrip()


def shown(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the matrix, the counts, and how the claims came out."""
    outcomes = outcomes_of(rows)
    failed = [f"{seen.key}: {seen.error}" for seen in outcomes if seen.error]
    return "\n\n".join([matrix(outcomes), summary(outcomes), table(realised_of(rows)), *failed])


def about() -> dict[str, object]:
    """Return the versions and the machine that scores were measured on."""
    return {
        "unstall": unstall.__version__,
        "torch": version("torch"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
    }


def write(rows: Sequence[Mapping[str, object]]) -> str:
    """Put the scores of *rows* into the package; return what was done."""
    made = calibration_of(realised_of(rows), about())
    held = json.loads(calibration.FILE.read_text())
    return put({**made, "matrix": held["matrix"]} if "matrix" in held else made)


def write_matrix(rows: Sequence[Realised]) -> str:
    """Put the scores of a matrix into the package, beside those of the planted trainings; return what was done."""
    return put({**json.loads(calibration.FILE.read_text()), "matrix": calibration_of(rows, about())})


def put(record: Mapping[str, object]) -> str:
    calibration.FILE.write_text(json.dumps(record, indent=1) + "\n")
    calibration.known.cache_clear()
    return f"{calibration.FILE}: {sum(map(len, calibration.known().by_cause.values()))} scores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument("--only", nargs="+", default=(), metavar="WORDS")
    parser.add_argument("--shard", default="1/1", metavar="PART/PARTS")
    parser.add_argument("--again", action="store_true", help="measure anew what was left out")
    parser.add_argument("--show", nargs="+", type=Path, metavar="FILE", help="measure nothing, show what is kept")
    parser.add_argument("--write", action="store_true", help="put the scores into accounts/calibration.json")
    parser.add_argument(
        "--from-matrix", nargs="+", type=Path, metavar="FILE", help="take the cells of a matrix instead"
    )
    options = parser.parse_args()
    if options.from_matrix:
        cells = [from_row(row) for path in options.from_matrix for row in Journal(path).rows.values()]
        claims = predicted.of_matrix(cells, AFTER, len(os.sched_getaffinity(0)))
        print(f"{table(claims)}\n\n{by_cause(claims)}")
        print(f"\n{write_matrix(claims)}" if options.write else "")
        return
    if options.show:
        rows = [row for path in options.show for row in Journal(path).rows.values()]
    else:
        journal = Journal(options.keep)
        mine = sharded(chosen(plants(), options.only, lambda plant: plant[0]), options.shard, lambda plant: plant[0])
        for key, planted in mine:
            if key not in journal.rows or (options.again and is_left_out(journal.rows[key])):
                journal.add(key, measured(key, planted))
                print(line_of(journal.rows[key]), flush=True)
        rows = [journal.rows[key] for key, _ in mine]
    print(f"\n{shown(rows)}")
    if options.write:
        print(f"\n{write(rows)}")


if __name__ == "__main__":
    main()
