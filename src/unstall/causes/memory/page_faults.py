"""Freed memory is given back to the kernel, and taken anew, page by page, in every step.

## What it is
The C library keeps small blocks that a program frees for its next request, but maps large ones (from 32 MB on at
the latest) afresh for each request, and gives the end of its heap back once enough of it is free. A step on the CPU
frees its activations and gradients at its end, so each step begins with memory that the kernel has to give anew.

## Why it costs
The kernel hands memory out in pages of mostly 4 KB. Each page that is touched for the first time interrupts the program, is
looked for, and is filled with zeros, which the operation then overwrites. A feature map of 64 MB takes 16,384
interruptions; they also empty the caches of the processor.

## How it is told
Page faults that read nothing from a disk, the time of the training's process in the kernel, and its CPU time, read from
outside about once a second in the steady steps. A fault is taken to cost 2.5 us at most, as on a virtual machine; on
bare metal it is a fifth of that. Faults come from other work too: a file that is mapped, memory that only grows.
So this is a candidate, which trials prove. Nothing is said where the allocator has been set already, or where the
memory of the process grows as fast as it is faulted in.

## Sources
The GNU C Library Reference Manual, "Memory Allocation Tunables"; mallopt(3); getrusage(2), ``ru_minflt``. PyTorch
Performance Tuning Guide, "Switch memory allocator". Measured on 2 cores (virtual), one thread: convolutions of 16 images
with 15,000 faults a step took 110 ms, a third of it in the kernel, and 67 ms with the memory kept; smaller ones with
8,300 faults 40 ms and 22 ms; an element-wise network 54 ms and 32 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.causes._configured import trains_on_cpu
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment
from unstall.model.ledger import Ledger
from unstall.model.remedy import Remedy, Safety, SetEnvironment
from unstall.model.run import Run, Sensor
from unstall.model.tables import Kernel, Tables, Trend

FAULT_NS = 2500.0  # at most
PAGE = 4096  # bytes, where the machine does not say
LEAST_SHARE = 0.05  # of the CPU time, in the kernel for page faults
GROWS = 0.5  # of the bytes that are faulted in; memory that grows so fast is no memory taken anew
KEPT = {  # what the C library never gives back; without the first it maps blocks of 32 MB and more each time
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 35),
}
_ALLOCATOR = re.compile(r"jemalloc|tcmalloc|mimalloc")

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBBO|FFFFBBBBBO
"""
_FAULTS = Kernel(system_share=0.3, page_faults=2000.0, cpu_ns=10_000_000)


def _given(kernel: Kernel | None, grows: float = 0.0, device: str = "cpu", **facts: str) -> Given:
    known: dict[str, object] = {"machine.libc": "glibc 2.36", "parameters:0": {"devices": [device]}}
    known |= {name.replace("__", "."): fact for name, fact in facts.items()}
    trend = Trend(10_000_000, 10_000_000, 0.0, 0.0, 0.0, (), grows, 100)
    return Given(facts=known, tables={"kernel": kernel, "trend": trend})  # type: ignore[arg-type]


_PLANTED = """\
import torch
from torch import nn
{kept}
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(16, 3, 64, 64)
for step in range(80):
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_BY_HAND = """
import ctypes

libc = ctypes.CDLL(None)
libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
"""


class PageFaults(Cause):
    needs = frozenset({Sensor.STEPS})

    cases = (
        Fires(_PICTURE, 0, _given(_FAULTS)),
        Fires(_PICTURE, 0, _given(_FAULTS, env__LD_PRELOAD="libother.so")),
        Silent(_PICTURE, "the kernel's time was not observed", _given(None)),
        Silent(_PICTURE, "few pages: the kernel does something else", _given(Kernel(0.3, 100.0, 10_000_000))),
        Silent(_PICTURE, "hardly any time in the kernel: faults are cheap here", _given(Kernel(0.02, 2000.0, 10_000_000))),
        Silent(_PICTURE, "the memory grows by as much", _given(_FAULTS, grows=6_000_000.0)),
        Silent(_PICTURE, "tensors are on a GPU", _given(_FAULTS, device="cuda")),
        Silent(_PICTURE, "the allocator was set", _given(_FAULTS, env__MALLOC_TRIM_THRESHOLD_="1000000000")),
        Silent(_PICTURE, "another allocator", _given(_FAULTS, env__LD_PRELOAD="/usr/lib/libjemalloc.so.2")),
        Silent(_PICTURE, "another C library", _given(_FAULTS, machine__libc="")),
    )  # fmt: skip

    planted = (
        Planted(
            before=_PLANTED.format(kept=""),
            after=_PLANTED.format(kept=_BY_HAND),
            also=frozenset({"kernels/too-few-threads"}),
            edited=False,
            candidate=True,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Candidate]:
        kernel = tables.kernel
        if kernel is None or not trains_on_cpu(run) or not _gives_back(run):
            return
        page = run.facts.number("machine.page_bytes") or PAGE
        taken = kernel.page_faults * page
        share = min(kernel.system_share, kernel.page_faults * FAULT_NS / max(1.0, kernel.cpu_ns))
        trend = tables.trend
        grows = 0.0 if trend is None else trend.rss_bytes_per_step or 0.0
        if share < LEAST_SHARE or grows > GROWS * taken:
            return
        yield Candidate(
            self.id,
            f"Each step takes {taken / 1e6:.3g} MB anew from the kernel, page by page: about {share:.0%} of its CPU time.",
            Environment(next(iter(KEPT))),
            f"{kernel.page_faults:,.0f} page faults a step, and {kernel.system_share:.0%} of the CPU time in the kernel; "
            "`unstall fix` tries to keep the memory.",
            tuple(self._tried(run)),
        )

    def _tried(self, run: Run) -> Iterator[Remedy]:
        keep = tuple(SetEnvironment(name, value) for name, value in KEPT.items())
        why = "the process keeps the most memory that it ever used"
        yield Remedy(f"{self.id}#keep", "keep freed memory in the process", Safety.SAME_BITS, keep, (), why)
        found = run.facts.text("machine.allocator")
        if found and not run.facts.text("env.LD_PRELOAD"):
            name = found.rpartition("/")[2].partition(".")[0]
            edits = (SetEnvironment("LD_PRELOAD", found),)
            yield Remedy(f"{self.id}#preload", f"allocate with {name}", Safety.SAME_BITS, edits, (), why)


def _gives_back(run: Run) -> bool:
    """Return whether memory is allocated by the GNU C library as it comes, which gives what is freed back."""
    facts = run.facts
    is_set = any(facts.text(f"env.{name}") is not None for name in KEPT)
    tuned = "glibc.malloc" in (facts.text("env.GLIBC_TUNABLES") or "")
    other = bool(_ALLOCATOR.search(facts.text("env.LD_PRELOAD") or ""))
    return (facts.text("machine.libc") or "").startswith("glibc") and not (is_set or tuned or other)
