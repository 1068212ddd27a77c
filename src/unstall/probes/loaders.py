"""Data loaders as the loop sees them: made where, how set, how long each batch was waited for or made."""

from __future__ import annotations

import functools
import json
import os
import weakref
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from torch.utils.data import dataloader

from unstall.model.wire import ACTIVITIES, Activity, Kind, Phase, cell
from unstall.probes._around import around, is_compiling
from unstall.probes._contents import Contents
from unstall.probes._recorder import Probe
from unstall.probes._samples import length_of
from unstall.probes._sites import call_site, is_users

AFTER = "torch"
# plain numbers: an enumeration's member costs a call of Python code in 3.11
LOAD, WAIT_DATA, BETWEEN, EVALUATE, FETCH, KIND_LOAD, KIND_WAIT_DATA = (
    int(Activity.LOAD),
    int(Activity.WAIT_DATA),
    int(Phase.BETWEEN),
    int(Phase.EVALUATE),
    int(Phase.FETCH),
    int(Kind.LOAD),
    int(Kind.WAIT_DATA),
)
DRAWS_UNTIL, DRAWS_ONE_IN = (
    64,
    7,
)  # draws that are timed beside the first of each pass; a prime, as bursts come in rhythms
MOST_FIRST = 32  # passes over the data whose first draw is told
LOOKS, THEN_ONE_IN = 4, 1024  # batches looked at from the start, after the very first; a look takes up to a millisecond
IN_BETWEEN = cell(BETWEEN, Activity.UNKNOWN)
_SETTINGS = ("batch_size", "num_workers", "persistent_workers", "prefetch_factor", "pin_memory", "drop_last", "timeout")


def install(probe: Probe) -> None:
    Loaders(probe)


