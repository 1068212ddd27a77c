"""Batches are copied from ordinary (pageable) memory, so the copy holds the host and overlaps nothing.

## What it is
`x.to("cuda")` of a tensor in ordinary memory, or `.cpu()` into it. The device can copy by itself only from memory that
the system has promised not to move (pinned); other memory is copied through a small pinned buffer, piece by piece, by the
host.

## Why it costs
The host is held until the copy is done and cannot launch ahead; the device copies while it has nothing else to do.
The bandwidth is about half of what pinned memory gives.

## How it is told
Copies between host and device whose name says Pageable; where the profiler does not say what memory it was (AMD), those
that hold the host for as long as they take on the device. Claimed is the time in which the device does nothing but this
copy, and that in which it idles while the host is held in the call. A copy that hides behind kernels costs nothing and
is not told, and neither are copies of a few bytes, which read a value back (`host/sync-every-step`).

## Sources
PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory()"; NVIDIA blog, "How to Optimize Data Transfers in
CUDA C/C++" (pageable memory at about half of the bandwidth of pinned memory).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._device import Parts, idle_stakes, merged, percent, spread, total, where
from unstall.causes.data._input import loader_setting
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import Copies, DeviceUse, Idle, Idling
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

SMALL = 4096  # bytes a copy, mean; what reads a value back copies less
SAVED_LOW = 0.5  # twice the bandwidth, and nothing hidden

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFFBBBO|FFFFFFBBBO
    host   |mmm.......|mmm.......
    stream |.hh.kkkkkk|.hh.kkkkkk
"""
_COPY = Copies(
    "Memcpy HtoD (Pageable -> Device)", 2, 4_000_000, 4_000_000, 6_000_000, 1 << 25, Phase.FORWARD, "aten::to",
    Line("train.py", 25, "main", "x = x.to(device)"),
)  # fmt: skip
_OTHER = replace(_COPY, name="Memcpy HtoD (Host -> Device)", line=None)
_STAGED = Idling(Idle.SYNC, Phase.FORWARD, Activity.COPY, 2_000_000, 2, None, "cudaMemcpyAsync")
_PARTS = {
    (Phase.FORWARD, Activity.COPY, Device.COPY): 4_000_000,
    (Phase.FORWARD, Activity.COPY, Device.IDLE): 2_000_000,
}


def _given(*copies: Copies, idling: tuple[Idling, ...] = (_STAGED,)) -> Given:
    use = DeviceUse(16_000_000, 12_000_000, 0, 4_000_000, 4_000_000, idling, (), copies, (), (), (), 100.0, 6_000)
    return Given(tables={"device": use, "device_parts": _PARTS})


class PageableCopy(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        # 2 ms of copying on the device, and 1 ms in which the host fills the buffer, a step
        Fires(_PICTURE, spent_ms=6.0, given=_given(_COPY)),
        Fires(_PICTURE, spent_ms=6.0, given=_given(_OTHER)),
        Fires(_PICTURE, spent_ms=4.0, given=_given(_COPY, idling=())),
        Silent(_PICTURE, "the memory is pinned", _given(replace(_COPY, name="Memcpy HtoD (Pinned -> Device)"))),
        Silent(_PICTURE, "it does not hold the host", _given(replace(_OTHER, host_ns=40_000))),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFFFFBBBO|FFFFFFBBBO
            host   |mmm.......|mmm.......
            stream |kkkkkkkkkk|kkkkkkkkkk
            copies |.hh.......|.hh.......
            """,
            "it hides behind kernels that were launched before",
            _given(replace(_COPY, exposed_ns=0), idling=()),
        ),
        Silent(
            _PICTURE,
            "a value is read back",
            _given(replace(_COPY, name="Memcpy DtoH (Device -> Pageable)", operator="aten::item", nbytes=8)),
        ),
        Silent(
            _PICTURE,
            "a copy within the device",
            _given(replace(_COPY, name="Memcpy DtoD (Device -> Device)", host_ns=5_000_000)),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        use = tables.device
        copies = [copy for copy in use.copies if _is_held(copy)] if use is not None else []
        if use is None or not copies:
            return
        stakes = _stakes(copies, use, tables.device_parts)
        cost, steps = total(stakes), tables.rank_steps
        if cost < LEAST_SHARE * max(1, tables.steady_ns):
            return
        worst = max(copies, key=lambda copy: (copy.exposed_ns, copy.host_ns))
        nbytes, ns = sum(max(0, copy.nbytes) for copy in copies), sum(copy.ns for copy in copies)
        pageable = "Pageable" in worst.name
        rate = f", at {nbytes / ns:.2g} GB/s" if nbytes and ns else ""
        yield Finding(
            self.id,
            f"Copies {'from or to pageable memory' if pageable else 'that hold the host'} take "
            f"{percent(cost / max(1, tables.steady_ns))} of the step{rate}, and nothing overlaps them.",
            where(worst.line, worst.operator or worst.name, worst.phase), Scope.STEADY, stakes,
            Weight.TIMED, Basis.MEASURED,
            (
                Evidence("copying, the device does nothing else", sum(c.exposed_ns for c in copies) / steps, "ns a step",
                         "all ranks: table copies"),
                Evidence("the host is held in the call", sum(c.host_ns for c in copies) / steps, "ns a step",
                         "all ranks: table copies"),
                Evidence("bytes copied", nbytes / steps, "bytes a step", "all ranks: table copies"),
                Evidence("copies a step", sum(c.count for c in copies) / steps, "count", "all ranks: table copies"),
            ),
            Saving(int(SAVED_LOW * cost / steps), int(cost / steps)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        loader = max((use for use in tables.loaders if use.trains), key=lambda use: use.batches, default=None)
        edits: tuple[Edit, ...] = ()
        if loader is not None and loader.made_by == "DataLoader":
            edits = loader_setting(loader, "pin_memory", True, run, tables).edits
        yield Remedy(
            f"{self.id}#pin-memory", "pin_memory=True, and .to(device, non_blocking=True)", Safety.SAME_BITS, edits, (),
            "the same bytes arrive; give the DataLoader pin_memory=True (or pin the tensor) and pass non_blocking=True where the "
            "batch is moved. A result that is copied back with non_blocking=True may be read only after a wait",
        )  # fmt: skip


def _is_held(copy: Copies) -> bool:
    """Return whether the copy is of memory that is not pinned, and large enough to be no value that is read back."""
    if "HtoD" not in copy.name and "DtoH" not in copy.name:
        return False
    if 0 <= copy.nbytes <= SMALL * copy.count:
        return False
    return "Pageable" in copy.name or ("Pinned" not in copy.name and 0 < copy.ns <= copy.host_ns)


def _stakes(copies: Sequence[Copies], use: DeviceUse, parts: Parts) -> tuple[Stake, ...]:
    """Return the time in which the device only copies, and that in which it idles while the host is held."""
    stakes: list[Stake] = []
    left = dict(parts)
    for copy in copies:
        made = spread(copy.exposed_ns, left, Device.COPY, copy.phase)
        for stake in made:
            left[stake.phase, stake.activity, Device.COPY] -= stake.ns
        stakes += made
    for phase in sorted({copy.phase for copy in copies}):
        held = sum(max(0, copy.host_ns - copy.exposed_ns) for copy in copies if copy.phase is phase)
        rows = [row for row in use.idling if row.phase is phase and row.activity is Activity.COPY]
        stakes += idle_stakes(rows, min(held, sum(row.ns for row in rows)))
    return merged(stakes)
