"""A pipeline that records what it was asked for and returns a small report."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from unstall.model.report import Job, Report
from unstall.model.run import Facts, Sensor


def a_report(exit_code: int = 0) -> Report:
    return Report(
        command=("train.py",),
        exit_code=exit_code,
        stopped_by_us=False,
        stop_reason="",
        wall_ns=5_000_000_000,
        rank_wall_ns=(5_000_000_000,),
        steps=0,
        steady_steps=0,
        warmup_steps=0,
        step_ns=None,
        step_parts=(),
        outside=(),
        bound_by="No step was found.",
        unknown_share=0.0,
        edges_ns=0,
        overhead_share=0.0,
        overhead_how="",
        findings=(),
        remedies=(),
        candidates=(),
        abstained=(),
        warnings=(),
        ranks=(),
        observed=(Sensor.SAMPLES,),
        missing={},
        facts=Facts(),
        job=Job(),
        projection=None,
        ledger=None,
    )


@dataclass
class Options:
    command: tuple[str, ...]
    steps: int | None
    warmup: int | None
    seconds: float | None
    out: object
    job: Job
    status: object


@dataclass
class Pipeline:
    """Stands in for `unstall.pipeline`: *report* is what it returns, or raises."""

    report: Report | BaseException = field(default_factory=a_report)
    argv: list[str] = field(default_factory=list)
    options: Options | None = None
    diagnosed: tuple[object, Job] | None = None

    def run(self, argv: list[str], options: Options) -> Report:
        self.argv, self.options = argv, options
        return self.answer()

    def diagnose(self, path: object, job: Job) -> Report:
        self.diagnosed = (path, job)
        return self.answer()

    def diagnose_paths(self, paths: tuple[str, ...], job: Job, wanted: object, unprofiled_ns: int | None) -> Report:
        return self.diagnose(paths[0], job)

    def answer(self) -> Report:
        if isinstance(self.report, BaseException):
            raise self.report
        return self.report


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    stand_in = Pipeline()
    module = types.ModuleType("unstall.pipeline")
    vars(module).update(
        run=stand_in.run,
        diagnose_paths=stand_in.diagnose_paths,
        save_perfetto=None,
        RunOptions=Options,
        Wanted=lambda *wanted: wanted,
    )
    monkeypatch.setitem(sys.modules, "unstall.pipeline", module)
    return stand_in


@pytest.fixture
def make_report() -> Callable[[int], Report]:
    return a_report
