"""The planted trainings of the data causes with a dial: how long the model takes, and how much longer a step is with the fault.

The scripts are those of `causes/data`. A dial puts other numbers into their text, so that a step with the fault takes
`STRENGTHS` times what it takes without it, and adds layers to the model until the step without it takes so many
milliseconds: small ones, which another thread would not make faster. What a unit of each fault takes was measured on 2
cores (EPYC, torch 2.13) and only sets where a plant lands; the strength that it really has is measured by taking it out.
Where a fault cannot be as small as asked for, the model takes longer (`LEAST_FAULT_MS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unstall import causes
from unstall.model.case import Planted

STRENGTHS = {"mild": 1.2, "clear": 2.0, "heavy": 5.0}  # the step (the loop for a fault of the start) over that without
STEPS_MS = (1.0, 50.0)  # of a step without the fault
LAYER_MS = 0.12  # a layer of `Deep`: forward, backward, update
SECONDS = 1.5  # of steady steps in a run; stacks are sampled at 100 Hz
LEAST_STEPS, MOST_STEPS = 20, 1500

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
        rest_ms: of a step without the fault. ratio: the step with the fault over that.
        steps: that the training is to have, and a few more.
    """

    rest_ms: float
    ratio: float
    steps: int

    @property
    def fault_ms(self) -> float:
        """What the fault takes, of a step on average."""
        return self.rest_ms * (self.ratio - 1)

    @property
    def step_ms(self) -> float:
        return self.rest_ms * self.ratio

    @property
    def start_ms(self) -> float:
        """What a fault of the start takes, once."""
        return self.fault_ms * self.steps

    def times(self, unit_ms: float, least: int = 1) -> int:
        """Return how many units of *unit_ms* make the fault."""
        return max(least, round(self.fault_ms / unit_ms))


Change = tuple[str, str]  # text of the script, and what to put there
Dial = Callable[[Setting], list[Change]]


@dataclass(frozen=True, slots=True)
class Dialled:
    """A planted training at one setting.

    Attributes:
        rest_ms: what a step without the fault is to take: more than was asked for where the fault cannot be so small.
        steps: the steady steps to record. warmup: those before; as they show where None.
    """

    cause: str
    planted: Planted
    rest_ms: float
    steps: int
    warmup: int | None = None


def dialled(cause: str, strength: str, step_ms: float) -> Dialled:
    """Return the planted training of *cause* in which a step of *step_ms* takes the times of *strength* with the fault.

    Raises:
        KeyError: When there is no dial for *cause*.
    """
    to = _setting(cause, STRENGTHS[strength], step_ms)
    planted = next(one for one in causes.load() if one.id == cause).planted[0]
    changes = DIALS[cause](to)
    layers = max(1, round((to.rest_ms - _own_ms(cause, to)) / LAYER_MS))
    before, after = (_with_layers(_changed(text, changes), layers) for text in (planted.before, planted.after))
    if before == _with_layers(_changed(planted.before, []), layers) and changes:
        raise ValueError(f"{cause}: its planted training has none of the text that its dial changes")
    plant = Planted(before, after, planted.also, planted.edited, planted.candidate)
    return Dialled(cause, plant, to.rest_ms, to.steps, WARMUP.get(cause))


def _setting(cause: str, ratio: float, step_ms: float) -> Setting:
    """Return the setting nearest to what is asked for that the fault can have."""
    rest_ms = max(step_ms, LEAST_FAULT_MS.get(cause, 0.0) / (ratio - 1), HANDED_OVER_MS if cause in WITH_WORKERS else 0)
    if cause in AT_START:
        steps = max(LEAST_STEPS, round(LEAST_START_MS[cause] / (ratio - 1) / rest_ms))
        return Setting(rest_ms, ratio, steps)
    steps = min(MOST_STEPS, max(LEAST_STEPS, round(1e3 * SECONDS / (rest_ms * ratio))))
    if cause == "data/uneven-samples":
        steps = max(2 * steps, LONG_STEPS, round(2.2 * LONG_EVERY[ratio][0]))
    if cause in PERIODIC:  # a few of its periods are to be seen
        steps = max(steps, round(3.2 * RESTART_MS / (rest_ms * (ratio - 1))))
    return Setting(rest_ms, ratio, steps)


