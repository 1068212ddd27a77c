"""Every real trace of the shared folder equals a plain, slow reading of it; skipped where the folder is absent.

The folder is named by UNSTALL_TRACES, or lies beside the repository as ``../shared/traces``.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from unstall.model.errors import UnstallError
from unstall.model.trace import NONE, Call
from unstall.readers import _kept, join
from unstall.readers.kineto import read_trace

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("UNSTALL_TRACES") or ROOT.parent / "shared" / "traces")
QUICK_BYTES = 400_000  # of a file; larger ones are left to -m slow, for the plain reading takes seconds each
CALLS = {
    "cpu_op": Call.OPERATOR, "operator": Call.OPERATOR, "user_annotation": Call.ANNOTATION,
    "python_function": Call.FRAME, "cuda_runtime": Call.RUNTIME, "cuda_driver": Call.RUNTIME, "runtime": Call.RUNTIME,
    "mtia_runtime": Call.RUNTIME,
}  # fmt: skip
WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events"}
LEFT_OUT = {"trace", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "overhead"}
NO_TRACES = {"benchmark_simple_add_et.json.gz", "memory_timeline.raw.gz"}


def found():
    endings = (".json", ".json.gz", ".raw.gz")
    files = sorted(path for path in FOLDER.rglob("*") if path.name.endswith(endings)) if FOLDER.is_dir() else []
    if not files:
        return [
            pytest.param(None, marks=pytest.mark.skip(f"no traces in {FOLDER}; name their folder by UNSTALL_TRACES"))
        ]
    return [
        pytest.param(
            path, id=str(path.relative_to(FOLDER)),
            marks=[pytest.mark.slow] if path.stat().st_size > QUICK_BYTES else [],
        )
        for path in files
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv(_kept.OFF, "1")


def plain(path):
    """Return the spans of a file, and the moment that its times count from."""
    data = path.read_bytes()
    whole = json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data, parse_float=Decimal)
    events, base = (
        (whole, 0) if isinstance(whole, list) else (whole["traceEvents"], whole.get("baseTimeNanoseconds", 0))
    )
    return [event for event in events if event["ph"] == "X"], base


def moments(span, base):
    """Return start and end in ns; the file's text has no finer digits."""
    start, length = Decimal(span["ts"]) * 1000, Decimal(span["dur"]) * 1000
    assert start == int(start) and length == int(length)
    return base + int(start), base + int(start) + int(length)


def launchers(spans):
    """Return the spans of the runtime's calls by correlation."""
    calls = {}
    for span in spans:
        if CALLS.get(span["cat"].lower()) == Call.RUNTIME and "correlation" in span["args"]:
            calls.setdefault(span["args"]["correlation"], []).append(span)
    return calls


@pytest.mark.parametrize("path", found())
def test_a_real_trace_is_read_to_the_last_nanosecond(path):
    if path.name in NO_TRACES:
        with pytest.raises(UnstallError, match="is not a profiler's trace"):
            read_trace(path)
        return
    spans, base = plain(path)
    trace = read_trace(path).trace
    names = trace.names
    wanted = Counter(span["cat"].lower() for span in spans)
    assert set(wanted) <= {*CALLS, *WORK, *LEFT_OUT}
    assert trace.cut_at is None
    calls, work = trace.calls, trace.work
    mine = zip(calls.start_ns.tolist(), calls.end_ns.tolist(), calls.name.tolist(), calls.thread.tolist())
    assert sorted((start, end, names[name], trace.threads[thread]) for start, end, name, thread in mine) == sorted(
        (*moments(span, base), span["name"], f"{span['pid']}/{span['tid']}")
        for span in spans
        if span["cat"].lower() in CALLS
    )
    marks = {"event_wait", "event_record"}
    mine = zip(work.start_ns.tolist(), work.end_ns.tolist(), work.name.tolist(), work.correlation.tolist())
    assert sorted((start, end, names[name], number) for start, end, name, number in mine) == sorted(
        (*moments(span, base), span["name"], span["args"].get("correlation", NONE))
        for span in spans
        if span["cat"].lower() in WORK and span["name"] not in marks
    )
    kinds = Counter(calls.call.tolist())
    for kind in (Call.RUNTIME, Call.FRAME):
        assert kinds[kind] == sum(count for category, count in wanted.items() if CALLS.get(category) == kind)
    by_correlation = launchers(spans)
    for number, launch in zip(work.correlation.tolist(), work.launch.tolist()):
        chosen = by_correlation.get(number, [])
        if launch == NONE:
            assert not chosen
        else:
            assert (int(calls.start_ns[launch]), names[calls.name[launch]]) in {
                (moments(span, base)[0], span["name"]) for span in chosen
            }


@pytest.mark.parametrize("path", [path for path in found() if "nccl_parser" in str(path.id) or path.id is None])
def test_messages_of_collectives_have_their_size(path):
    work = read_trace(path).trace.work
    sizes = work.nbytes[work.kind == 3]
    assert sizes.size == 21 and (sizes > 0).all()


@pytest.mark.parametrize("path", [path for path in found() if "nccl_parser" in str(path.id) or path.id is None])
def test_a_rank_that_is_alone_misses_the_other(path):
    run = join.read([path])
    assert run.missing_ranks == (1,) and run.ranks[0].events.start_ns.size == 3
