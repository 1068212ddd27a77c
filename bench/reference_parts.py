"""The parts of the recorder, each called by itself, and the reference loop under the recorder in this process."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from unstall.launch import recording as recordings
from unstall.model.wire import Kind, Phase
from unstall.probes import start
from unstall.probes._around import around
from unstall.probes._recorder import Probe, Recorder
from unstall.probes.fetching import Fetching

_started: list[Recorder] = []


def recorder() -> Recorder:
    """Return the recorder of this process, started with every probe that the reference loop calls."""
    if not _started:
        folder = recordings.create("bench", tempfile.mkdtemp(), os.environ)
        recordings.write_config(folder, {})
        _started.append(start(str(folder), time.monotonic_ns(), _at_once))
    return _started[0]


def _at_once(name: str, callback: Callable[[ModuleType], None]) -> None:
    if name == "torch":
        callback(torch)


def switches() -> list[Probe]:
    """Return the probes of this process, in which the reference loop's recorder is started."""
    recorder()
    return switches_of()


def switches_of() -> list[Probe]:
    """Return the probes of this process, whoever started them."""
    return [found for found in gc.get_objects() if type(found) is Probe and found.name != "bench"]


def apart() -> list[int]:
    """Return a list of one number: CPU ns that this process has spent so far in what the recorder does in some steps only.

    That is: settling and writing what was noted, the looks at the ends of some steps and in some backward passes, and the
    record of some fetches.
    """
    of, spent = recorder(), [0]

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            before = time.thread_time_ns()
            result = call(*args, **kwargs)
            spent[0] += time.thread_time_ns() - before
            return result

        return called

    of.flush, of._tell_step = timed(of.flush), timed(of._tell_step)  # type: ignore[method-assign]
    of.at_backward = [(probe, timed(act)) for probe, act in of.at_backward]
    for name in ("before", "after"):
        setattr(Fetching, name, timed(getattr(Fetching, name)))
    return spent


def training(batch: int = 2, side: int = 4) -> Callable[[], None]:
    """Return one step of the reference loop, on images of *side* by *side*: what it calls is alike for any size."""
    recorder()
    data = TensorDataset(torch.randn(1280, 3, side, side), torch.randint(10, (1280,)))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * (side - 2) ** 2, 10)
    )
    optimizer, loader = torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=batch)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    loop = batches()

    def step() -> None:
        images, labels = next(loop)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def deep(layers: int = 170) -> Callable[[], None]:
    """Return one step of about 20 ms: many operations on small matrices, whose time varies least."""
    recorder()
    model = torch.nn.Sequential(*(torch.nn.Linear(96, 96) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(4800, 96)), batch_size=96)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    loop = batches()

    def step() -> None:
        (rows,) = next(loop)
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    return step


def parts() -> dict[str, tuple[Callable[[], object], int]]:
    """Return each part by name: the call, and how often to call it in a round."""
    of = recorder()
    accounting = of.accounting
    probe = Probe("bench", of)
    wrapped = around(probe, _nothing, _token, _nothing)

    def enter_and_leave() -> None:
        accounting.leave(accounting.enter_phase(Phase.FORWARD))
        if len(accounting.events) > 400:  # written once for many steps
            accounting.events.clear()

    def span() -> None:
        of.span(Kind.LOAD, 1, 2, "loader:0", 0, rare=True)
        if len(of._spans) > 5000:
            of._spans.clear()
            of._span_count = 0

    phases = (Phase.FETCH, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

    def enter_phases() -> None:
        for phase in phases:
            accounting.leave(accounting.enter_phase(phase))

    def close() -> None:  # a row of the usual cells; entering them is taken off below
        enter_phases()
        of.step = 500  # no step at which a probe looks at more
        of.close_step(0)
        if len(of._cut) > 60:  # settled once for many steps
            of._settle()
            of._pending.clear()

    return {
        "enter and leave": (enter_and_leave, 5000),
        "wrapper": (lambda: wrapped(1), 5000),
        "span": (span, 2000),
        "close a step": (close, 500),
        "fetch": (_fetch(), 200),
    }


def _nothing(*_: object) -> None:
    return None


def _token(*_: object) -> int:
    return 1


def _fetch() -> Callable[[], object]:
    """Return a fetch of an empty batch in the training process, as the probe of fetches sees it."""
    fetcher = _MapDatasetFetcher([0, 1], True, lambda batch: batch, False)
    return lambda: fetcher.fetch([0, 1])
