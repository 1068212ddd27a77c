"""A loader whose workers are made anew between batches, now so many and now so many, by a plan drawn beforehand.

The indices of a pass are drawn once, by the loader's own sampler, and handed in blocks to loaders like it with another
number of workers: the same samples in the same order, by workers that live for one block. Arm 0 has as many as the
training's own loader. Random draws in samples differ, so losses of such a training are compared with nothing.

A part that the pass ends is no block. Where no block fits into a pass, or the workers cannot be made so (an iterable dataset,
samples that are not put into batches, workers that are not forked), the loader is left alone and nothing is told. An error
ends this one training, of which nothing is told either.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import weakref
from collections.abc import Iterator
from itertools import islice
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import dataloader

from unstall.probes._around import around, is_compiling
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site
from unstall.probes.trial._asked import SwitchPlan, switch_plan
from unstall.probes.trial._blocks import Timed, is_enough, now_ns, stop, tell

AFTER = "torch"
MOST_SHORT = 4  # passes that end before one block has been made


def install(probe: Probe) -> None:
    plan = switch_plan(probe.recorder.config, of_loader=True)
    if plan is not None:
        Reloading(probe, plan)


class Reloading:
    """Finds the loader that the plan names, and hands out its batches in blocks.

    Attributes:
        mine: the loaders that were made there. batches: of them, so far. short: passes in which no block was made.
    """

    def __init__(self, probe: Probe, plan: SwitchPlan) -> None:
        self.probe, self.recorder, self.plan = probe, probe.recorder, plan
        file, _, self.line = plan.site.rpartition(":")
        self.file = os.path.normpath(file)
        self.mine: weakref.WeakSet[Any] = weakref.WeakSet()
        self.blocks: list[Timed] = []
        self.batches = self.short = 0
        self.over = False
        self.recorder.at_end.append((probe, self.end))
        loader = dataloader.DataLoader
        loader.__init__ = around(probe, loader.__init__, self.made, lambda _: None)
        loader.__iter__ = self.iterating(loader.__iter__)

    def made(self, loader: Any, *_: object, **__: object) -> None:
        site, library = call_site(3)
        file, line, _function = site.rsplit(":", 2) if site.count(":") >= 2 else ("", "", "")
        if not library and line == self.line and file.endswith(os.sep + self.file):
            self.mine.add(loader)

    def iterating(self, original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            if not self.probe.on or self.over or loader not in self.mine or get_ident() != self.recorder.thread:
                return original(loader)
            with self.probe.guard():
                why = self.unfit(loader)
                if not why:
                    return Pass(self, loader, original)
                self.give_up(why)
            return original(loader)

        return __iter__

    def unfit(self, loader: Any) -> str:
        if loader._dataset_kind == dataloader._DatasetKind.Iterable or not loader._auto_collation:
            return "its workers cannot be made anew between two batches"
        if (loader.multiprocessing_context or multiprocessing).get_start_method() != "fork":
            return "its workers are not forked, so starting them takes long"
        return "" if not is_compiling() else "it is compiled"

    def size(self) -> int | None:
        """Return of how many batches the next part of a pass is; None for all the rest."""
        if self.over:
            return None
        if self.batches < self.plan.warm:
            return self.plan.warm - self.batches
        return self.plan.dropped + self.plan.measured

    def arm(self) -> int:
        """Return the arm of the part that begins now."""
        return 0 if self.over or self.batches < self.plan.warm else self.plan.order[len(self.blocks)]

    def ended(self, block: Timed) -> None:
        self.blocks.append(block)
        tell(self.recorder)
        if len(self.blocks) == len(self.plan.order):
            self.over = True
        elif is_enough(self.blocks, len(self.plan.arms) + 1, self.plan):
            self.over = True
            stop(self.recorder)

    def passed(self, blocks: int) -> None:
        """Note that a pass is over, in which so many blocks were made."""
        self.short = 0 if blocks else self.short + 1
        if self.short == MOST_SHORT and not self.blocks:
            self.give_up("no block of batches fits into a pass over the data")
            stop(self.recorder)

    def give_up(self, because: str) -> None:
        self.recorder.captured["not_switched"] = because
        self.over = True

    def end(self) -> dict[str, object]:
        return {"blocks": self.blocks}


class Pass:
    """One pass over a loader's batches: parts of it, each from workers of its own.

    The loader draws from the training's random numbers once, as for any pass; what making later parts draws is put back.

    Attributes:
        size: batches of the present part, None for all that are left; taken: of them, so far. timed: whether it is a block.
        start_ns: since when it is timed. made: blocks in this pass.
    """

    def __init__(self, owner: Reloading, loader: Any, original: Any) -> None:
        self.owner, self.loader, self.original = owner, loader, original
        self.indices: Iterator[Any] = iter(loader._index_sampler)
        self.arm = self.start_ns = self.made = 0
        self.part = self.begin()

    def __iter__(self) -> Pass:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        while True:
            try:
                batch = next(self.part)
            except StopIteration:
                if self.size is None or self.taken < self.size:
                    self.owner.passed(self.made)
                    raise
                drawn = torch.get_rng_state()
                self.part = self.begin()
                torch.set_rng_state(drawn)
                continue
            self.took()
            return batch

    def begin(self) -> Any:
        """Return what gives the batches of the next part; its workers are started here."""
        owner = self.owner
        self.size, self.arm, self.taken = owner.size(), owner.arm(), 0
        self.timed = not owner.over and owner.batches >= owner.plan.warm
        workers = owner.plan.arms[self.arm - 1][0] if self.arm else self.loader.num_workers
        return self.original(like(self.loader, islice(self.indices, self.size), int(workers)))

    def took(self) -> None:
        owner, plan = self.owner, self.owner.plan
        owner.batches += 1
        self.taken += 1
        if self.timed and self.taken == plan.dropped:
            self.start_ns = now_ns()
        elif self.timed and self.taken == plan.dropped + plan.measured:
            self.made += 1
            owner.ended((self.arm, owner.batches - plan.measured + 1, plan.measured, now_ns() - self.start_ns))


def like(loader: Any, batches: Any, workers: int) -> Any:
    """Return a loader that gives *batches*, lists of indices, as *loader* would with so many workers."""
    of_workers: dict[str, Any] = {}
    if workers:
        of_workers = {
            "timeout": loader.timeout,
            "worker_init_fn": loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        }
    return dataloader.DataLoader(
        loader.dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        generator=loader.generator,
        **of_workers,
    )
