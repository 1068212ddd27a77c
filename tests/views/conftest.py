"""Reports to look at: one of each kind that a user can get. All numbers are invented."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unstall.model.finding import (
    Abstained,
    Candidate,
    Environment,
    Evidence,
    Finding,
    Line,
    Machine,
    Saving,
    Scope,
    Stake,
    Weight,
)
from unstall.model.ledger import OUTSIDE, Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Knob, Remedy, Safety, SetEnvironment, SetKeyword
from unstall.model.report import (
    DeviceSummary,
    Job,
    Projection,
    RankSummary,
    Report,
    Share,
    StepTimes,
    Traced,
    TraceFile,
)
from unstall.model.run import Facts, Sensor

MS = 1_000_000
LOADER = "torch.utils.data.DataLoader"


def ledger_of(wall_ns: int, ranks: int = 1) -> Ledger:
    """Return a ledger with a step and the time outside it, for each rank."""
    step = wall_ns // 3
    return Ledger(
        step=np.array([0, OUTSIDE] * ranks, np.int32),
        rank=np.repeat(np.arange(ranks, dtype=np.uint8), 2),
        phase=np.array([Phase.FORWARD, Phase.STARTUP] * ranks, np.uint8),
        activity=np.array([Activity.COMPUTE, Activity.UNKNOWN] * ranks, np.uint8),
        device=np.full(2 * ranks, Device.NONE, np.uint8),
        basis=np.array([Basis.MEASURED, Basis.RESIDUAL] * ranks, np.uint8),
        ns=np.array([step, wall_ns - step] * ranks, np.int64),
        wall_R=np.full(ranks, wall_ns, np.int64),
    )


def share(name: str, ms: float, of_ms: float, *parts: Share) -> Share:
    return Share(name, round(ms * MS), ms / of_ms, parts)


STARVED = Finding(
    cause="data/starved-loader",
    title="A batch costs 168 ms, 149 of them blocked on reads, and nobody prepares it while the model works",
    where=Line("train.py", 41, "main", "loader = DataLoader(train, batch_size=64, shuffle=True)"),
    scope=Scope.STEADY,
    stakes=(Stake(Phase.FETCH, Activity.LOAD, 180 * 168 * MS),),
    weight=Weight.OVERLAP,
    basis=Basis.MEASURED,
    evidence=(
        Evidence("waiting for a batch", 168 * MS, "ns a step", "rank 0: events FETCH[212]"),
        Evidence("blocked on reads", 149 * MS, "ns", "rank 0: fetches"),
        Evidence("free cores", 1.9, "cores"),
        Evidence("a batch", 12_400_000, "bytes"),
    ),
    saving=Saving(150 * MS, 168 * MS),
    spent_ns=180 * 168 * MS,
    share=0.703,
    also=("host/hot-line at train.py:23",),
    notes=("The batch is not needed before the step before it ends",),
)
WORKERS = Remedy(
    id="data/starved-loader#workers",
    title="Let 3 workers prepare the batches: num_workers=3",
    safety=Safety.SAME_DISTRIBUTION,
    edits=(SetKeyword("train.py", 41, LOADER, "num_workers", 3, 5),),
    knobs=(Knob("num_workers", 3, 1, 8),),
    why="train.py:27 flips images",
)
SAVING = Finding(
    cause="io/checkpoint-in-loop",
    title="Every 10th step writes a checkpoint of 91 MB before it goes on",
    where=Line("src/project/training/callbacks/checkpointing.py", 118, "on_step", "torch.save(state, path)"),
    scope=Scope.PERIODIC,
    stakes=(Stake(Phase.CHECKPOINT, Activity.IO, 400 * MS),),
    weight=Weight.TIMED,
    basis=Basis.MEASURED,
    evidence=(Evidence("checkpoints", 21, "count"),),
    saving=Saving(0, 380 * MS),
    spent_ns=400 * MS,
    share=0.041,
)
BY_HAND = Remedy(
    "io/checkpoint-in-loop#rarely", "Save once an epoch", Safety.SAME_BITS, why="the state is read, not changed"
)
COMPILING = Finding(
    cause="compiler/recompile-storm",
    title="model.forward was compiled 8 times before the first steady step",
    where=Line(
        "/home/someone/projects/a-rather-long-folder-name/vision/experiments/2024/train_classifier.py",
        73,
        "main",
        "model = torch.compile(model)",
        framework="site-packages/transformers/trainer.py:2105",
        key="TrainingArguments.torch_compile",
    ),
    scope=Scope.STARTUP,
    stakes=(Stake(Phase.STARTUP, Activity.COMPILE, 41_300 * MS),),
    weight=Weight.TIMED,
    basis=Basis.MEASURED,
    evidence=(),
    saving=Saving(30_000 * MS, 36_000 * MS),
    spent_ns=41_300 * MS,
    share=0.01,
)
THREADS = Finding(
    cause="kernels/too-few-threads",
    title="Tensor work runs on 1 of 8 cores",
    where=Environment("OMP_NUM_THREADS"),
    scope=Scope.STEADY,
    stakes=(Stake(Phase.FORWARD, Activity.COMPUTE, 100 * 40 * MS),),
    weight=Weight.ESTIMATED,
    basis=Basis.MEASURED,
    evidence=(Evidence("threads of the team", 1, "threads"), Evidence("usable cores", 8, "cores")),
    saving=Saving(0, 30 * MS),
    spent_ns=100 * 40 * MS,
    share=0.62,
)
PIN = Remedy(
    "kernels/too-few-threads#environment",
    "Start with OMP_NUM_THREADS=8",
    Safety.SAME_MATH,
    (SetEnvironment("OMP_NUM_THREADS", "8"),),
)
HALF = Remedy("kernels/too-few-threads#bfloat16", "Train in bfloat16", Safety.CHANGES_TRAINING)
HOT = Finding(
    cause="host/hot-line",
    title="model.py:88 takes most of the forward pass, in torch.nn.functional.conv2d",
    where=Line("model.py", 88, "forward", "x = self.conv(x)"),
    scope=Scope.STEADY,
    stakes=(Stake(Phase.FORWARD, Activity.COMPUTE, 100 * 31 * MS),),
    weight=Weight.FALLBACK,
    basis=Basis.SAMPLED,
    evidence=(Evidence("samples", 412, "count"), Evidence("standard error", 100 * 1.4 * MS, "ns")),
    fault=False,
    spent_ns=100 * 31 * MS,
    share=0.484,
)
NOISY = Finding(
    cause="host/no-free-core",
    title="Other programs of this machine take the training thread's core for 9 ms a step",
    where=Machine("2 cores for 5 programs that want one"),
    scope=Scope.STEADY,
    stakes=(Stake(Phase.FORWARD, Activity.STARVED, 180 * 9 * MS),),
    weight=Weight.TIMED,
    basis=Basis.SAMPLED,
    evidence=(),
    spent_ns=180 * 9 * MS,
    share=0.038,
)

_STEP = (
    share("FETCH", 168, 239, share("LOAD", 168, 239, share("blocked on reads", 149, 239), share("working", 19, 239))),
    share("FORWARD", 34, 239, share("COMPUTE", 31, 239), share("PYTHON", 3, 239)),
    share("BACKWARD", 28, 239, share("COMPUTE", 28, 239)),
    share("OPTIMIZER", 4.5, 239, share("COMPUTE", 4.5, 239)),
    share("BETWEEN", 3.3, 239, share("IO", 2.4, 239), share("GC", 0.9, 239)),
    share("UNKNOWN", 1.2, 239),
)
_OUTSIDE = (share("STARTUP", 6100, 54300), share("EVALUATE", 2000, 54300), share("CHECKPOINT", 400, 54300))

STARVED_RUN = Report(
    command=("train.py", "--epochs", "1"),
    exit_code=0,
    stopped_by_us=False,
    stop_reason="",
    wall_ns=54_300 * MS,
    rank_wall_ns=(54_300 * MS,),
    steps=212,
    steady_steps=180,
    warmup_steps=32,
    step_ns=StepTimes(228 * MS, 239 * MS, 260 * MS),
    step_parts=_STEP,
    outside=_OUTSIDE,
    bound_by="bound by data. The loop loads its batch itself for 70 % of the step; the rest takes 71 ms, so no fix "
    "of the input can give more than 3.4x.",
    unknown_share=0.006,
    edges_ns=210 * MS,
    overhead_share=0.003,
    overhead_how="calls x cost of a call, measured at the end",
    findings=(STARVED, SAVING, NOISY),
    remedies=((WORKERS,), (BY_HAND,), ()),
    candidates=(
        Candidate("memory/pageable-copy", "pin_memory is off", Line("train.py", 41), "no device copies were seen"),
    ),
    abstained=(
        Abstained("compiler/recompile-storm", "no compiler was at work"),
        Abstained("memory/graph-kept-alive", "memory was not observed; record for at least 20 s"),
        Abstained("data/workers-respawned", "there are no data workers"),
    ),
    warnings=(),
    ranks=(RankSummary(0, 239 * MS, 239 * MS, 0),),
    observed=(Sensor.STEPS, Sensor.SAMPLES, Sensor.LOADERS, Sensor.GARBAGE, Sensor.SAVES),
    missing={Sensor.DEVICE: "none here", Sensor.GIL: "ptrace is not permitted"},
    facts=Facts({"machine.usable_cores": 2}),
    job=Job(),
    projection=None,
    ledger=ledger_of(54_300 * MS),
    recording="/tmp/recordings/train-0007",
    machine_load="other programs kept 0.1 of 2 cores busy",
)
HEALTHY = replace(
    STARVED_RUN,
    steps=140,
    steady_steps=100,
    step_ns=StepTimes(62 * MS, 64 * MS, 69 * MS),
    step_parts=(
        share("FETCH", 0.2, 64, share("WAIT_DATA", 0.2, 64)),
        share("FORWARD", 31, 64, share("COMPUTE", 31, 64)),
        share("BACKWARD", 30, 64, share("COMPUTE", 30, 64)),
        share("OPTIMIZER", 2.6, 64, share("COMPUTE", 2.6, 64)),
        share("BETWEEN", 0.2, 64, share("PYTHON", 0.2, 64)),
    ),
    bound_by="bound by tensor work on the CPU, which keeps 1.9 of 2 cores busy.",
    findings=(HOT,),
    remedies=((),),
    candidates=(),
    abstained=(),
    missing={},
)
TWO_RANKS = replace(
    STARVED_RUN,
    command=("torchrun", "--nproc-per-node", "2", "train.py"),
    rank_wall_ns=(54_300 * MS, 54_100 * MS),
    ledger=None,
    ranks=(RankSummary(0, 240 * MS, 238 * MS, 2 * MS), RankSummary(1, 240 * MS, 181 * MS, 59 * MS)),
    findings=(replace(STARVED, spent_ns=2 * STARVED.spent_ns),),
    remedies=((WORKERS,),),
    job=Job(hours=60.0, price_per_hour=2.5),
    projection=Projection(60.0, 37.2, 42.1, 93.0, 105.25),
)
NO_STEP = replace(
    STARVED_RUN,
    exit_code=1,
    steps=0,
    steady_steps=0,
    step_ns=None,
    step_parts=(),
    outside=(share("STARTUP", 52_000, 54_300, share("PYTHON", 50_000, 54_300)), share("UNKNOWN", 2300, 54_300)),
    bound_by="No step was found: no optimizer stepped and no backward pass ended.",
    findings=(),
    remedies=(),
    candidates=(),
    warnings=("rank 0: no optimizer was seen in 54.3 s. Nothing can be said of steps.",),
    ranks=(),
    observed=(),
)
STOPPED = replace(
    HEALTHY,
    stopped_by_us=True,
    stop_reason="100 steady steps were measured, as asked (--steps 100)",
    job=Job(steps=1_000_000, price_per_hour=None),
    projection=Projection(17.8, 0.0, 0.0),
)
START_UP = replace(HEALTHY, findings=(COMPILING, HOT), remedies=((), ()))
ESTIMATED = replace(
    HEALTHY,
    findings=(THREADS,),
    remedies=((PIN, HALF),),
    facts=Facts({"machine.usable_cores": 8, "device.name": "one accelerator"}),
    job=Job(hours=10.0),
    projection=Projection(10.0, 0.0, 4.6),
)
_IDLE = (
    share("the host had not launched more", 30, 100),
    share("the host waited for data", 12, 100),
    share("another rank was late", 5.2, 100),
    share("unexplained", 0.3, 100),
)
DEVICE = DeviceSummary(
    states=(
        share("compute", 41, 100),
        share("collectives", 9, 100),
        share("copies", 2.5, 100),
        share("idle", 47.5, 100, *_IDLE),
    ),
    by_phase=(
        share("fetch", 12, 100, share("idle", 12, 100)),
        share("backward", 88, 100, share("compute", 41, 100), share("idle", 47, 100)),
    ),
    critical=(
        share("kernels", 38, 100),
        share("launching", 31, 100),
        share("waiting for data", 12, 100),
        share("collectives", 9, 100),
        share("python", 6, 100),
        share("copies", 2.5, 100),
        share("unknown", 1.5, 100),
    ),
    launches_per_step=1204.0,
    launch_ns=6400,
    dilation=1.32,
)
TRACES = replace(
    TWO_RANKS,
    command=(),
    steps=6,
    steady_steps=5,
    step_ns=StepTimes(98 * MS, 100 * MS, 104 * MS),
    step_parts=(
        share("FETCH", 12, 100, share("WAIT_DATA", 12, 100)),
        share("BACKWARD", 88, 100, share("LAUNCH", 60, 100), share("PYTHON", 28, 100)),
    ),
    findings=(),
    remedies=(),
    outside=(share("before the first step", 3, 600),),
    missing=dict.fromkeys((Sensor.SAMPLES, Sensor.LOADERS), "a trace does not hold it"),
    observed=(Sensor.STEPS, Sensor.DEVICE),
    facts=Facts({"gpu.name": "NVIDIA A100-SXM4-80GB"}),
    device=DEVICE,
    traced=Traced(
        (TraceFile("/data/traces/rank0.pt.trace.json.gz", 0, 120_000, 600 * MS),
         TraceFile("/data/traces/rank1.pt.trace.json.gz", 1, 110_000, 600 * MS, 7_000_000)),
        "as the profiler marks them (ProfilerStep#)", (2, 3),
    ),
    overhead_share=0.24,
    overhead_how="from the times of steps with and without it",
    recording="",
    job=Job(),
    projection=None,
)  # fmt: skip
ONE_TRACE = replace(
    TRACES,
    rank_wall_ns=(600 * MS,),
    ranks=(),
    device=None,
    traced=Traced((TraceFile("trace.json", 0, 9, 600 * MS),), "inferred: from one batch of the loader to the next"),
    overhead_share=None,
    missing={Sensor.DEVICE: "no device activity in the trace"},
    facts=Facts(),
)

SAMPLES = {
    "starved": STARVED_RUN,
    "healthy": HEALTHY,
    "two-ranks": TWO_RANKS,
    "no-step": NO_STEP,
    "stopped": STOPPED,
    "start-up": START_UP,
    "estimated": ESTIMATED,
    "traces": TRACES,
    "one-trace": ONE_TRACE,
}


@pytest.fixture
def samples() -> dict[str, Report]:
    return SAMPLES


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Report:
    return SAMPLES[request.param]
