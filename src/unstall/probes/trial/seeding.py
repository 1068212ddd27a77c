"""The random numbers of a trial: a seed for a training that sets none, and other seeds than the script's where asked.

With ``"seed": k`` all generators are seeded as torch is imported, so a training that sets no seed gives the same losses in each
trial.  A seed that the script sets itself stays what it is with k = 0; with another k it is moved by k times a constant, so
that two trials differ by the seed and nothing else.  Reached: ``torch.manual_seed`` and ``torch.cuda``'s, ``torch.seed``,
``random.seed``, ``numpy.random.seed`` and ``default_rng``, and generators and seeds that a DataLoader's samplers hold.  Not
reached: other ``torch.Generator``, ``RandomState`` and ``random.Random`` objects, names that were imported from numpy before torch,
and a seed taken from the clock.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from unstall.probes._around import around, is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.trial._asked import asked, note

AFTER = "torch"
APART = 1_000_003  # a prime, so that moved seeds of one script do not meet; seeds in use are small or consecutive
RANK_APART = 7_919  # ranks of a script without seeds draw apart, as they do without us


def install(probe: Probe) -> None:
    trial = asked(probe.recorder.config)
    if trial is not None and trial.seed is not None:
        Seeding(probe, trial.seed)


class Seeding:
    """Seeds the generators, and moves the seeds that the script sets.

    Attributes:
        own: whether the script has set a seed of its own.
    """

    def __init__(self, probe: Probe, number: int) -> None:
        self.probe, self.recorder, self.number = probe, probe.recorder, number
        self.own = False
        self.inside = False  # one function of torch calls another: the seed is moved once
        self.unseeded = 0  # generators made without a seed so far
        self.moved: list[Any] = []  # generators whose seeds were moved, kept so that an id stays theirs
        self.start = 1 + number * APART + RANK_APART * int(os.environ.get("RANK") or 0)
        random.seed(self.start)
        torch.manual_seed(self.start)
        random.seed = self.setting(random.seed)
        torch.manual_seed = torch.random.manual_seed = self.setting(torch.manual_seed)
        torch.seed = torch.random.seed = self.from_nowhere(torch.manual_seed)
        for name in ("manual_seed", "manual_seed_all"):
            if hasattr(torch.cuda, name):
                moved = self.setting(getattr(torch.cuda, name))
                setattr(torch.cuda, name, moved)
                setattr(torch.cuda.random, name, moved)
        self.recorder.when("numpy.random", self.numpy)
        if number:
            loader = dataloader.DataLoader
            loader.__iter__ = around(probe, loader.__iter__, self.iterating, lambda _: None)
        self.recorder.at_end.append((probe, lambda: {"seeded": not self.own}))

    def numpy(self, module: Any) -> None:
        with self.probe.guard():
            module.seed(self.start % 2**32)
            module.seed = self.setting(module.seed, 2**32)
            module.default_rng = self.making(module.default_rng)

    def moved_by(self, seed: Any, below: int | None = None) -> Any:
        """Return the seed to use in place of the script's."""
        if not self.number:
            return seed
        if isinstance(seed, (str, bytes, bytearray)):
            return f"{seed!r}{self.number}"
        try:
            whole = int(seed) + self.number * APART
        except (TypeError, ValueError, OverflowError):
            note(self.probe, f"a seed of the type {type(seed).__name__} was left as the script sets it")
            return seed
        return whole % below if below else whole

    def mine(self) -> bool:
        """Return whether the script seeds here: not a data worker, whose seed comes from the training's generator."""
        return self.probe.on and not self.inside and self.recorder.role == "main" and not is_compiling()

    def setting(self, original: Callable[..., Any], below: int | None = None) -> Callable[..., Any]:
        """Wrap a function that sets a seed, its first argument; None there takes one from the system."""

        @functools.wraps(original)
        def seeding(*args: Any, **kwargs: Any) -> Any:
            if not self.mine():
                return original(*args, **kwargs)
            self.inside = True
            try:
                name = "a" if "a" in kwargs else "seed"  # random's and everyone else's
                seed = args[0] if args else kwargs.pop(name, None)
                if seed is None:
                    seed = self.next_start(below)
                else:
                    self.own = True
                    seed = self.moved_by(seed, below)
                return original(seed, *args[1:], **kwargs)
            finally:
                self.inside = False

        return seeding

    def from_nowhere(self, original: Callable[[int], Any]) -> Callable[[], int]:
        """Return a stand-in for ``torch.seed``, which takes a seed from the system."""

        def seed() -> int:
            self.inside, start = True, self.next_start(None)
            try:
                original(start)
            finally:
                self.inside = False
            return start

        return seed

    def next_start(self, below: int | None) -> int:
        self.unseeded += 1
        return (self.start + 104_729 * self.unseeded) % (below or 2**62)

    def making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``default_rng``: one without a seed gets its place in the order in which they are made, in each process."""

        @functools.wraps(original)
        def default_rng(seed: Any = None) -> Any:
            if not self.probe.on:
                return original(seed)
            if seed is None:
                self.unseeded += 1
                return original([self.start, self.unseeded, torch.initial_seed() % 2**63])
            if isinstance(seed, int):
                self.own = True
                return original([seed, self.number] if self.number else seed)
            if self.number:
                note(self.probe, f"numpy's default_rng({type(seed).__name__}) was left as the script seeds it")
            return original(seed)

        return default_rng

    def iterating(self, loader: Any) -> None:
        """Move the seeds of the generators that *loader* and its samplers draw from, once each."""
        batches = getattr(loader, "batch_sampler", None)
        for holder in (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)):
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator) and all(generator is not known for known in self.moved):
                self.moved.append(generator)
                generator.manual_seed(self.moved_by(generator.initial_seed()) % 2**63)
            if isinstance(holder, torch.utils.data.DistributedSampler) and all(
                holder is not known for known in self.moved
            ):
                self.moved.append(holder)
                holder.seed = self.moved_by(holder.seed)