class Loaders:
    """Numbers the loaders and times what the training thread does in them.

    Attributes:
        numbers: loader -> number.
        trains: numbers of loaders whose batch was followed by a forward with gradients.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.of_iterator: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self.sites: weakref.WeakKeyDictionary[object, tuple[str, str]] = weakref.WeakKeyDictionary()
        self.own: dict[int, tuple[str, str]] = {}  # dataset's id -> site of the loader that the user made over it
        self.count = -1
        self.times: dict[int, int] = {}  # how many loaders had each number
        self.described: dict[str, int] = {}  # what a loader is -> its number
        self.trains: set[int] = set()
        self.making = -1  # number of the loader whose iterator is being made
        self.last = -1  # number of the loader of the last batch
        self.taken: tuple[Callable[[], object], int, str] = (lambda: self, -1, "")  # its iterator, its number and name
        self.batches = 0
        self.contents: dict[int, Contents] = {}
        self.looks = Probe("contents", probe.recorder)  # what a batch may be has no end: an error ends the looks only
        self.recorder.loaders = self
        loader, iterator = dataloader.DataLoader, dataloader._BaseDataLoaderIter
        loader.__init__ = around(probe, loader.__init__, self.made, lambda _: None)
        loader.__iter__ = self.iterating(loader.__iter__)
        iterator.__next__ = self.taking(iterator.__next__)
        iterator._next_index = Drawing(probe, self).timed(iterator._next_index)
        workers = dataloader._MultiProcessingDataLoaderIter
        workers._shutdown_workers = around(probe, workers._shutdown_workers, self.before_stop, self.after_stop)

    # A subclass's __init__ calls this one too; the first site seen is the user's.
    def made(self, loader: object, *args: object, **kwargs: object) -> None:
        if loader not in self.sites:
            site, library = call_site(3)
            dataset = id(args[0] if args else kwargs.get("dataset"))
            if not library:
                self.own[dataset] = site, library
            elif dataset in self.own:  # a framework makes the user's loader anew: the user's line is to blame
                site, library = self.own[dataset]
            self.sites[loader] = site, library

    def number(self, loader: Any) -> int:
        known = self.numbers.get(loader)
        if known is None:
            what = self.describe(loader)
            key = json.dumps(what, default=str)
            known = self.described.get(key)
            if known is None or self.is_others(known, loader):  # made anew each epoch, it keeps its number
                known = self.count = self.count + 1
                self.described[key] = known
                self.recorder.fact({f"loader:{known}": what})
            self.numbers[loader] = known
            self.times[known] = times = self.times.get(known, 0) + 1
            if times > 1:
                self.recorder.fact({f"made:{known}": times})
        return known

    def is_others(self, number: int, loader: Any) -> bool:
        """Return whether a loader over other data, still alive, has *number*."""
        return any(n == number and other.dataset is not loader.dataset for other, n in self.numbers.items())

    def describe(self, loader: Any) -> dict[str, object]:
        site, library = self.sites.get(loader, ("", ""))
        dataset = loader.dataset
        context = loader.multiprocessing_context
        iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
        facts: dict[str, object] = {name: getattr(loader, name, None) for name in _SETTINGS}
        return facts | {
            "site": site,
            "library": library,
            "dataset": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
            "dataset_at": defined_at(getattr(type(dataset), "__init__", None)),
            "length": None if iterable else length_of(dataset),
            "iterable": iterable,
            "sampler": type(loader.sampler).__name__,
            "sampler_at": sampler_at(loader),
            "collate": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
            "context": context.get_start_method() if context is not None else None,
            "batched": hasattr(type(dataset), "__getitems__"),
        }

    def iterating(self, original: Any) -> Any:
        """Wrap ``DataLoader.__iter__``: remember whose iterator it is, record what making it took."""

        def before(loader: Any) -> tuple[int, int, int]:
            number = self.making = self.number(loader)
            return number, self.enter(number, WAIT_DATA), self.recorder.accounting.at

        def after(token: tuple[int, int, int]) -> None:
            number, depth, start = token
            self.making = -1
            end = self.recorder.accounting.leave(depth)
            self.recorder.span(Kind.ITER, start, end, f"loader:{number}", number, rare=True)

        timed = around(self.probe, original, before, after)

        def __iter__(loader: Any) -> Any:
            iterator = timed(loader)
            with self.probe.guard():
                self.of_iterator[iterator] = number = self.number(loader)
                if workers := getattr(iterator, "_workers", None):
                    self.recorder.fact({f"workers_of:{workers[0].pid}": [number, *(w.pid for w in workers)]})
            return iterator

        return __iter__

    def enter(self, number: int, activity: int) -> int:
        """Open the phase that a fetch from loader *number* belongs to; evaluation has loaders of its own."""
        recorder, accounting = self.recorder, self.recorder.accounting
        base, trains = accounting.base, number in self.trains
        if base // ACTIVITIES == EVALUATE and not trains:
            return accounting.enter_phase(EVALUATE, activity)
        if not recorder.begun:
            recorder.begin_loop()
        if trains and base != IN_BETWEEN:
            accounting.set_base(BETWEEN)
        return accounting.enter_phase(FETCH, activity)

    def before_stop(self, iterator: Any) -> tuple[int, int, int]:
        number = self.of_iterator.get(iterator, -1)
        return number, self.enter(number, WAIT_DATA), self.recorder.accounting.at

    def after_stop(self, token: tuple[int, int, int]) -> None:
        number, depth, start = token
        end = self.recorder.accounting.leave(depth)
        self.recorder.span(Kind.STOP, start, end, f"loader:{number}", number, rare=True)

    def before_batch(self, iterator: Any) -> tuple[int, str, int, int]:
        """Open the fetch; return when that was, the loader's name, how many batches were ready, and the kind of span."""
        current, number, name = self.taken
        if current() is not iterator:
            number = self.of_iterator.get(iterator, -1)
            name = f"loader:{number}"
            self.taken = weakref.ref(iterator), number, name
        self.last = number
        accounting, workers, trains = self.recorder.accounting, iterator._num_workers, number in self.trains
        ready = iterator._data_queue.qsize() if workers else 0
        activity = WAIT_DATA if workers else LOAD
        if not trains:
            self.recorder.wants_batch = True
        if trains and accounting.base == IN_BETWEEN:
            accounting.enter_phase(FETCH, activity)  # as `enter` would, without the call
        else:
            self.enter(number, activity)
        return accounting.at, name, ready, KIND_WAIT_DATA if workers else KIND_LOAD

    def taking(self, original: Any) -> Any:
        """Wrap ``__next__``: time it, and seldom look at what the batch holds. In one function, as it is called each step."""
        probe, recorder = self.probe, self.recorder

        @functools.wraps(original)
        def observed(iterator: Any) -> Any:
            if is_compiling() or not probe.on or get_ident() != recorder.thread:
                return original(iterator)
            depth = recorder.accounting.depth
            try:
                start, name, ready, kind = self.before_batch(iterator)
            except Exception as error:
                recorder.accounting.leave(depth)
                probe.switch_off(error)
                return original(iterator)
            try:
                batch = original(iterator)
            finally:
                try:
                    recorder.span(kind, start, recorder.accounting.leave(depth), name, ready)
                except Exception as error:
                    probe.switch_off(error)
            self.batches = count = self.batches + 1
            if count % THEN_ONE_IN == 0 or 1 < count <= 1 + LOOKS:
                self.look(batch)
            return batch

        return observed

    def look(self, batch: object) -> None:
        if self.looks.on:
            with self.looks.guard():
                contents = self.contents.setdefault(self.last, Contents())
                self.recorder.fact({f"contents:{self.last}": contents.look(batch)})

    def reached_forward(self) -> None:
        """The last batch taken reached a forward with gradients: its loader trains."""
        self.trains.add(self.last)
        self.recorder.fact({f"trains:{self.last}": True})


