"""The device idles while the loop waits for its next batch.

## What it is
The input cannot keep up with the device: the loop loads its batches itself, its workers are too few or too slow, or the
storage is.

## Why it costs
What the device has no work for is lost; the model is no faster on a better device.

## How it is told
Stretches in which the device idles while the host gets a batch (waits for a worker, or makes the batch itself). A wait for
data during which the device still works through what was launched before costs nothing, and is not claimed: this is
where a trace tells more than the host's time. Where the loader itself was recorded, `data/starved-loader` and the causes
beside it tell what a batch costs and which setting mends it.

## Sources
PyTorch Performance Tuning Guide, "Enable asynchronous data loading and augmentation"; documentation of
`torch.utils.data.DataLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._device import idle_stakes, percent, where
from unstall.causes.data._input import loader_setting
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import DeviceUse, Idle, Idling
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Edit, Knob, Remedy
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

SINGLE = "_SingleProcess"  # the iterator of a DataLoader without workers, as its annotation names it

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDFFBBO|DDDDDFFBBO
    host   |wwwww.....|wwwww.....
    stream |kk...kkkkk|kk...kkkkk
"""
_IDLE = Idling(
    Idle.DATA, Phase.FETCH, Activity.WAIT_DATA, 6_000_000, 2, None,
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
)  # fmt: skip
_LOADS = replace(_IDLE, activity=Activity.LOAD, call="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
_LOADER = LoaderUse(0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 10_000_000, workers=2)


def _given(*idling: Idling, loaders: tuple[LoaderUse, ...] = ()) -> Given:
    idle = sum(row.ns for row in idling)
    use = DeviceUse(20_000_000 - idle, 20_000_000 - idle, 0, 0, idle, idling, (), (), (), (), (), 100.0, 6_000)
    parts = {(row.phase, row.activity, Device.IDLE): row.ns for row in idling}
    return Given(tables={"device": use, "device_parts": parts, "loaders": loaders})


class StarvedDevice(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        Fires(
            """
            step   |ssssssssss|ssssssssss
            main   |DDDDDFFBBO|DDDDDFFBBO
            host   |wwwwwL....|wwwwwL....
            stream |kk....kkkk|kk....kkkk
            """,
            spent_ms=6.0,
        ),
        # the loop waits 10 ms; for 4 of them the device still works
        Fires(_PICTURE, spent_ms=6.0, given=_given(_IDLE)),
        Fires(_PICTURE, spent_ms=6.0, given=_given(_LOADS)),
        Fires(_PICTURE, spent_ms=6.0, given=_given(_IDLE, loaders=(_LOADER,))),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |DDDDDFFBBO|DDDDDFFBBO
            host   |wwwww.....|wwwww.....
            stream |kkkkkkkkkk|kkkkkkkkkk
            """,
            "the loop waits for data while the device works on",
            _given(),
        ),
        Silent(_PICTURE, "the device idles while the host launches", _given(replace(_IDLE, why=Idle.HOST))),
        Silent(_PICTURE, "a wait of a hundredth of the step", _given(replace(_IDLE, ns=200_000))),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        use = tables.device
        if use is None:
            return
        rows = sorted((row for row in use.idling if row.why is Idle.DATA), key=lambda row: -row.ns)
        lost, steps = sum(row.ns for row in rows), tables.rank_steps
        if not rows or lost < LEAST_SHARE * max(1, tables.steady_ns):
            return
        fetching = sum(ns for (phase, _), ns in tables.steady_parts.items() if phase is Phase.FETCH)
        loader = _loader(tables)
        alone = _loads_alone(rows, loader)
        who = "the loop makes its batches itself" if alone else "the loop waits for its next batch"
        line = loader.site if loader is not None and loader.site.file else rows[0].line
        yield Finding(
            self.id,
            f"The device idles for {percent(lost / max(1, tables.steady_ns))} of the step while {who}.",
            where(line, rows[0].call or "the next batch", rows[0].phase), Scope.STEADY, idle_stakes(rows),
            Weight.OVERLAP, Basis.MEASURED,
            (
                Evidence("idle while the host gets a batch", lost / steps, "ns a step", "all ranks: table idle"),
                Evidence("the host gets its batch", fetching / steps, "ns a step", "all ranks: ledger FETCH"),
                Evidence("stretches of it", sum(row.gaps for row in rows) / steps, "count", "all ranks: table idle"),
            ),
            Saving(lost // steps // 2, lost // steps),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        loader, rows = _loader(tables), tables.device.idling if tables.device else ()
        workers = loader.workers if loader else None
        if _loads_alone([row for row in rows if row.why is Idle.DATA], loader):
            workers = 0
        cores = max(1, int(tables.cores.usable / max(1, tables.cores.ranks_here)))
        more = max(1, min(2 * workers or 4, cores)) if workers is not None else None
        edits: tuple[Edit, ...] = ()
        knobs: tuple[Knob, ...] = ()
        by_hand = ""
        if loader is not None and loader.made_by == "DataLoader" and more:
            how = loader_setting(loader, "num_workers", more, run, tables)
            edits, knobs = how.edits, how.knobs(more, 1, max(more, 2 * cores))
            by_hand = f" ({how.by_hand})" if how.by_hand else ""
        title = "let workers make the batches (num_workers=4)" if workers == 0 else "more workers, or cheaper batches"
        yield Remedy(
            f"{self.id}#num_workers", f"num_workers={more}" if edits else title, tables.input_safety, edits, knobs,
            f"set num_workers of the DataLoader to what the cores allow{by_hand}, with pin_memory=True and "
            "persistent_workers=True; where workers are many already, make a batch cheaper: decode less, store it ready to "
            "use, work on whole batches. A recording of the run (unstall run) tells what a batch costs and where",
        )  # fmt: skip


def _loader(tables: Tables) -> LoaderUse | None:
    """Return the loader of the training, where one was recorded."""
    training = [use for use in tables.loaders if use.trains]
    return max(training, key=lambda use: use.wait_ns, default=None)


def _loads_alone(rows: Sequence[Idling], loader: LoaderUse | None) -> bool:
    """Return whether the loop makes its batches itself."""
    if loader is not None and loader.workers is not None:
        return loader.workers == 0
    alone = sum(row.ns for row in rows if row.activity is Activity.LOAD or SINGLE in row.call)
    return alone > 0.5 * sum(row.ns for row in rows)