def _changed(text: str, changes: list[Change]) -> str:
    """Return *text* changed, its own model a small one, and with more passes than will be asked for."""
    for old, new in changes:
        text = text.replace(old, new)
    text = re.sub(
        r"^ *net = nn\.Sequential\(.*$", lambda line: re.sub(r"\b(512|1024)\b", "32", line[0]), text, flags=re.M
    )
    return re.sub(r"range\(\d+\):\n(\s+for \w+, \w+ in )", r"range(100_000):\n\1", text)


def _with_layers(text: str, layers: int) -> str:
    """Return *text* with *layers* more layers in its model."""
    end = max(found.end() for found in re.finditer(r"^(?:import|from) .*$", text, flags=re.M))
    text = text[:end] + _DEEP + text[end:]
    return re.sub(r"^( *)net = .*$", rf"\g<0>\n\1net = nn.Sequential(net, Deep({layers}))", text, count=1, flags=re.M)


# ---------------------------------------------------------------- one dial a cause


def costly_sampler(to: Setting) -> list[Change]:
    batches = 10 if to.fault_ms < 20 else 2  # of a pass
    index_ms = 0.00002 if to.fault_ms < 0.5 else 0.00005  # while all of them lie in the core's caches, and not
    return [("2_000_000", str(round(batches * to.fault_ms / index_ms))), ("=320", f"={32 * batches}")]


def costly_transport(to: Setting) -> list[Change]:
    batch = to.times(0.25)
    return [("batch_size=48", f"batch_size={batch}"), ("4800", str(batch * (to.steps + 40)))]


def growing_workers(to: Setting) -> list[Change]:
    return [("batch_size=50", f"batch_size={max(8, 16_000 // to.steps)}")]  # of 40,000: enough of them are copied


def inflating_chunks(to: Setting) -> list[Change]:
    batch = min(6, to.times(0.5))
    each_ms = to.fault_ms / batch
    row_ms = 0.0025 if each_ms < 0.8 else 0.003 if each_ms < 3 else 0.0044  # in the core's caches, and not
    rows = max(20, round((each_ms - 0.2) / row_ms))
    return [("batch_size=6", f"batch_size={batch}"), ("(300, 256)", f"({rows}, 256)"), ("return 300", f"return {rows}")]


def padding_waste(to: Setting) -> list[Change]:
    if to.fault_ms > 5:
        return [
            ("WIDTH = 160", f"WIDTH = {41 + to.times(0.075 if to.fault_ms < 30 else 0.055)}"),
            ("128, 512", "128, 128"),
            ("512, 128", "128, 128"),
        ]
    return [
        ("WIDTH = 160", f"WIDTH = {41 + to.times(0.0055 if to.fault_ms < 2 else 0.007)}"),
        ("128", "32"),
        ("512", "32"),
    ]


def reopened_file(to: Setting) -> list[Change]:
    batch = 8 if to.fault_ms > 4 else 2 if to.fault_ms > 0.5 else 1
    files = max(10, round((to.fault_ms / batch - 0.06) / 0.0031))
    return [
        ("TOTAL = 1000", f"TOTAL = {files}"),
        ("return 160", f"return {files}"),
        ("batch_size=8", f"batch_size={batch}"),
    ]


def repeated_preprocessing(to: Setting) -> list[Change]:
    length = 65536 if to.fault_ms > 3 else 16384 if to.fault_ms > 0.5 else 4096
    batch = to.times({65536: 1.4, 16384: 0.4, 4096: 0.18}[length])
    return [
        ("standard_normal(65536)", f"standard_normal({length})"),
        ("batch_size=8", f"batch_size={batch}"),
        ("range(192)", f"range({max(24, 10 * batch)})"),  # three passes at least
    ]


def row_by_row(to: Setting) -> list[Change]:
    row_ms = 0.0026 if to.fault_ms < 2 else 0.0037 if to.fault_ms < 8 else 0.006 if to.fault_ms < 30 else 0.009
    batch = to.times(row_ms)  # many new objects set off collections
    return [
        ("40_000", str(max(40_000, 4 * batch))),
        ("batch_size=400", f"batch_size={batch}"),
        (".split(400)", f".split({batch})"),
    ]