class Drawing:
    """Sums of the time that the training thread spends in samplers, by loader, over the draws that are timed.

    The first draw of a pass is kept apart: there a sampler shuffles all of the dataset.
    """

    def __init__(self, probe: Probe, loaders: Loaders) -> None:
        self.probe, self.loaders = probe, loaders
        self.first: dict[int, list[int]] = {}  # ns of each pass's first draw, by loader
        self.later: dict[int, list[int]] = {}  # draws after the first of a pass, and their ns

    def timed(self, original: Any) -> Any:
        probe, recorder, add = self.probe, self.loaders.recorder, self.add
        drawn = 0

        @functools.wraps(original)
        def next_index(iterator: Any) -> Any:
            nonlocal drawn
            drawn += 1
            if drawn > DRAWS_UNTIL and drawn % DRAWS_ONE_IN and iterator._num_yielded:
                return original(iterator)
            if not probe.on or get_ident() != recorder.thread:
                return original(iterator)
            start = monotonic_ns()
            index = original(iterator)
            took = monotonic_ns() - start
            try:  # as `guard` would, without its two calls: it is every step
                add(iterator, took)
            except Exception as error:
                probe.switch_off(error)
            return index

        return next_index

    def add(self, iterator: Any, took: int) -> None:
        loaders = self.loaders
        number = loaders.making if loaders.making >= 0 else loaders.last
        if not (iterator._send_idx if iterator._num_workers else iterator._num_yielded):
            first = self.first.setdefault(number, [])
            first.append(took)
            if len(first) <= MOST_FIRST or took > 2 * max(first[:MOST_FIRST]):
                self.tell(number)
            return
        later = self.later.setdefault(number, [0, 0])
        later[0] += 1
        later[1] += took
        if later[0] & (later[0] - 1) == 0 or later[0] % 4096 == 0:
            self.tell(number)

    def tell(self, number: int) -> None:
        draws, ns = self.later.get(number, (0, 0))
        told = {"first_ns": self.first.get(number, [])[:MOST_FIRST], "draws": draws, "ns": ns}
        self.loaders.recorder.fact({f"sampler:{number}": told})


def sampler_at(loader: Any) -> str:
    """Return where the loader's batch sampler or sampler begins to draw, where that is the user's code."""
    of_batches = getattr(loader, "batch_sampler", None)
    places = (defined_at(getattr(type(one), "__iter__", None)) for one in (of_batches, loader.sampler))
    return next((place for place in places if place), "")


def defined_at(function: object) -> str:
    """Return where a Python function is defined, as FILE:LINE:FUNCTION; "" for one of a library or in C."""
    code = getattr(function, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return ""
    return f"{os.path.abspath(code.co_filename)}:{code.co_firstlineno}:{code.co_name}"
