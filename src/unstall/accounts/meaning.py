"""What a call of a profiler's trace is about, told by its name: a phase, an activity, whether it is the user's code.

Shape legend: C calls, U names.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import is_users
from unstall.model.trace import Call, Trace
from unstall.model.wire import Activity, Phase

UNTOLD = -1  # a name that says nothing of the phase or of the activity

_ENGINE = r"autograd::engine::evaluate_function|torch::autograd::(AccumulateGrad|CopyBackwards)|\w+Backward\d*(_\w*)?$"
_PHASES: dict[Call, tuple[tuple[Phase, str], ...]] = {
    Call.ANNOTATION: (
        (Phase.FETCH, r"enumerate\(DataLoader\)"),
        (Phase.OPTIMIZER, r"Optimizer\.step#"),
        (Phase.BETWEEN, r"Optimizer\.zero_grad#"),
        (Phase.BACKWARD, r"[#\s]*backward\b"),
        (Phase.FORWARD, r"[#\s]*forward\b|DistributedDataParallel\.forward|FullyShardedDataParallel\.forward"),
    ),
    Call.OPERATOR: ((Phase.BACKWARD, _ENGINE),),
    Call.FRAME: (
        (Phase.FORWARD, r"nn\.Module: "),
        (
            Phase.BACKWARD,
            r"(.*/)?torch/(_tensor|autograd/__init__)\.py\(\d+\): backward$|<built-in method run_backward",
        ),
        (Phase.OPTIMIZER, r"(.*/)?torch/optim/\w+\.py\(\d+\): step$"),
        (Phase.FETCH, r"(.*/)?torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data)$"),
    ),
}
# cudaFree and the allocation of pinned memory wait for the whole device
_WAITS = (
    r"(cuda|hip|cu|xpu|mtia)\w*Synchronize|(cuda|hip)(Free|HostAlloc|MallocHost|HostMalloc|FreeHost|HostFree"
    r"|HostRegister|HostUnregister)$|cuMemHostAlloc|cuMemFreeHost"
)
_COMPILES = (
    r"dynamo_timed|_compile\.|compile_(inner|fx|file|attempt)|entire_frame_compile|inductor_compile|async_compile\."
    r"|PyCodeCache\.|CachingAutotuner\.(?!run|.*launch)|triton_compile|create_aot_dispatcher_function|backend_compile"
)
_ACTIVITIES: dict[Call, tuple[tuple[Activity, str], ...]] = {
    Call.RUNTIME: ((Activity.SYNC, _WAITS), (Activity.LAUNCH, r"")),
    Call.ANNOTATION: (
        (Activity.LOAD, r"enumerate\(DataLoader\)#_SingleProcess"),
        (Activity.WAIT_DATA, r"enumerate\(DataLoader\)"),
        (Activity.COLLECTIVE, r"gloo:|mpi:"),
        (Activity.GUARD, r"TorchDynamo Cache Lookup"),
        (Activity.COMPILE, _COMPILES),
    ),
    Call.OPERATOR: (
        (Activity.COLLECTIVE, r"gloo:|mpi:"),
        (Activity.GUARD, r"TorchDynamo Cache Lookup"),
        (Activity.COMPILE, _COMPILES),
        (Activity.COMPUTE, r""),
    ),
    Call.FRAME: (
        (Activity.LOAD, r"(.*/)?torch/utils/data/_utils/fetch\.py"),
        (
            Activity.COMPILE,
            r"(.*/)?torch/_dynamo/convert_frame\.py\(\d+\): (_compile|compile_inner|_compile_inner)$"
            r"|(.*/)?torch/_inductor/compile_fx\.py\(\d+\): compile\w*$|(.*/)?triton/compiler/compiler\.py\(\d+\): compile$",
        ),
        (Activity.GC, r"<built-in (function|method) collect\b(?! of (?!module))"),
        (Activity.IO, r"<built-in (function|method) (sleep|acquire|select|poll|read|recv|fsync|write|flush)\b"),
        (Activity.PYTHON, r""),
    ),
}
_COPIES = re.compile(r"(cuda|hip|cu)Memcpy")
_ASIDE = r"ProfilerStep[#*]|\[memory\]"  # ranges that are no work of the loop
_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.+)$")
# A frame's file is written without the folder it was imported from, so a library's is told by its first part.
_LIBRARIES = re.compile(
    r"(accelerate|apex|bitsandbytes|datasets|deepspeed|diffusers|einops|fairscale|flash_attn|fsspec"
    r"|huggingface_hub|lightning|lightning_fabric|numpy|packaging|pandas|peft|PIL|pyarrow|pytorch_lightning"
    r"|safetensors|scipy|sklearn|timm|tokenizers|torch|torchaudio|torchdata|torchmetrics|torchrec"
    r"|torchvision|tqdm|transformers|triton|wandb|xformers)$"
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """By name and kind of call.

    Attributes:
        phase, activity: int16 (len(Call), U), values of `Phase` and `Activity`, or UNTOLD.
        users: bool (U,), a frame of the user's own code.
        copies: bool (U,), a runtime call that copies.
        aside: bool (U,), a range that names a step and nothing in it.
    """

    phase: NDArray[np.int16]
    activity: NDArray[np.int16]
    users: NDArray[np.bool_]
    copies: NDArray[np.bool_]
    aside: NDArray[np.bool_]

    @classmethod
    def of(cls, trace: Trace) -> Meaning:
        """Return what the names of *trace* mean; only those that its calls use are looked at."""
        count = len(trace.names)
        phase, activity = (np.full((len(Call), count), UNTOLD, np.int16) for _ in range(2))
        users, copies, aside = (np.zeros(count, np.bool_) for _ in range(3))
        pairs = np.flatnonzero(np.bincount(trace.calls.call.astype(np.int64) * count + trace.calls.name))
        for call, name in zip(*(part.tolist() for part in np.divmod(pairs, max(1, count)))):
            text, kind = trace.names[name], Call(call)
            phase[call, name] = _first(_PHASE_PATTERNS[kind], text)
            activity[call, name] = _first(_ACTIVITY_PATTERNS[kind], text)
            users[name] |= kind is Call.FRAME and is_users_frame(text)
            copies[name] |= kind is Call.RUNTIME and bool(_COPIES.match(text))
            aside[name] |= kind is Call.ANNOTATION and bool(_ASIDE_PATTERN.match(text))
        return cls(phase, activity, users, copies, aside)


def is_users_frame(text: str) -> bool:
    """Return whether a frame as ``train.py(41): main`` is of the user's own code."""
    match = _FRAME.match(text)
    if match is None or text.startswith(("<", "nn.Module")):
        return False
    file = match["file"]
    head = re.split(r"[/\\]", file)[0].removesuffix(".py")
    return is_users(file) and not _LIBRARIES.match(head) and head not in sys.stdlib_module_names


def frame(text: str) -> tuple[str, int, str] | None:
    """Return the file, line and function that a frame as ``train.py(41): main`` names."""
    match = _FRAME.match(text)
    return (match["file"], int(match["line"]), match["function"]) if match else None


def users_frame(stack: str) -> str:
    """Return the innermost frame of the user's in a recorded stack, ``INNERMOST;...;OUTERMOST``; "" where none is."""
    return next((text for text in stack.split(";") if is_users_frame(text)), "")


Patterns = tuple[tuple[int, re.Pattern[str]], ...]


def _first(patterns: Patterns, text: str) -> int:
    return next((value for value, pattern in patterns if pattern.match(text)), UNTOLD)


def _compiled(
    table: dict[Call, tuple[tuple[Phase, str], ...]] | dict[Call, tuple[tuple[Activity, str], ...]],
) -> dict[Call, Patterns]:
    return {
        call: tuple((int(value), re.compile(pattern, re.I)) for value, pattern in table.get(call, ())) for call in Call
    }


_PHASE_PATTERNS, _ACTIVITY_PATTERNS = _compiled(_PHASES), _compiled(_ACTIVITIES)
_ASIDE_PATTERN = re.compile(_ASIDE)
