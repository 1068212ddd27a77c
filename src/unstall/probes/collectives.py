"""Collectives that the training thread calls, and the process group it belongs to."""

from __future__ import annotations

from typing import Any

import torch

from unstall.model.wire import Activity, Kind
from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch.distributed.distributed_c10d"
OPERATIONS = (
    "all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "all_to_all", "all_to_all_single",
    "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send",
)  # fmt: skip


def _nbytes(args: tuple[object, ...], kwargs: dict[str, object]) -> int:
    """Return the bytes of the largest tensor that is passed by itself, 0 where none is."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    return max((tensor.numel() * tensor.element_size() for tensor in tensors), default=0)


def install(probe: Probe) -> None:
    import torch.distributed as distributed
    from torch.distributed import distributed_c10d as c10d

    recorder = probe.recorder

    def observed(name: str) -> Any:
        def before(*args: object, **kwargs: object) -> tuple[int, int, str, int]:
            user, library = call_site(3)
            nbytes = _nbytes(args, kwargs)
            depth = recorder.accounting.enter_activity(Activity.COLLECTIVE)
            return depth, recorder.accounting.at, f"{user}|{library}", nbytes

        def after(token: tuple[int, int, str, int]) -> None:
            depth, start, caller, nbytes = token
            end = recorder.accounting.leave(depth)
            if depth < 2 or recorder.accounting.here() % len(Activity) != Activity.COLLECTIVE:  # not inside another
                recorder.span(Kind.COLLECTIVE, start, end, f"{name}|{caller}", nbytes)

        return around(probe, getattr(c10d, name), before, after)

    def joining(*args: object, **kwargs: object) -> None:
        recorder.adopt()

    def joined(_: None) -> None:
        if c10d.is_initialized():
            recorder.fact({"rank": c10d.get_rank(), "world_size": c10d.get_world_size(), "backend": c10d.get_backend()})

    for name in OPERATIONS:
        if hasattr(c10d, name):
            wrapped = observed(name)
            setattr(c10d, name, wrapped)
            if hasattr(distributed, name):
                setattr(distributed, name, wrapped)
    wrapped = around(probe, c10d.init_process_group, joining, joined)
    c10d.init_process_group = distributed.init_process_group = wrapped
