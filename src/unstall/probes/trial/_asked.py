"""What a trial asks of the probes that capture a training, and which parameters it updates.

The launcher writes it into config.json under ``trial``; without that key the probes `capture`, `seeding`, `shrinking`,
`lockstep` and `switching` do nothing.  Standard library only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from unstall.probes._recorder import Probe

MOST_OPTIMIZERS = 8  # kept alive to the end; a cross-validation makes new ones for each fold


@dataclass(frozen=True, slots=True)
class Asked:
    """The trial of config.json.

    Attributes:
        seed: None leaves the random numbers alone, 0 keeps the seeds that the script sets, others move them.
        shrink: batches that an epoch is cut to.
        points: steps, counted from 0, that are made in lockstep; at least 1, as the optimizers are known from then on.
        save_points, load_points: folder that the state before each point is written to or loaded from.
        ulp: not 0 moves each loaded parameter by a unit in its last place; the number decides which way. True in config.json
            is another number in each process.
    """

    seed: int | None
    shrink: int | None
    points: frozenset[int]
    save_points: str | None
    load_points: str | None
    ulp: int


def asked(config: Mapping[str, object]) -> Asked | None:
    """Return what the trial asks for; None where this is no trial."""
    trial = config.get("trial")
    if not isinstance(trial, dict):
        return None
    seed, shrink = trial.get("seed"), trial.get("shrink")
    ulp = trial.get("ulp") or 0
    save, load = trial.get("save_points"), trial.get("load_points")
    return Asked(
        seed=seed if isinstance(seed, int) else None,
        shrink=shrink if isinstance(shrink, int) and shrink > 0 else None,
        points=frozenset(point for point in trial.get("points") or () if isinstance(point, int) and point > 0),
        save_points=save if isinstance(save, str) else None,
        load_points=load if isinstance(load, str) else None,
        ulp=os.getpid() if ulp is True else ulp if isinstance(ulp, int) else 0,
    )


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """The blocks of a screening; what is what, `trials/screening.py` and `model/remedy.py` tell.

    Attributes:
        sets, reads, site: as of `Switch`. arms: its arguments, of arm 1 and those after it. order: the arm of each block.
        enough_rounds: after which a gain above *enough_gain* in each ends it; None never does.
    """

    sets: str
    reads: tuple[str, ...]
    arms: tuple[tuple[Any, ...], ...]
    order: tuple[int, ...]
    warm: int
    dropped: int
    measured: int
    enough_rounds: int | None
    enough_gain: float
    site: str = ""


def switch_plan(config: Mapping[str, object], *, of_loader: bool = False) -> SwitchPlan | None:
    """Return the plan of a screening; None where this is none, or one of the other kind.

    Raises:
        KeyError, TypeError, ValueError: When it is none of ours.
    """
    trial = config.get("trial")
    plan = trial.get("switch") if isinstance(trial, dict) else None
    if not isinstance(plan, dict):
        return None
    tuples = {name: tuple(plan[name]) for name in ("reads", "order")}
    made = SwitchPlan(**{**plan, **tuples, "arms": tuple(tuple(arm) for arm in plan["arms"])})
    return made if bool(made.site) == of_loader else None


def ablated(config: Mapping[str, object]) -> frozenset[str]:
    """Return what the trial takes away, by the names of `ablating`."""
    trial = config.get("trial")
    names = trial.get("ablate") if isinstance(trial, dict) else None
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


class Updated:
    """The optimizers that stepped on the training thread, in the order of their first steps, and their parameters."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.optimizers: list[Any] = []
        self._last: object = None
        self.recorder.in_child.append(self.forget)

    def forget(self) -> None:
        self.optimizers, self._last = [], None

    def saw(self, optimizer: Any) -> None:
        """Keep *optimizer*, and so its parameters, to the end; of more than 8 the earliest are let go."""
        if optimizer is not self._last:
            self._last = optimizer
            if all(optimizer is not known for known in self.optimizers):
                self.optimizers = [*self.optimizers, optimizer][-MOST_OPTIMIZERS:]

    def trains_here(self) -> bool:
        return self.probe.on and get_ident() == self.recorder.thread

    def parameters(self) -> list[Any]:
        """Return the parameters in the order of optimizers and groups, each once; of a distributed one what lies here."""
        found: dict[int, Any] = {}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    found.setdefault(id(parameter), parameter)
        return list(found.values())


def local(tensor: Any) -> Any:
    """Return the values of *tensor*, detached: of a distributed one the part that lies on this rank, in place."""
    detached = tensor.detach()
    return detached.to_local() if hasattr(detached, "to_local") else detached


def pieces(tensor: Any) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, by its logical order; it is brought to the host first."""
    tensor = local(tensor).cpu().contiguous()
    size = tensor.numel() * tensor.element_size()
    if size:
        yield memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def write_bytes(path: str, tensor: Any) -> None:
    """Write the bytes of *tensor* to *path*, without a head.

    Raises:
        OSError: When the disk is full.
    """
    with open(path, "wb") as file:
        for piece in pieces(tensor):
            file.write(piece)


def note(probe: Probe, words: str) -> None:
    """Tell, once, what could not be reached or kept."""
    notes = probe.recorder.captured.setdefault("notes", [])
    if isinstance(notes, list) and words not in notes:
        notes.append(words)


def name_of_process() -> str:
    return f"captured-{os.getpid()}"