def slow_collate(to: Setting) -> list[Change]:
    if to.fault_ms < 20:
        return [("batch_size=16", f"batch_size={to.times(0.2 if to.fault_ms < 2 else 0.16)}")]
    # long texts rather than many: to put these together takes some time without the fault too
    return [("batch_size=16", f"batch_size={to.times(0.95)}"), ("(20 + i", "(320 + i"), ("range(640)", "range(2560)")]


def slow_get_batch(to: Setting) -> list[Change]:
    return [("(64,)", f"({to.times(0.0085)},)"), ("range(600)", "range(100_000)")]


def slow_storage(to: Setting) -> list[Change]:
    megabytes = 4 if to.step_ms > 4 else 1  # a sample: few of them, as each costs the model and the hand-over too
    batch = max(
        1, round(to.step_ms / 0.6 / megabytes)
    )  # what the eight workers can read at once is what the step takes
    return [
        ("1 << 20, 96", f"{megabytes} << 20, {96 // megabytes}"),
        ("65536", "16384"),
        ("AvgPool1d(256)", "AvgPool1d(64)"),
        ("batch_size=12", f"batch_size={batch}"),
        ("num_samples=960", f"num_samples={batch * (to.steps + 40)}"),
    ]


def slow_transform(to: Setting) -> list[Change]:
    if to.fault_ms < 1:
        return [(") * 4 for", ") for"), ("batch_size=32", f"batch_size={to.times(0.03)}")]
    return [("batch_size=32", f"batch_size={to.times(0.12)}")]


def slow_worker_start(to: Setting) -> list[Change]:
    more_ms = max(0.0, to.start_ms - IMPORTS_MS)
    return [
        ("num_workers=2", "num_workers=1"),
        ("250_000", str(1000 + round(more_ms / 0.005))),
        ("return 640", f"return {32 * (to.steps + 40)}"),
        ("self.rows[i]", "self.rows[i % len(self.rows)]"),
        ('="spawn")\n', '="spawn")  # <- fault\n'),  # where there is little to hand over
    ]


def starved_loader(to: Setting) -> list[Change]:
    return [
        ("num_workers=8", f"num_workers={max(2, round(to.ratio))}"),  # without the fault; more are another fault
        ("batch_size=4", "batch_size=2"),
        ("sleep(0.015)", f"sleep({to.fault_ms / 2e3 + 4e-5:.5f})"),
        ("return 80", f"return {2 * (to.steps + 40)}"),
    ]


def threads_in_workers(to: Setting) -> list[Change]:
    # as many threads as a server has cores; each small operation wakes all of them, and computes on two
    return [
        ("set_num_threads(8)", "set_num_threads(64)"),
        ("(self.mix @ self.mix)", f"sum(self.mix for _ in range({to.times(TEAM_MS)}))"),
        ("batch_size=16", "batch_size=1"),
        ("return 960", f"return {to.steps + 40}"),
    ]


def too_many_workers(to: Setting) -> list[Change]:
    workers = min(64, max(4, round(to.start_ms / 18)))
    cheaper = [("20_000", "1_000")] if to.rest_ms < 20 else []  # so that two workers keep up
    return [
        *cheaper,
        ("num_workers=24", f"num_workers={workers}"),
        ("return 640", f"return {8 * (to.steps + 2 * workers + 20)}"),
    ]


def uneven_samples(to: Setting) -> list[Change]:
    every, workers = LONG_EVERY[to.ratio]
    long_s = (every * to.fault_ms + (2 * workers - 1) * to.rest_ms) / 1e3  # so many are made ahead of it
    return [
        ("1024", "32"),
        ("range(6)", "range(1)"),
        ("0.4 if i % 60 == 50", f"{long_s:.4f} if i % {4 * every} == 30"),
        ("else 0.001", "else 0.0002"),
        ("num_workers=4", f"num_workers={workers}"),
        (
            "prefetch_factor=12",
            "prefetch_factor=40",
        ),  # the workers only just keep up: what is used up comes back slowly
        ("return 300", f"return {4 * (to.steps + 40)}"),
    ]


