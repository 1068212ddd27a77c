"""The planted trainings of the data causes with a dial: how long a step is, and what share of it the fault takes.

The scripts are those of `causes/data`. A dial puts other numbers into their text, so that the fault takes about so many
milliseconds a step, and adds layers to the model for the rest of the step: small ones, which another thread would not
make faster. What a unit of each fault takes was measured on 2 cores (EPYC, torch 2.13) and only sets where a plant
lands; the share that it really takes is measured by taking it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unstall import causes
from unstall.model.case import Planted

STRENGTHS = {"mild": 0.04, "clear": 0.18, "heavy": 0.55}  # share of the step, or of the run for a fault of the start
STEPS_MS = (10.0, 60.0)
LAYER_MS = 0.14  # a layer of `Deep`: forward, backward, update
SECONDS = 2.5  # of steady steps in a run; stacks are sampled at 100 Hz
LEAST_STEPS = 40
START_MS = 60.0  # to stop two workers and start new ones

_DEEP = """


class Deep(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(96, 96) for _ in range(layers)))

    def forward(self, x):
        return x + self.layers(torch.ones(96, 96)).mean()"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a dial is set to.

    Attributes:
        fault_ms, rest_ms: of a step. steps: that the training is to have, and a few more.
    """

    fault_ms: float
    rest_ms: float
    steps: int

    @property
    def step_ms(self) -> float:
        return self.fault_ms + self.rest_ms

    def times(self, unit_ms: float, least: int = 1) -> int:
        """Return how many units of *unit_ms* make the fault."""
        return max(least, round(self.fault_ms / unit_ms))


Change = tuple[str, str]  # text of the script, and what to put there
Dial = Callable[[Setting], list[Change]]


@dataclass(frozen=True, slots=True)
class Dialled:
    """A planted training at one setting; *steps*: the steady steps to record."""

    cause: str
    planted: Planted
    steps: int


def dialled(cause: str, strength: str, step_ms: float) -> Dialled:
    """Return the planted training of *cause* in which the fault takes about the share *strength* of *step_ms*.

    Raises:
        KeyError: When there is no dial for *cause*.
    """
    share, dial = STRENGTHS[strength], DIALS[cause]
    steps = max(LEAST_STEPS, round(1e3 * SECONDS / step_ms))
    fault_ms = step_ms * share
    if cause in PERIODIC:  # a few of its periods are to be seen
        steps = max(steps, round(3.2 * START_MS / fault_ms))
    setting = Setting(fault_ms, step_ms - fault_ms, steps)
    if cause in AT_START:
        setting = Setting(step_ms * steps * share / (1 - share), step_ms, steps)
    planted = next(one for one in causes.load() if one.id == cause).planted[0]
    changes = dial(setting)
    lines = max(1, round((setting.rest_ms - OWN_MS.get(cause, 0.0)) / LAYER_MS))
    before, after = (_with_layers(_changed(text, changes), lines) for text in (planted.before, planted.after))
    if before == _with_layers(planted.before, lines) and changes:
        raise ValueError(f"{cause}: its planted training has none of the text that its dial changes")
    return Dialled(cause, Planted(before, after, planted.also, planted.edited, planted.candidate), steps)


def _changed(text: str, changes: list[Change]) -> str:
    for old, new in changes:
        text = text.replace(old, new)
    return re.sub(
        r"range\(\d+\):\n(\s+for \w+, \w+ in )", r"range(1000):\n\1", text
    )  # stopped after the steps asked for


def _with_layers(text: str, layers: int) -> str:
    """Return *text* with *layers* more layers in its model."""
    end = max(found.end() for found in re.finditer(r"^(?:import|from) .*$", text, flags=re.M))
    text = text[:end] + _DEEP + text[end:]
    return re.sub(r"^( *)net = .*$", rf"\g<0>\n\1net = nn.Sequential(net, Deep({layers}))", text, count=1, flags=re.M)


# ---------------------------------------------------------------- one dial a cause


def costly_sampler(to: Setting) -> list[Change]:
    return [("2_000_000", str(to.times(0.0000085)))]  # a pass of ten batches


def costly_transport(to: Setting) -> list[Change]:
    batch = to.times(0.12)
    return [("batch_size=48", f"batch_size={batch}"), ("4800", str(batch * (to.steps + 40)))]


def growing_workers(to: Setting) -> list[Change]:
    return [("batch_size=50", f"batch_size={max(8, 16_000 // to.steps)}")]  # of 40,000: enough of them are copied


def inflating_chunks(to: Setting) -> list[Change]:
    batch = min(6, to.times(0.4))
    rows = max(8, round(300 * to.fault_ms / batch / 3.7))
    return [("batch_size=6", f"batch_size={batch}"), ("(300, 256)", f"({rows}, 256)"), ("return 300", f"return {rows}")]


def padding_waste(to: Setting) -> list[Change]:
    return [("WIDTH = 160", f"WIDTH = {41 + to.times(0.075)}"), ("128, 512", "128, 128"), ("512, 128", "128, 128")]


def reopened_file(to: Setting) -> list[Change]:
    batch = 8 if to.fault_ms > 2 else 2
    files = max(40, round((to.fault_ms / batch - 0.1) / 0.004))
    return [
        ("TOTAL = 1000", f"TOTAL = {files}"),
        ("return 160", f"return {files}"),
        ("batch_size=8", f"batch_size={batch}"),
    ]


def repeated_preprocessing(to: Setting) -> list[Change]:
    length = 65536 if to.fault_ms > 1.5 else 16384
    batch = to.times(1.7 * length / 65536)
    return [
        ("standard_normal(65536)", f"standard_normal({length})"),
        ("batch_size=8", f"batch_size={batch}"),
        ("range(192)", f"range({max(24, 12 * batch)})"),  # three passes at least
    ]


def row_by_row(to: Setting) -> list[Change]:
    batch = to.times(0.0045)
    return [("batch_size=400", f"batch_size={batch}"), ("(rows), 400", f"(rows), {batch}")]


def slow_collate(to: Setting) -> list[Change]:
    return [("batch_size=16", f"batch_size={to.times(0.2)}")]


def slow_get_batch(to: Setting) -> list[Change]:
    return [("(64,)", f"({to.times(0.012)},)"), ("range(600)", "range(100_000)")]


def slow_storage(to: Setting) -> list[Change]:
    batch = max(1, round(to.step_ms / 0.8))
    return [
        ("batch_size=12", f"batch_size={batch}"),
        ("num_workers=8", "num_workers=4"),
        ("num_samples=960", f"num_samples={batch * to.steps}"),
    ]


def slow_transform(to: Setting) -> list[Change]:
    return [("batch_size=32", f"batch_size={to.times(0.23)}")]


def slow_worker_start(to: Setting) -> list[Change]:
    return [("250_000", str(to.times(0.008))), ("return 640", f"return {32 * (to.steps + 40)}")]


def starved_loader(to: Setting) -> list[Change]:
    return [("sleep(0.015)", f"sleep({to.fault_ms / 4e3:.5f})"), ("return 80", f"return {4 * (to.steps + 40)}")]


def threads_in_workers(to: Setting) -> list[Change]:
    batch = max(1, round(to.step_ms / 1.2))
    return [("batch_size=16", f"batch_size={batch}"), ("return 960", f"return {batch * (to.steps + 40)}")]


def too_many_workers(to: Setting) -> list[Change]:
    return [
        ("num_workers=24", f"num_workers={min(32, to.times(25.0, 3))}"),
        ("return 640", f"return {8 * (to.steps + 60)}"),
    ]


def uneven_samples(to: Setting) -> list[Change]:
    long_s = (15 * to.fault_ms + 7 * to.rest_ms) / 1e3  # one batch of fifteen, and seven are made ahead of it
    return [
        ("1024", "128"),
        ("0.4 if", f"{long_s:.3f} if"),
        ("else 0.001", "else 0.0002"),
        ("return 300", f"return {4 * (to.steps + 40)}"),
    ]


def workers_respawned(to: Setting) -> list[Change]:
    return [("return 64\n", f"return {16 * max(2, round(START_MS / to.fault_ms))}\n")]


DIALS: Mapping[str, Dial] = {
    f"data/{dial.__name__.replace('_', '-')}": dial
    for dial in (
        costly_sampler, costly_transport, growing_workers, inflating_chunks, padding_waste, reopened_file,
        repeated_preprocessing, row_by_row, slow_collate, slow_get_batch, slow_storage, slow_transform, slow_worker_start,
        starved_loader, threads_in_workers, too_many_workers, uneven_samples, workers_respawned,
    )
}  # fmt: skip
AT_START = frozenset({"data/slow-worker-start", "data/too-many-workers"})
PERIODIC = frozenset({"data/workers-respawned"})
OWN_MS = {"data/padding-waste": 2.5, "data/uneven-samples": 1.0}  # a step of the script's own model
