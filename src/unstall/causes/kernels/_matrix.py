"""What the name of a kernel tells of a matrix product: which numbers it multiplies, on which units of the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from unstall.model.device import Kernels
from unstall.model.ledger import Device


class Math(Enum):
    """How a kernel multiplies matrices (convolutions are products of matrices)."""

    FULL = "float32"  # every digit of it
    REDUCED = "TF32, bfloat16, float16 or less, on units for matrices"
    DOUBLE = "float64"
    NONE = "no product of matrices, or not told by the name"


@dataclass(frozen=True, slots=True)
class Units:
    """What a device can multiply faster than float32, and how much.

    Attributes:
        tf32: float32 matrices can be multiplied as TF32, without another type in the script.
        least, most: how many times faster the products become.
    """

    name: str
    tf32: bool
    least: float
    most: float


# A100: 19.5 against 156 (TF32) TFLOPS; PyTorch's notes on CUDA measure 7x for large matrices, and whole networks gain 2x
AMPERE = Units("an Ampere or later GPU", True, 2.0, 7.0)
GEFORCE = Units("a GeForce GPU", True, 1.0, 2.0)  # as many TF32 products as float32 ones; bfloat16 has twice as many
VOLTA = Units("a Volta or Turing GPU", False, 1.5, 8.0)  # V100: 15.7 against 125 (float16) TFLOPS
CDNA = Units("an AMD GPU", False, 1.5, 4.0)  # MI250X: 95.7 against 383 (bfloat16) TFLOPS, both on matrix cores
CDNA3 = Units("an AMD Instinct MI300 or later GPU", False, 1.5, 8.0)  # MI300X: 163.4 against 1307 (bfloat16) TFLOPS

_NOT = re.compile(
    r"elementwise|reduce_kernel|batch_norm|layer_norm|[nN]chwTo|nhwcTo|im2col|col2im|splitKreduce|gemv|gemmk1|"
    r"transpose|copy_kernel|multi_tensor|depthwise|softmax|attn|fmha|flash"
)
_TENSILE = re.compile(r"Cijk_[A-Za-z]+_[A-Za-z]+_([A-Z0-9]+)_(MX_)?")  # rocBLAS and hipBLASLt: indices, then types
_DOUBLE = re.compile(r"dgemm|_d884|zgemm|<double|f64f64")
_REDUCED = re.compile(
    r"tensorop|tf32|bf16|bfloat16|f16|fp16|half|fp8|e4m3|e5m2|i8|int8|wmma|hmma|gmma|"
    r"[hsi]\d{3,6}gemm|s884|s1688|s16816|nvjet|tensor\d+x\d+x\d+",
    re.IGNORECASE,
)
_FULL = re.compile(
    r"sgemm|scudnn|_ffma|simt_s|f32f32_f32f32_f32|_fp32_|[dw]grad\w*_engine<float|fprop\w*_engine<float|gemmSN_\w+<float|"
    r"winograd\w*(?:<float|.*fp32)",
    re.IGNORECASE,
)
_COMPLEX = re.compile(r"cgemm")  # of a convolution by Fourier transform
_NEWER = re.compile(r"ampere|hopper|blackwell|sm_?(?:8|9|10|12)\d|cutlass_[89]\d|nvjet", re.IGNORECASE)
_OLDER = re.compile(r"volta|turing|sm_?7[05]|cutlass_7\d", re.IGNORECASE)
_AMD = re.compile(r"Cijk_|_gtcx|miopen", re.IGNORECASE)


def math_of(name: str, operator: str = "") -> Math:
    """Return how the kernel *name*, launched by *operator*, multiplies."""
    tensile = _TENSILE.search(name)
    if tensile is not None:
        if tensile.group(2) or "X" in tensile.group(1):  # float32 multiplied as TF32 on the matrix cores
            return Math.REDUCED
        first = tensile.group(1)[0]
        return {"S": Math.FULL, "D": Math.DOUBLE, "Z": Math.DOUBLE, "C": Math.NONE}.get(first, Math.REDUCED)
    if _NOT.search(name):
        return Math.NONE
    if _DOUBLE.search(name):
        return Math.DOUBLE
    if _FULL.search(name) and "tf32" not in name.lower():
        mixed = re.search(r"fp16|half|bf16|bfloat16", name, re.IGNORECASE)  # 16 bits on the general units
        return Math.NONE if mixed else Math.FULL
    if _COMPLEX.search(name):
        return Math.FULL if "conv" in operator.lower() else Math.NONE
    product = re.search(r"gemm|conv|cudnn|cutlass|xmma|nvjet|matmul|fprop|dgrad|wgrad", name)
    return Math.REDUCED if product and _REDUCED.search(name) else Math.NONE


def units_of(device: str, compute: str, kernels: Iterable[Kernels]) -> Units | None:
    """Return what the device can do; None where nothing tells.

    Args:
        device: its name, as ``NVIDIA A100-SXM4-80GB``, or "".
        compute: its compute capability, as ``8.0``, or "".
        kernels: what runs on it; some names tell what they were built for.
    """
    names = [kernel.name for kernel in kernels]
    if re.search(r"Instinct|\bMI\d{2,3}|AMD", device) or any(_AMD.search(name) for name in names):
        return CDNA3 if re.search(r"MI[3-9]\d\d", device) else CDNA
    if re.search(r"GeForce|RTX \d0[5-9]0", device):
        return GEFORCE
    major = int(compute.partition(".")[0] or 0)
    if major:
        return AMPERE if major >= 8 else VOLTA if major == 7 else None
    if any(_NEWER.search(name) for name in names):
        return AMPERE
    return VOLTA if any(_OLDER.search(name) for name in names) else None


def has_tensor_cores(known: bool | None, kernels: Sequence[Kernels]) -> bool | None:
    """Return whether the device multiplies matrices faster in reduced precision; None where it cannot be told."""
    if known is not None:
        return known
    used = any(k.kind is Device.COMPUTE and math_of(k.name, k.operator) is Math.REDUCED for k in kernels)
    return True if used else None