def workers_respawned(to: Setting) -> list[Change]:
    workers = 2 if to.fault_ms < 20 else 4 if to.fault_ms < 80 else 8
    batches = max(1, round(RESTART_MS * workers / 2 / to.fault_ms))  # of a pass
    return [("num_workers=2", f"num_workers={workers}"), ("return 64\n", f"return {16 * batches}\n")]


def _own_ms(cause: str, to: Setting) -> float:
    """Return what a step without the fault takes beside the layers: a small model's, and that of its batch."""
    own = OWN_MS.get(cause)
    return own(to) if own is not None else HANDED_OVER_MS - 0.6 if cause in WITH_WORKERS else 0.3


DIALS: Mapping[str, Dial] = {
    f"data/{dial.__name__.replace('_', '-')}": dial
    for dial in (
        costly_sampler, costly_transport, growing_workers, inflating_chunks, padding_waste, reopened_file,
        repeated_preprocessing, row_by_row, slow_collate, slow_get_batch, slow_storage, slow_transform, slow_worker_start,
        starved_loader, threads_in_workers, too_many_workers, uneven_samples, workers_respawned,
    )
}  # fmt: skip
# These take the cores away from the model, so that a step without a core is their doing.
TAKES_CORES = frozenset({"data/threads-in-workers", "data/too-many-workers"})
AT_START = frozenset({"data/slow-worker-start", "data/too-many-workers"})
PERIODIC = frozenset({"data/workers-respawned"})
HANDED_OVER_MS = 2.0  # a step cannot be shorter where a worker hands its batch over, beside a model on two cores
WITH_WORKERS = AT_START | PERIODIC | {
    "data/slow-storage", "data/starved-loader", "data/threads-in-workers", "data/uneven-samples",
}  # fmt: skip
# What two cores can show of a fault at most.
LIMITS = {
    "data/growing-workers": "takes memory and no time, unless that runs short: what its workers copy is 300 MB or more",
    "data/too-many-workers": "64 workers at most, which take 1 to 3 s to start",
    "data/threads-in-workers": "64 threads in each of two workers; how much they take varies by half from run to run",
}
# One batch of so many is long: more than are made ahead, so that two of them do not overlap; no multiple of the workers,
# so that all of these have their share of the long ones, and keep up where enough is made ahead.
LONG_EVERY = {1.2: (59, 2), 2.0: (29, 4), 5.0: (17, 8)}  # batches, workers
LONG_STEPS = 70  # of which 8 workers make nine each: few batches, and a long one more or less makes their mean another
WARMUP = {"data/uneven-samples": 10}  # the first long batch is waited for, however many are made ahead from then on
TEAM_MS = 0.6  # of an operation of 64 threads in each of two workers, beside the model
RESTART_MS = 60.0  # to stop two workers and start new ones
IMPORTS_MS = 1200.0  # of a worker that is spawned; 1000 on a quiet machine, and nothing is said of less
LEAST_START_MS = {"data/slow-worker-start": 1500.0, "data/too-many-workers": 300.0}
LEAST_FAULT_MS = {
    "data/costly-transport": 4.0,  # sixteen tensors
    "data/inflating-chunks": 0.5,  # to open an array of an archive at all takes 0.2
    "data/row-by-row": 0.4,  # what any loader takes to put some thirty rows together
    "data/slow-storage": 1.0,  # what eight workers take of two cores to make a batch and hand it over
    "data/starved-loader": 2.0,  # to hand a batch over takes one, so a worker gains nothing with less
    "data/threads-in-workers": 1.0,  # what teams of eight threads take for one batch
    "data/too-many-workers": 1.0,  # the hand-over of each batch takes 0.3, several times that on a busy machine,
    "data/uneven-samples": 1.0,  # and hides a fault of 0.2 on a step of 1
}
OWN_MS: Mapping[str, Callable[[Setting], float]] = {
    "data/padding-waste": lambda to: 2.5 if to.fault_ms > 5 else 0.6,
    "data/row-by-row": lambda to: 0.3 + 0.06 * to.fault_ms,
    "data/slow-collate": lambda to: 0.3 + 0.06 * to.fault_ms,
    "data/slow-get-batch": lambda to: 0.3 + 0.15 * to.fault_ms,
    "data/slow-storage": lambda to: HANDED_OVER_MS - 0.6 + 0.02 * to.step_ms,
}
