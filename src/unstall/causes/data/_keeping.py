"""Samples that come out the same each time, made once and kept: as an edit where all of them fit, else as advice."""

from __future__ import annotations

from unstall.causes._configured import is_library
from unstall.causes.data._input import place_of
from unstall.causes.data._reads import size
from unstall.model.finding import Line
from unstall.model.loading import LoaderUse
from unstall.model.remedy import ListItems, Remedy, Safety
from unstall.model.run import Run
from unstall.model.tables import Tables

LEAST_TWICE = 12  # samples made twice; of a flip of one sample in ten, 8 % of such sets would not show it
MOST_OF_MEMORY = 0.5  # that the samples may take; what is said of it leaves out the training
HELD_BYTES = 500  # beside a sample's own bytes: the objects of a tuple with a tensor and a number
MOST_MAKING_NS = 60_000_000_000  # before the first step; a trial waits so long beyond what it is expected to take
_FORKED = (None, "fork")  # a worker that is started otherwise is sent each tensor by itself


def come_out_the_same(use: LoaderUse) -> bool:
    """Return whether enough samples were seen twice to say that each time they are the same."""
    repeats = use.repeats
    if repeats is None or use.draws_random is not False:
        return False
    return repeats.same == repeats.samples >= min(LEAST_TWICE, use.length or LEAST_TWICE)


def keep_samples(cause: str, use: LoaderUse, run: Run, tables: Tables) -> Remedy:
    """Return the remedy that makes each sample of *use* once; its samples come out the same and have a known length.

    The list is made in the training's process, before the first step.  Workers that are forked share its memory, and need
    not be kept for it.
    """
    assert use.repeats is not None
    length, ranks = use.length or 0, max(1, tables.cores.ranks_here)
    nbytes = ranks * length * (use.repeats.nbytes + HELD_BYTES)
    making_ns = length * (use.getitem_ns or 0) // max(1, use.samples or 1)
    there = run.facts.number("machine.memory_limit_bytes") or run.facts.number("machine.memory_bytes")
    fits = there is None or nbytes < MOST_OF_MEMORY * there
    where = "in memory" if fits else "on local disk, one array mapped to memory (numpy.memmap)"
    why = (
        f"{use.repeats.samples} samples were made twice and had the same bytes, and no random number is drawn; to make "
        f"them all takes {making_ns / 1e9:.3g} s before the first step"
    )
    by_hand = _by_hand(use, run, ranks) or (
        "" if fits and making_ns <= MOST_MAKING_NS else "make them once for all runs"
    )
    edits: tuple[ListItems, ...] = ()
    place = place_of(use, run)
    if not by_hand and isinstance(place, Line):
        edits = (ListItems(place.file, place.line, "torch.utils.data.DataLoader", "dataset", 0),)
    return Remedy(
        f"{cause}#keep",
        f"Make each sample once and keep it {where}: {size(nbytes)} for all {length}",
        Safety.SAME_BITS,
        edits,
        why=f"{why}; {by_hand}" if by_hand else why,
    )


def _by_hand(use: LoaderUse, run: Run, ranks: int) -> str:
    """Return why a list cannot take the dataset's place, and what to do then; "" where it can."""
    site = use.site
    facts = run.ranks[0].facts.family("loader").get(use.number)
    batched = facts is not None and facts.flag("batched") and use.dataset != "torch.utils.data.dataset.Subset"
    if use.made_by != "DataLoader" or not site.file or site.framework or is_library(site.file):
        return "the loader is made by a library: keep them in the dataset, before it is handed over"
    if ranks > 1:
        return "each process would make all of them: keep those of its own in the dataset"
    if use.made > 1:
        return f"the loader is made anew ({use.made} times): make them before, once"
    if use.collate != "default_collate" or use.batch_size is None:
        return "what puts a batch together may change a sample in place: hand it a copy of what is kept"
    if batched:
        return "the dataset makes whole batches (__getitems__): keep what it makes them of"
    if use.workers and use.context not in _FORKED:
        return "workers that are not forked get a copy each: make them one tensor, whose memory workers share"
    return ""
