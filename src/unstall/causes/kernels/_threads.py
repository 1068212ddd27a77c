"""Who set the number of intra-op threads, and how to set another: shared by the two causes about it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstall.causes._configured import is_library, set_in_script
from unstall.model.finding import Environment, Line, Where
from unstall.model.ledger import Phase
from unstall.model.remedy import AddCall, Edit, Knob, Remedy, Safety, SetEnvironment, SetKeyword, Switch
from unstall.model.run import Run
from unstall.model.tables import Tables
from unstall.model.words import count

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
IN_TORCH = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.EVALUATE)
_SETS = re.compile(r"\bset_num_threads\s*\(")
_OPERATIONS_A_TENSOR = (
    10  # kernels a step for each parameter tensor: forward, backward, update; 8 to 14 on an MLP and a ViT
)
_LEAST_OPERATIONS = 20


def threads_of(run: Run) -> int | None:
    """Return how many intra-op threads the training uses, or None where it was not observed."""
    number = run.ranks[0].facts.number("threads.intra")
    return None if number is None else int(number)


def fair_cores(tables: Tables) -> int:
    """Return the cores that fall to one rank, at least 1."""
    return max(1, int(tables.cores.usable / max(1, tables.cores.ranks_here)))


def who_set(run: Run, tables: Tables) -> Where | None:
    """Return what set the number of threads: a line, else an environment variable, else None (torch's own choice)."""
    facts = run.ranks[0].facts
    site = facts.text("threads.set_by")
    line = tables.place(site) if site else None
    if line is not None:
        return line
    for variable in VARIABLES:
        if facts.text(f"threads.{variable}") is not None or run.facts.text(f"env.{variable}") is not None:
            in_script = None if run.facts.text(f"env.{variable}") is not None else set_in_script(variable, run, tables)
            return in_script or Environment(variable)
    return None


def operation_ns(compute_ns: float, run: Run) -> float:
    """Return about how long a kernel takes: *compute_ns* of a step over the operations that its tensors suggest."""
    tensors = sum(int(facts.number("tensors") or 0) for facts in run.ranks[0].facts.family("parameters").values())
    return compute_ns / max(_LEAST_OPERATIONS, _OPERATIONS_A_TENSOR * tensors)


def set_threads(cause: str, where: Where, threads: int, most: int) -> Iterator[Remedy]:
    """Yield the remedy that makes the training use *threads* threads, at the place that is to blame."""
    edits: tuple[Edit, ...] = ()
    why = "sums are taken in another order, so losses differ by rounding"
    if isinstance(where, Line) and _SETS.search(where.code):
        edits = (SetKeyword(where.file, where.line, "torch.set_num_threads", "int", threads, 0),)
    elif isinstance(where, Environment):
        edits = (SetEnvironment(where.variable, str(threads)),)
    elif isinstance(where, Line) and not is_library(where.file):  # it sets a variable, which torch read as it came up
        edits = (AddCall(where.file, "torch.set_num_threads", (threads,)),)
        why = f"or leave the variable out: torch then takes one thread a core; {why}"
    else:
        why = f"set it to {threads}, or leave it out: torch then takes one thread a core; {why}"
    knobs = () if not edits or isinstance(edits[0], AddCall) else (Knob("int", threads, 1, most, "powers"),)
    switch = Switch("torch.set_num_threads", ("torch.get_num_threads",), (threads,)) if edits else None
    yield Remedy(f"{cause}#threads", count(threads, "intra-op thread"), Safety.SAME_MATH, edits, knobs, why, switch)
