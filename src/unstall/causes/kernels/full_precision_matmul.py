"""Matrices are multiplied in full float32, on a device that has faster units for less precision.

## What it is
The products of matrices (linear layers, attention, convolutions) take float32 inputs and use every digit of them. The units
for matrices (tensor cores, matrix cores) then do nothing, or run at their slowest rate.

## Why it costs
Data-centre GPUs multiply float32 several times faster as TF32, which keeps its range and 10 bits of its fraction, and 16-bit
types faster still. Most networks train as well with either.

## How it is told
By the names of the kernels, which tell their arithmetic (`sgemm`, `ffma`, `scudnn`; `Cijk_..._SB_` on AMD), by the types of
the inputs where they were recorded, and by what the device has. Claimed is what such kernels take of the critical path:
products beside others or beside the host cost nothing. Double precision is another matter, and kernels that tell nothing
of their arithmetic are left alone. The saving is an estimate: the products become 2 to 7 times faster as TF32 on data-centre
GPUs since Ampere (GeForce GPUs multiply TF32 no faster), 1.5 to 8 times in float16 on Volta and Turing, which have no TF32,
1.5 to 4 times in bfloat16 on AMD (8 since MI300); nothing is promised for products so small that memory or launching bounds them.

## Sources
PyTorch documentation, CUDA semantics, "TensorFloat-32" (0.11 s against 0.016 s for 10240 x 10240 on an A100), and
`torch.set_float32_matmul_precision`; NVIDIA blog, "Accelerating AI Training with NVIDIA TF32 Tensor Cores" (8x throughput on
A100); NVIDIA V100 and AMD MI200 data sheets.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import Setting, head_file, setting
from unstall.causes._device import percent, spread, total, where
from unstall.causes._models import decorating
from unstall.causes.kernels._matrix import AMPERE, CDNA, CDNA3, Math, Units, has_tensor_cores, math_of, units_of
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import DeviceUse, Kernels
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import AddCall, Named, Remedy, Safety, Switch
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

SMALL_NS = 20_000  # a product, mean; memory or launching bounds it, not multiplying
FLOATS = frozenset({"float", "float32", "torch.float32"})
OTHER_FLOATS = ("double", "float64", "Half", "BFloat16", "half", "float16", "bfloat16", "complex", "Float8")
# by the class of a framework's configuration, the outermost first: its key ("" where the type has one of its own), and values
_MIXED: dict[str, tuple[str, dict[str, str | bool]]] = {
    "TrainingArguments": ("", {"bf16": True, "fp16": True}),
    "Trainer": ("precision", {"bf16": "bf16-mixed", "fp16": "16-mixed"}),
    "Accelerator": ("mixed_precision", {"bf16": "bf16", "fp16": "fp16"}),
}

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFBBBOyyy|FFFBBBOyyy
    stream |kkkkkkkkkk|kkkkkkkkkk
"""
_SGEMM = Kernels(
    "ampere_sgemm_128x64_tn", Device.COMPUTE, 40, 8_000_000, 8_000_000, "aten::addmm",
    '[["float", [512]], ["float", [256, 1024]], ["float", [1024, 512]]]', Line("model.py", 12, "forward"),
)  # fmt: skip
_ROCM = replace(_SGEMM, name="Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", detail="")
_TF32 = replace(
    _SGEMM, name="sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_stage3_warpsize2x2x1_tensor16x8x8"
)
_PARTS = {
    (Phase.FORWARD, Activity.COMPUTE, Device.COMPUTE): 6_000_000,
    (Phase.BACKWARD, Activity.COMPUTE, Device.COMPUTE): 14_000_000,
}


def _given(*kernels: Kernels, tensor_cores: bool | None = True) -> Given:
    use = DeviceUse(
        20_000_000, 20_000_000, 0, 0, 0, (), kernels, (), (), (), (), 100.0, 6_000, tensor_cores=tensor_cores
    )
    return Given(tables={"device": use, "device_parts": _PARTS})


