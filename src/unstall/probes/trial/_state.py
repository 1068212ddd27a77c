"""The state of a training between two steps: saved to a file, and loaded in place into another process.

Parameters and optimizer state of the optimizers that have stepped, buffers of the modules that hold those parameters, and
the random states of torch (each CUDA device too), numpy and ``random``.  Learning rates, decays and betas are *not* part of it:
where a remedy changes them, that is to show.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from unstall.probes.trial._asked import Updated, local

WRAPPERS = (
    "_orig_mod.",
    "module.",
    "_fsdp_wrapped_module.",
)  # of torch.compile, DDP, FSDP: a name without them is the same
ROOM = 1 << 30  # bytes that stay free on the disk
Note = Callable[[str], None]


class NoRoom(Exception):
    """The disk has no room for the state."""


def save(path: str, updated: Updated) -> None:
    """Write the state to *path*.

    Raises:
        NoRoom: When less than a GB would stay free; nothing was written.
        OSError: When it cannot be written.
    """
    state = {
        "parameters": [host(parameter) for parameter in updated.parameters()],
        "optimizers": [states(optimizer) for optimizer in updated.optimizers],
        "buffers": {name: host(buffer) for name, buffer in buffers(updated)},
        "random": drawn(),
    }
    need = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state))
    if shutil.disk_usage(os.path.dirname(path)).free < need + ROOM:
        raise NoRoom(f"{need / 1e9:.1f} GB for a state")
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def load(path: str, updated: Updated, note: Note) -> bool:
    """Load the state that `save` wrote to *path*; return whether the parameters are of the same number and shapes."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    parameters = updated.parameters()
    saved = state["parameters"]
    if [tuple(local(one).shape) for one in parameters] != [tuple(one.shape) for one in saved]:
        return False
    with torch.no_grad():
        for parameter, values in zip(parameters, saved):
            local(parameter).copy_(values)
        for optimizer, values in zip(updated.optimizers, state["optimizers"]):
            restore(optimizer, values)
        here = dict(buffers(updated))
        for name, values in state["buffers"].items():
            if name in here and here[name].shape == values.shape:
                local(here[name]).copy_(values)
        if here.keys() != state["buffers"].keys():
            note("the modules' buffers differ in their names; those of one name were loaded")
    redraw(state["random"])
    return True


def host(tensor: Any) -> Any:
    return local(tensor).cpu().clone()


def states(optimizer: Any) -> list[dict[str, Any]]:
    """Return the optimizer's state of each of its parameters, in order; what is neither tensor nor number is left out."""
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            found.append({str(key): _plain(value) for key, value in state.items() if _is_plain(value)})
    return found


def restore(optimizer: Any, saved: list[dict[str, Any]]) -> None:
    """Set what `states` gave, in place where there is a tensor, on its device and in its data type."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, values in zip(parameters, saved):
        if not values:
            continue
        state = optimizer.state[parameter]
        for key, value in values.items():
            old = state.get(key)
            if isinstance(old, torch.Tensor):
                local(old).copy_(value) if isinstance(value, torch.Tensor) else old.fill_(value)
            elif isinstance(old, (int, float)) and isinstance(value, torch.Tensor):
                state[key] = type(old)(value.item())
            elif old is not None or not isinstance(value, torch.Tensor):
                state[key] = value
            else:
                state[key] = value.to(parameter.device)


def buffers(updated: Updated) -> Iterator[tuple[str, Any]]:
    """Yield the buffers of the modules that hold the parameters, each with a name that wrappers do not change.

    Modules are looked for among all objects of the process (some 0.1 s); an outermost one is told by the first of
    the parameters that it holds.
    """
    place = {id(parameter): at for at, parameter in enumerate(updated.parameters())}
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    roots: dict[int, Any] = {}
    for module in modules:
        if id(module) not in inner and "_parameters" in vars(module):
            held = [place[id(parameter)] for parameter in module.parameters() if id(parameter) in place]
            if held:
                roots.setdefault(min(held), module)
    seen: set[int] = set()
    for at, module in sorted(roots.items()):
        for name, buffer in module.named_buffers():
            if id(buffer) not in seen:
                seen.add(id(buffer))
                yield f"{at}:{_unwrapped(name)}", buffer


def drawn() -> dict[str, Any]:
    """Return the states of the random generators."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (
            str(kind),
            keys.tolist(),
            *(float(one) if at == 2 else int(one) for at, one in enumerate(rest)),
        )
    return states


def redraw(states: dict[str, Any]) -> None:
    """Set the random generators to what `drawn` gave."""
    torch.set_rng_state(states["torch"])
    random.setstate(_tuples(states["random"]))
    if "cuda" in states and torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(states["numpy"]))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, (list, tuple)) else value


def _unwrapped(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, torch.Tensor))


def _plain(value: Any) -> Any:
    return host(value) if isinstance(value, torch.Tensor) else value


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list):
        for one in value:
            yield from _tensors(one)
