"""Fixes to look at: one of each kind that a user can get.  All numbers are invented."""

from __future__ import annotations

from dataclasses import replace

from unstall.model.finding import Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Basis
from unstall.model.remedy import Knob, Remedy, Safety, SetEnvironment, SetKeyword
from unstall.model.report import Job, Report, StepTimes
from unstall.model.run import Facts, Sensor
from unstall.model.trial import Bound, Compared, Equality, Fixed, Hours, Measure, Proof, Ratio, Tried, Untried, Verdict

MS = 1_000_000
MINUTE = 60_000 * MS
LOADER = "torch.utils.data.DataLoader"
PATCH = """\
# A patch of unstall fix. Apply it with:  git apply unstall.patch

diff --git a/train.py b/train.py
--- a/train.py
+++ b/train.py
@@ -40,3 +40,3 @@
     train = Images()
-    loader = DataLoader(train, batch_size=64, shuffle=True)
+    loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=3)
     model = Net()
"""


def a_report(bound_by: str, step_ms: int | None) -> Report:
    step = None if step_ms is None else StepTimes(step_ms * MS * 9 // 10, step_ms * MS, step_ms * MS * 11 // 10)
    return Report(
        command=("train.py", "--epochs", "1"),
        exit_code=0,
        stopped_by_us=False,
        stop_reason="",
        wall_ns=54_300 * MS,
        rank_wall_ns=(54_300 * MS,),
        steps=0 if step is None else 212,
        steady_steps=0 if step is None else 180,
        warmup_steps=0 if step is None else 32,
        step_ns=step,
        step_parts=(),
        outside=(),
        bound_by=bound_by,
        unknown_share=0.0,
        edges_ns=0,
        overhead_share=0.003,
        overhead_how="",
        findings=(),
        remedies=(),
        candidates=(),
        abstained=(),
        warnings=(),
        ranks=(),
        observed=(Sensor.SAMPLES,),
        missing={Sensor.DEVICE: "none here"},
        facts=Facts({"machine.usable_cores": 2}),
        job=Job(hours=60.0, price_per_hour=2.5),
        projection=None,
        ledger=None,
    )


WORKERS = Remedy(
    "data/starved-loader#num_workers",
    "num_workers=4",
    Safety.SAME_DISTRIBUTION,
    (SetKeyword("train.py", 41, LOADER, "num_workers", 3, 5),),
    (Knob("num_workers", 4, 1, 8),),
    "making a batch draws random numbers",
)
FUSED = Remedy(
    "kernels/launch-bound#fused-optimizer",
    "AdamW(fused=True)",
    Safety.SAME_MATH,
    (SetKeyword("train.py", 55, "torch.optim.AdamW", "fused", True),),
)
LAST = Remedy(
    "memory/layout#channels_last",
    "channels_last",
    Safety.SAME_MATH,
    (SetKeyword("train.py", 50, "torch.nn.Module.to", "memory_format", "channels_last"),),
)
THREADS = Remedy(
    "kernels/too-few-threads#threads", "OMP_NUM_THREADS=2", Safety.SAME_MATH, (SetEnvironment("OMP_NUM_THREADS", "2"),)
)
PREFETCH = replace(
    WORKERS,
    id="data/uneven-samples#in_order",
    title="in_order=False: take batches as they become ready (PyTorch 2.6 and later)",
    safety=Safety.CHANGES_TRAINING,
    edits=(SetKeyword("train.py", 41, LOADER, "in_order", False),),
    knobs=(),
)
KEPT = Proof(
    cause="data/starved-loader",
    where="train.py:41",
    remedy=WORKERS,
    verdict=Verdict.FASTER,
    measure=Measure.STEP,
    ratio=Ratio(3.05, 2.91, 3.20, 8),
    start=Ratio(0.93, 0.90, 0.97, 8),
    step=Ratio(3.05, 2.91, 3.20, 8),
    equality=Equality(Compared.SEEDS, True, "240 losses lie within the band of 5 seeds, each sample was seen once"),
    tried=(Tried(4, 2.98), Tried(2, 1.9), Tried(3, 3.01)),
    predicted_low=2.7,
    predicted_high=3.4,
    p=0.0004,
    pays_after=12,
    discarded=1,
)
NO_EFFECT = Proof(
    cause="kernels/launch-bound",
    where="train.py:55",
    remedy=FUSED,
    verdict=Verdict.NO_EFFECT,
    measure=Measure.STEP,
    ratio=Ratio(1.0, 0.98, 1.02, 8),
    equality=Equality(Compared.LOCKSTEP, True, "gradients of 3 steps differ by less than the envelope of rounding"),
    p=0.51,
)
SLOWER = Proof(
    cause="memory/layout",
    where="src/project/training/a/rather/long/folder/of/models/resnet.py:1050",
    remedy=LAST,
    verdict=Verdict.SLOWER,
    measure=Measure.STEP,
    ratio=Ratio(0.97, 0.95, 0.99, 8),
    equality=Equality(Compared.LOCKSTEP, True, "gradients of 3 steps differ by less than the envelope of rounding"),
)
DIFFERENT = Proof(
    cause="data/uneven-samples",
    where="train.py:41",
    remedy=replace(PREFETCH, safety=Safety.SAME_DISTRIBUTION),
    verdict=Verdict.TRAINED_DIFFERENTLY,
    measure=Measure.STEP,
    ratio=Ratio(1.31, 1.22, 1.40, 3),
    equality=Equality(Compared.SEEDS, False, "loss 0.412 at step 200 lies above the band of 5 seeds, 0.31-0.36"),
)
ALLOWED = replace(
    DIFFERENT,
    remedy=PREFETCH,
    verdict=Verdict.FASTER,
    equality=Equality(Compared.CURVES, True, "mean loss of the last 50 steps 0.352, without it 0.347"),
)
INCONCLUSIVE = Proof(
    cause="kernels/too-few-threads",
    where="environment variable OMP_NUM_THREADS",
    remedy=THREADS,
    verdict=Verdict.INCONCLUSIVE,
    measure=Measure.RUN,
    ratio=Ratio(1.04, 0.96, 1.13, 12),
    because="the machine is too noisy: to tell 4 % it would take about 60 pairs, 50 min",
)
FAILED = Proof(
    cause="kernels/too-few-threads",
    where="environment variable OMP_NUM_THREADS",
    remedy=THREADS,
    verdict=Verdict.FAILED,
    measure=Measure.STEP,
    because="Traceback (most recent call last):\n"
    + "".join(f'  File "train.py", line {n}, in main\n' for n in range(12))
    + "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that the shared memory "
    "is insufficient for what this loader asks of it.",
)
ADVICE = Remedy(
    "io/checkpoint-in-loop#rarely",
    "Save once an epoch",
    Safety.SAME_BITS,
    why="the state is read, not changed; save where the epoch ends",
)
SAVING = Finding(
    cause="io/checkpoint-in-loop",
    title="Every 10th step writes a checkpoint of 91 MB before it goes on",
    where=Line("train.py", 118, "on_step", "torch.save(state, path)"),
    scope=Scope.PERIODIC,
    stakes=(),
    weight=Weight.TIMED,
    basis=Basis.MEASURED,
    evidence=(),
    saving=Saving(0, 380 * MS),
    spent_ns=400 * MS,
    share=0.041,
)
BEFORE = a_report("Bound by data. Fetch takes 70% of the step.", 239)
AFTER = replace(a_report("Bound by compute.", 78), findings=(SAVING,), remedies=((ADVICE,),))
NOT_TRIED = Untried(
    "kernels/full-precision-matmul",
    "train.py:60",
    "train in float32",
    "it changes the training: --allow changes-training",
)
NOT_WORTH = Untried(
    "host/hot-line", "train.py:71", "", "0.4 % of the step is less than what two equal runs differ by, 1.8 %"
)

ONE_KEPT = Fixed(
    command=("train.py", "--epochs", "1"),
    first=BEFORE,
    last=AFTER,
    noise=0.018,
    proofs=(KEPT, SLOWER, NO_EFFECT),
    kept=(WORKERS,),
    untried=(NOT_TRIED, NOT_WORTH, Untried(SAVING.cause, "train.py:118", ADVICE.title, "no edit carries it out")),
    total=Ratio(3.05, 2.91, 3.20, 8),
    measure=Measure.STEP,
    patch=PATCH,
    patch_file="unstall.patch",
    exports={},
    applied=(),
    hours=Hours(60.0, 20.0, 19.1, 20.9, 100.0),
    spent_ns=11 * MINUTE,
    trials=53,
    discarded=2,
    notes=("the script sets no seed: trials were seeded with 0", "loaders were cut to 40 batches an epoch"),
    interrupted="",
    folder="/tmp/unstall/fix-1",
)
NOTHING = replace(
    ONE_KEPT,
    last=BEFORE,
    proofs=(),
    kept=(),
    untried=(NOT_WORTH,),
    total=None,
    patch="",
    patch_file="",
    hours=None,
    noise=None,
    trials=0,
    discarded=0,
    notes=(),
    spent_ns=54_300 * MS,
)
NOTHING_PROVED = replace(NOTHING, proofs=(SLOWER, NO_EFFECT, DIFFERENT, INCONCLUSIVE), noise=0.05, trials=40)
BROKEN = replace(NOTHING_PROVED, proofs=(FAILED, NO_EFFECT))
INTERRUPTED = replace(ONE_KEPT, proofs=(KEPT,), interrupted="Ctrl-C", total=None, hours=None, last=BEFORE)
OUT_OF_TIME = replace(NOTHING, interrupted="the budget", trials=3, spent_ns=15 * MINUTE)
TRAINING_FAILED = replace(
    NOTHING,
    first=replace(a_report("No step was found.", None), exit_code=1),
    notes=("Traceback (most recent call last):\nValueError: no such data set",),
    untried=(),
)
EVERYTHING = replace(
    ONE_KEPT,
    proofs=(KEPT, ALLOWED, SLOWER, NO_EFFECT, DIFFERENT, INCONCLUSIVE, FAILED),
    kept=(WORKERS, PREFETCH),
    measure=Measure.RUN,
    exports={"OMP_NUM_THREADS": "2", "A": "b c"},
    applied=("train.py",),
)
BOUNDED = replace(
    ONE_KEPT,
    bounds=(
        Bound(
            "input",
            "the loop gets its first batch again and again, and nothing is fetched",
            Ratio(3.38, 3.21, 3.57, 4),
            Ratio(3.46, 3.30, 3.62, 4),
        ),
        Bound(
            "checkpoint",
            "torch.save, safetensors and torch.distributed.checkpoint write nothing",
            because="no checkpoint was written within the 79 steps of a trial; more --steps would reach one",
        ),
        Bound("compile", "nothing is compiled", Ratio(0.52, 0.50, 0.54, 3)),
    ),
)

FIXES = {
    "one-kept": ONE_KEPT,
    "nothing": NOTHING,
    "nothing-proved": NOTHING_PROVED,
    "broken": BROKEN,
    "interrupted": INTERRUPTED,
    "out-of-time": OUT_OF_TIME,
    "training-failed": TRAINING_FAILED,
    "everything": EVERYTHING,
    "bounded": BOUNDED,
}