class FullPrecisionMatmul(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        Fires(_PICTURE, spent_ms=8.0, given=_given(_SGEMM)),
        Fires(_PICTURE, spent_ms=8.0, given=_given(_ROCM)),
        Fires(
            _PICTURE, spent_ms=8.0, given=_given(replace(_SGEMM, name="volta_sgemm_128x64_nt", detail="", line=None))
        ),
        # what runs beside other work costs nothing
        Fires(_PICTURE, spent_ms=3.0, given=_given(replace(_SGEMM, critical_ns=3_000_000))),
        Silent(_PICTURE, "the products are TF32 already", _given(_TF32)),
        Silent(_PICTURE, "the device has no such units", _given(_SGEMM, tensor_cores=False)),
        Silent(
            _PICTURE,
            "half precision, and nothing but a small product in full",
            _given(
                replace(_SGEMM, name="ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn"),
                replace(_SGEMM, critical_ns=200_000),
            ),
        ),
        Silent(
            _PICTURE, "the inputs are double precision", _given(replace(_SGEMM, detail='[["double", [64, 64]]]'))
        ),
        Silent(_PICTURE, "bfloat16 on AMD", _given(replace(_ROCM, name="Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_MT256x32x64"))),
        Silent(_PICTURE, "no product", _given(replace(_SGEMM, name="void at::native::vectorized_elementwise_kernel<4>"))),
    )  # fmt: skip

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        use = tables.device
        if use is None:
            return
        full = [kernel for kernel in use.kernels if kernel.kind is Device.COMPUTE and _is_full(kernel)]
        critical = sum(kernel.critical_ns for kernel in full)
        if critical < LEAST_SHARE * max(1, tables.steady_ns):
            return
        able = _is_able(run, use)
        worst = _worst(full)
        if able is None:
            yield Candidate(
                self.id,
                f"{percent(critical / max(1, tables.steady_ns))} of the step multiplies matrices in full float32.",
                where(worst.line, worst.operator or _short(worst.name), _phase(worst)),
                "whether the device has faster units for less precision was not recorded",
            )
        elif able:
            yield self._finding(full, worst, _units(run, use.kernels), run, tables)

    def _finding(self, full: Sequence[Kernels], worst: Kernels, units: Units, run: Run, tables: Tables) -> Finding:
        stakes = spread(sum(kernel.critical_ns for kernel in full), tables.device_parts, Device.COMPUTE)
        cost, steps = total(stakes), tables.rank_steps
        mean = sum(kernel.ns for kernel in full) / max(1, sum(kernel.count for kernel in full))
        least = units.least if mean > SMALL_NS else 1.0
        share = cost / max(1, tables.steady_ns)
        return Finding(
            self.id,
            f"{percent(share)} of the step multiplies matrices in full float32, while {units.name} has faster units.",
            where(worst.line, worst.operator or _short(worst.name), _phase(worst)),
            Scope.STEADY, stakes, Weight.ESTIMATED, Basis.MEASURED,
            (
                Evidence("products in float32 on the critical path", cost / steps, "ns a step", "all ranks: table kernels"),
                Evidence("all of them", sum(k.ns for k in full) / steps, "ns a step", "all ranks: table kernels"),
                Evidence("length of a product, mean", mean, "ns", "all ranks: table kernels"),
            ),
            Saving(int(cost / steps * (1 - 1 / least)), int(cost / steps * (1 - 1 / units.most))),
            notes=(
                f"most of it: {_short(worst.name)}",
                f"an estimate: the products become {least:g} to {units.most:g} times faster, by published rates",
            ),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        kernels = tables.device.kernels if tables.device is not None else ()
        units = _units(run, kernels)
        if units.tf32:
            file = head_file(run, tables)
            call = "torch.set_float32_matmul_precision"
            yield Remedy(
                f"{self.id}#tf32", 'torch.set_float32_matmul_precision("high")', Safety.CHANGES_TRAINING,
                (AddCall(file, call, ("high",)),) if file is not None else (),
                why="At the head of the script; convolutions have torch.backends.cudnn.allow_tf32 (on unless switched off). The "
                "parameters stay float32; products round their inputs to 10 bits, which is less than rounding elsewhere: compare "
                "a short training.",
                switch=Switch(call, ("torch.get_float32_matmul_precision",), ("high",)) if file is not None else None,
            )  # fmt: skip
        half = "bfloat16" if units.tf32 or units in (CDNA, CDNA3) else "float16"
        mixed = _mixed(half, run, tables)
        if mixed is not None:
            why = f"{mixed.by_hand}; " if mixed.by_hand else ""
            yield Remedy(
                f"{self.id}#autocast", f"mixed precision: {mixed.name}", Safety.CHANGES_TRAINING, mixed.edits,
                why=f"{why}less memory moves as well, so other operations gain, too; compare the losses of a short training",
            )  # fmt: skip
            return
        keywords = (("dtype", Named(f"torch.{half}")),)
        edits = decorating(run, tables, "torch.autocast", ("cuda",), keywords) if half == "bfloat16" else ()
        scaled = "" if half == "bfloat16" else " and torch.amp.GradScaler, since small gradients vanish in float16"
        yield Remedy(
            f"{self.id}#autocast", f"mixed precision with torch.autocast (dtype=torch.{half})", Safety.CHANGES_TRAINING, edits,
            why=f'Wrap forward and loss in torch.autocast("cuda", dtype=torch.{half}){scaled}. Less memory moves as well, so '
            "other operations gain, too. Compare the losses of a short training."
            + (" The edit puts it on forward alone: a loss outside of it is given bfloat16." if edits else ""),
        )  # fmt: skip


def _mixed(half: str, run: Run, tables: Tables) -> Setting | None:
    """Return how the framework that trains is told to compute in *half* where it pays; None where there is none."""
    made = {facts.text("key") for facts in run.ranks[0].facts.family("configured").values()}
    owner = next((owner for owner in _MIXED if owner in made), None)
    if owner is None:
        return None
    key, values = _MIXED[owner]
    short = "bf16" if half == "bfloat16" else "fp16"
    return setting(f"{owner}.{key or short}", values[short], run, tables)


def _is_full(kernel: Kernels) -> bool:
    """Return whether the kernel multiplies float32 in full, as far as its name and its inputs tell."""
    if math_of(kernel.name, kernel.operator) is not Math.FULL:
        return False
    types = _types(kernel.detail)
    return not types or (bool(types & FLOATS) and not any(other in name for name in types for other in OTHER_FLOATS))


def _types(detail: str) -> frozenset[str]:
    """Return the types of an operator's inputs, as the trace names them; none where they were not recorded."""
    try:
        inputs = json.loads(detail) if detail.startswith("[") else []
    except ValueError:  # cut short
        return frozenset()
    return frozenset(str(one[0]) for one in inputs if isinstance(one, list) and one and one[0])


def _worst(full: Sequence[Kernels]) -> Kernels:
    """Return the kernel to name: of the line, or the operator, with the most critical time its longest."""
    spent: defaultdict[object, int] = defaultdict(int)
    for kernel in full:
        spent[_at(kernel)] += kernel.critical_ns
    return max(full, key=lambda kernel: (spent[_at(kernel)], kernel.critical_ns))


def _at(kernel: Kernels) -> object:
    return (kernel.line.file, kernel.line.line) if kernel.line else kernel.operator or kernel.name


def _short(name: str) -> str:
    plain = name.removeprefix("void ").partition("<")[0].partition("(")[0]
    return plain if len(plain) <= 60 else plain[:57] + "..."


def _phase(kernel: Kernels) -> Phase:
    return Phase.BACKWARD if "ackward" in kernel.operator else Phase.FORWARD


def _is_able(run: Run, use: DeviceUse) -> bool | None:
    """Return whether the device has faster units for less precision; None where neither it nor its kernels tell."""
    facts = run.ranks[0].facts
    name, compute = facts.text("gpu.name") or "", facts.text("gpu.compute") or ""
    if use.tensor_cores is None and name:
        return units_of(name, compute, ()) is not None if compute or "AMD" in name else None
    return has_tensor_cores(use.tensor_cores, use.kernels)


def _units(run: Run, kernels: Sequence[Kernels]) -> Units:
    facts = run.ranks[0].facts
    return units_of(facts.text("gpu.name") or "", facts.text("gpu.compute") or "", kernels) or AMPERE
