"""What is named first where a fault is planted: ``python bench/confusion.py {data,compiler} [--keep FILE] [--shard 1/2]``.

data: each planted data cause at three strengths (the step with the fault over the one without it) and two step times, each
with the fault and without it, and twelve healthy loaders. compiler: planted faults of compilation, healthy compiled and
eager trainings; each is run without the recorder as well, and what Dynamo counts is to be the same.

--keep FILE holds what was measured, a JSON line a training: what is there is not measured again. --shard shares the work
out over machines, each with a file; several files are read by ``--show FILE ...``. --only takes parts of the names, which
--list prints. One training at a time: the strength that a fault really had (the mean step with it and without) and the
load stand beside each, and on a busy machine neither says much.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from compiled import CONTROLS, CONTROLS_ALSO, PLANTS
from dialled import AT_START, DIALS, LIMITS, STEPS_MS, STRENGTHS, TAKES_CORES, dialled
from healthy import LOADERS

from unstall import causes
from unstall.testing.confusion import Cell, Outcome, Told, counted, from_row, matrix, summary, to_row, trained
from unstall.testing.journal import Journal, chosen, sharded

TOLD = "BENCH_TOLD"  # environment variable: the file that a compiled training writes its counts to
_COUNTS = f"""

import json as _json, os as _os
from torch._dynamo.utils import counters as _counters, get_compilation_metrics as _metrics
_all = _metrics()
_json.dump(
    {{
        "frames": len({{one.compile_id for one in _all}}),  # where no cache serves, a backward pass is listed by itself
        "graphs": _counters["stats"].get("unique_graphs", 0),
        "breaks": sum(_counters["graph_break"].values()),
        "recompiles": sum(bool(one.recompile_reason) for one in _all),
    }},
    open(_os.environ["{TOLD}"], "w"),
)
"""
COUNTED = ("frames", "graphs", "breaks", "recompiles")
AFTER = " without"  # of the key of a planted training without its fault
CANDIDATES = frozenset({"data/growing-workers"})  # planted so that they take no time: named, and without a strength


def data_cells() -> list[Cell]:
    """Return the trainings of the data causes: with the fault, without it, and the healthy ones."""
    cells = []
    for cause in DIALS:
        for strength in STRENGTHS:
            for step_ms in STEPS_MS:
                one = dialled(cause, strength, step_ms)
                key, planted = f"{cause} {strength} {step_ms:g} ms", one.planted
                cell = Cell(
                    key, strength, planted.before, cause, planted.also, one.steps, planted.candidate, one.warmup
                )
                cells.append(cell)
                without = replace(cell, key=key + AFTER, group="without the fault", source=planted.after, planted="")
                cells.append(replace(without, candidate=False))
    healthy = [
        Cell(f"healthy: {name}", "healthy loaders", source, "", steps=steps)
        for name, (source, steps) in LOADERS.items()
    ]
    return cells + healthy


def compiler_cells() -> list[Cell]:
    """Return the trainings of the compiler's causes, planted and healthy."""
    cells = []
    for cause in causes.load():
        for number, planted in enumerate(cause.planted if cause.id.startswith("compiler/") else ()):
            key = f"{cause.id} {number}"
            cells.append(Cell(key, "planted", planted.before, cause.id, planted.also, candidate=planted.candidate))
    for name, plant in PLANTS.items():
        cells.append(Cell(f"{plant.cause} {name}", "planted", plant.source, plant.cause, plant.also))
    cells += [Cell(f"control: {name}", "healthy", source, "", CONTROLS_ALSO) for name, source in CONTROLS.items()]
    return [replace(cell, source=cell.source + _COUNTS) for cell in cells]


def pair_of(cell: Cell) -> str:
    """Return the key that a training with its fault shares with the one without it."""
    return cell.key.removesuffix(AFTER)


def measured(cell: Cell, layer: str) -> Outcome:
    """Run one training; where it compiles once more without the recorder, and keep what Dynamo counted in both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[TOLD] = str(folder / "with")
        outcome, _ = trained(cell, folder)
        if layer == "data" or outcome.error:
            return outcome
        plain = {**os.environ, TOLD: str(folder / "plain")}
        subprocess.run([sys.executable, "train.py"], cwd=folder, env=plain, check=True, capture_output=True)
        counts = {
            f"{which} {what}": float(number)
            for which in ("with", "plain")
            for what, number in json.loads((folder / which).read_text()).items()
        }
        return replace(outcome, numbers={**outcome.numbers, **counts})


def is_unchanged(outcome: Outcome) -> bool:
    """Return whether Dynamo counted the same with the recorder and without."""
    return all(outcome.numbers[f"with {what}"] == outcome.numbers[f"plain {what}"] for what in COUNTED)


def line_of(outcome: Outcome) -> str:
    """Return one training's result, a line."""
    numbers = outcome.numbers
    said = f"{outcome.told.value if outcome.planted else 'healthy':8} {outcome.named} {outcome.where}"
    if outcome.planted and outcome.named == outcome.planted and not outcome.line:
        said += " (another line)"
    also = f"  blamed: {', '.join(outcome.blamed)}" if outcome.blamed else ""
    counts = "" if "with frames" not in numbers or is_unchanged(outcome) else "  COUNTS CHANGED"
    step = f"{numbers.get('mean_ms', 0):8.2f} ms  load {numbers.get('load', 0):4.1f}"
    return f"{outcome.key:52} {step}  {said}{also}{counts}{'  ' + outcome.error if outcome.error else ''}"


def ratio_of(seen: Mapping[str, Outcome], key: str) -> float | None:
    """Return how many times the step took with the fault of *key*, the loop for one of the start; None if not known.

    Time without a core is left out of both, as what the machine gave to other programs, unless the fault takes the cores.
    """
    one, without = seen.get(key), seen.get(key + AFTER)
    if one is None or without is None:
        return None
    name = "loop_ms" if one.planted in AT_START else "mean_ms"
    left_out = 0.0 if one.planted in TAKES_CORES else 1.0
    took, takes = (cell.numbers[name] * (1 - left_out * cell.numbers.get("starved", 0.0)) for cell in (one, without))
    return took / max(1e-9, takes)


def raised() -> str:
    """Return where a fault cannot be as small or as large as asked for: there the step without it is longer, or it is weak."""
    cells = [(cause, strength, ms) for cause in DIALS for strength in STRENGTHS for ms in STEPS_MS]
    told = [(*cell, dialled(*cell).rest_ms) for cell in cells]
    longer = [f"{cause} {strength}: {rest:g} ms" for cause, strength, ms, rest in told if rest > ms]
    limits = [f"{cause}: {limit}" for cause, limit in LIMITS.items()]
    longer = [
        "the step without the fault is longer, as the fault or the hand-over of a batch cannot be so small:",
        *longer,
    ]
    return "\n  ".join(longer) + "\n" + "\n  ".join(["what such a fault can have at most:", *limits])


def strengths(outcomes: Sequence[Outcome]) -> str:
    """Return by strength how many times the step was to take with the fault, and took."""
    seen = {one.key: one for one in outcomes}
    lines = []
    for strength, aimed in STRENGTHS.items():
        ratios = [
            ratio_of(seen, one.key) for one in outcomes if one.group == strength and one.planted not in CANDIDATES
        ]
        took = [ratio for ratio in ratios if ratio is not None]
        if took:
            low, middle, high = np.quantile(took, (0.1, 0.5, 0.9))
            lines.append(f"{strength:22} aimed at {aimed:.3g}x the step, was {middle:.2f}x ({low:.2f}x to {high:.2f}x)")
    return "\n".join([*lines, raised()]) if lines else ""


def grid(outcomes: Sequence[Outcome]) -> str:
    """Return how each cause was told in each cell, with how many times the step really took there."""
    seen = {one.key: one for one in outcomes}
    columns = [f"{strength} {step_ms:g} ms" for strength in STRENGTHS for step_ms in STEPS_MS]
    lines = []
    for cause in DIALS:
        keys = [f"{cause} {column}" for column in columns]
        if any(key in seen for key in keys):
            lines.append(f"{cause:28} " + "  ".join(f"{_in_grid(seen, key):13}" for key in keys))
    return "\n".join([" " * 29 + "  ".join(f"{column:13}" for column in columns), *lines]) if lines else ""


def _in_grid(seen: Mapping[str, Outcome], key: str) -> str:
    if key not in seen:
        return "-"
    word = seen[key].told.value
    if seen[key].told is Told.RIGHT and not seen[key].line:
        word = "line?"
    ratio = ratio_of(seen, key)
    return f"{word:6} {'' if ratio is None else f'{ratio:.2f}x':>6}"


def unchanged(outcomes: Sequence[Outcome]) -> str:
    """Return in how many trainings Dynamo counted the same with the recorder, and where it did not."""
    compiled = [seen for seen in outcomes if "with frames" in seen.numbers]
    if not compiled:
        return ""
    lines = [
        f"graphs, breaks, recompiles unchanged by the recorder {counted(sum(map(is_unchanged, compiled)), len(compiled))}"
    ]
    for seen in compiled:
        if not is_unchanged(seen):
            pairs = (
                f"{what} {seen.numbers[f'plain {what}']:g} -> {seen.numbers[f'with {what}']:g}" for what in COUNTED
            )
            lines.append(f"  {seen.key}: {', '.join(pairs)}")
    return "\n".join(lines)


def shown(outcomes: Sequence[Outcome]) -> str:
    """Return the matrix and the counts."""
    failed = [f"{seen.key}: {seen.error}" for seen in outcomes if seen.error]
    loads = [seen.numbers.get("load", 0.0) for seen in outcomes] or [0.0]
    busy = f"load of the machine: median {np.median(loads):.1f}, most {max(loads):.1f}, on {len(os.sched_getaffinity(0))} cores"
    sound = [seen for seen in outcomes if not seen.error]
    parts = [matrix(sound), grid(sound), summary(sound), strengths(sound), unchanged(sound), *failed, busy]
    return "\n\n".join(part for part in parts if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", choices=("data", "compiler"))
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument("--show", type=Path, nargs="+", default=(), help="show these files, measure nothing")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="WORDS", help="trainings with one of these in their names"
    )
    parser.add_argument("--shard", default="1/1", metavar="PART/PARTS")
    parser.add_argument("--list", action="store_true", help="print the names, measure nothing")
    options = parser.parse_args()
    if options.show:
        rows = [row for path in options.show for row in Journal(path).rows.values()]
        print(shown([from_row(row) for row in rows]))
        return
    cells = data_cells() if options.layer == "data" else compiler_cells()
    cells = sharded(chosen(cells, options.only, lambda cell: cell.key), options.shard, pair_of)
    if options.list:
        print("\n".join(cell.key for cell in cells))
        return
    journal = Journal(options.keep)
    for cell in cells:
        if cell.key not in journal.rows:
            journal.add(cell.key, to_row(measured(cell, options.layer)))
            print(line_of(from_row(journal.rows[cell.key])), flush=True)
    print(f"\n{shown([from_row(journal.rows[cell.key]) for cell in cells])}")


if __name__ == "__main__":
    main()
