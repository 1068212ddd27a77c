"""What Inductor made of each graph: kernels, operators left to other code, the user's lines of these; and its caches.

Inductor tells the Python that it wrote, whether it compiled it now or found it in a cache. The lines of that file are
told as well: a stack sample lies on one of them, so each call's time is known without a clock in it.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch
import torch._logging

from unstall.probes._earlier import Earlier, reads
from unstall.probes._manifest import Left, Manifest, manifest_of
from unstall.probes._recorder import Probe
from unstall.probes._sites import is_users
from unstall.probes.compiling import compiled_code

AFTER = "torch"
MOST_GRAPHS = 200
MOST_LEFT = 40  # operators of one graph
MOST_FRAMES = 120  # of the compiler's, looked through for the graph
CODE = "inductor_output_code"  # as torch 2.6 to 2.13 name it
# settings that bear on what is fused; told where they are not as they come
SETTINGS = (
    "max_fusion_size", "realize_reads_threshold", "realize_opcount_threshold", "realize_acc_reads_threshold",
    "fallback_random", "fallback_by_default", "pattern_matcher", "epilogue_fusion", "cpp.simdlen",
    "cpp.max_horizontal_fusion_size", "cpp_wrapper",
)  # fmt: skip
LOOK_AT = (2, 8, 64, 512)  # steps at whose end the compiler's records of time are read, about 20 us each
_CACHE = re.compile(r"^(?:fx_graph|aotautograd)_cache_(hit|miss|bypass)$")  # artifacts, torch 2.6 to 2.13
MOST_ENTRIES = 2000  # of the cache's folder, looked at for its age
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (\S+)', re.MULTILINE)


def install(probe: Probe) -> None:
    Fusing(probe)


class Fusing:
    """Hears of the code that is written for each graph."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.graphs = 0
        self.nodes = 0  # of the compiler's own count, so far
        self.cache: dict[str, object] = {}
        self.frames: dict[str, str] = {}  # by the number of the graph
        self.earlier: Earlier | None = None
        self.timed: dict[tuple[str, int], float] = {}  # s in Inductor, by compilation and when it began
        torch._logging.trace_structured = self.tap(torch._logging.trace_structured)
        self.recorder.at_step.append((probe, self.look))

    def tap(self, original: Any) -> Any:
        """Stand in for ``trace_structured``; the compiler looks at the parameter's name ``metadata_fn``."""

        @functools.wraps(original)
        def trace_structured(
            name: str, metadata_fn: Any = dict, *, payload_fn: Any = lambda: None, **kwargs: Any
        ) -> Any:
            if name == CODE and self.probe.on and self.graphs < MOST_GRAPHS:
                with self.probe.guard():
                    self.hear(metadata_fn(), payload_fn())
            elif name == "artifact" and self.probe.on:
                with self.probe.guard():
                    self.hear_cache(str(metadata_fn().get("name")))
            return original(name, metadata_fn, payload_fn=payload_fn, **kwargs)

        return trace_structured

    def hear(self, about: Mapping[str, object], source: object) -> None:
        if not isinstance(source, str):
            return
        made = manifest_of(source)
        graphs = list(graphs_above())
        file = str(about.get("file_path") or about.get("filename") or "")
        left = sorted(made.left.items(), key=lambda pair: -len(pair[1].lines))[:MOST_LEFT]
        self.recorder.fact(
            {
                f"fusion:{self.graphs}": {
                    "id": str(torch._guards.CompileContext.current_compile_id()),
                    "graph": made.graph,
                    "frame": self.frame_of(made.graph),
                    "file": file,
                    "step": self.recorder.step,
                    "nodes": self.new_nodes(),
                    **_sizes(made),
                    "left": {name: _told(name, one, graphs) for name, one in left},
                    "settings": changed_settings(),
                    **self.alike(file, source, graphs),
                }
            }
        )
        self.graphs += 1
        if not self.cache:
            self.tell_cache()

    def alike(self, file: str, source: str, graphs: list[Any]) -> dict[str, object]:
        """Return how many earlier starts wrote this code with another number in it, and where; only if no cache has served."""
        if not file or not self.cache.get("miss") or self.cache.get("hit"):
            return {}
        self.earlier = self.earlier or Earlier(self.began_s())
        count, now, then = self.earlier.alike(file, source)
        return {"earlier": count, "now": now, "then": then, "at": reads(iter(graphs), now)} if count else {}

    def began_s(self) -> float:
        """Return when this process began, since the epoch."""
        return time.time() - (time.monotonic_ns() - self.recorder.origin_ns) / 1e9

    def frame_of(self, graph: str) -> str:
        """Return which function the graph is of, as FILE:LINE:NAME; a backward one is known by the number of its forward."""
        number, code = graph.partition("_")[0], compiled_code()
        if code is not None:
            name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
            self.frames[number] = f"{os.path.abspath(code.co_filename)}:{code.co_firstlineno}:{name}"
        return self.frames.get(number, "")

    def hear_cache(self, name: str) -> None:
        if match := _CACHE.match(name):
            count = self.cache.get(match[1])
            self.cache[match[1]] = (count if isinstance(count, int) else 0) + 1
            self.tell_cache()

    def tell_cache(self) -> None:
        """Tell how often the caches of compiled code served so far, whether they are off, and where they are."""
        if "off" not in self.cache:
            self.cache |= {"off": caches_off(), **folder_of_cache(self.began_s())}
        self.recorder.fact({"compile_cache": dict(self.cache)})

    def look(self, step: int) -> None:
        """Tell how long Inductor worked on graphs of first compilations, of both passes; the compiler keeps 64 records."""
        if step not in LOOK_AT or not self.cache:
            return
        records: list[Any] = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", list)()
        for record in records:
            identity = str(record.compile_id or "")
            took_s = getattr(record, "inductor_compile_time_s", None)  # since 2.4
            if took_s and identity.rpartition("/")[2] == "0":
                self.timed[identity, int(1e6 * (getattr(record, "start_time", None) or 0))] = float(took_s)
        if self.timed:
            self.cache["inductor_ns"] = round(1e9 * sum(self.timed.values()))
            self.tell_cache()

    def new_nodes(self) -> int | None:
        """Return how many operations Inductor had before it fused them, in this graph; None where it does not count."""
        metrics = sys.modules.get("torch._inductor.metrics")
        now = getattr(metrics, "ir_nodes_pre_fusion", None)
        if not isinstance(now, int):
            return None
        before, self.nodes = self.nodes, now
        return now - before if now > before else None


def _sizes(made: Manifest) -> dict[str, object]:
    return {
        "kernels": made.kernels, "externs": made.externs, "moved": made.moved, "least": made.least,
        "patterns": made.patterns, "libraries": made.libraries,
    }  # fmt: skip


def _told(name: str, left: Left, graphs: list[Any]) -> dict[str, object]:
    return {
        "lines": left.lines[:MOST_FRAMES], "calls": len(left.lines), "taken": left.taken, "given": left.given,
        "before": left.before, "after": left.after, "alike": left.alike, "pointwise": is_pointwise(name),
        "at": next((at for graph in graphs for at in lines_of(graph, name)), ""),
    }  # fmt: skip


def caches_off() -> bool:
    config: Any = sys.modules.get("torch._inductor.config")
    return bool(getattr(config, "force_disable_caches", False)) or getattr(config, "fx_graph_cache", True) is False


def folder_of_cache(began_s: float) -> dict[str, object]:
    """Return where compiled code is kept, and whether nothing there is older than *began_s*, time since the epoch."""
    usual = usual_folder()
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "") or usual  # torch sets the variable itself, to the usual one
    about: dict[str, object] = {"folder": folder, "set": bool(usual) and folder != usual}
    try:
        with os.scandir(folder) as entries:
            oldest_s = min((one.stat().st_mtime for one in itertools.islice(entries, MOST_ENTRIES)), default=began_s)
    except OSError:
        return about
    return {**about, "fresh": oldest_s >= began_s}


def usual_folder() -> str:
    """Return where compiled code is kept where nobody says so; "" where this version of torch does not tell."""
    for name in ("cache_dir_utils", "runtime_utils"):  # since torch 2.7; before
        default = getattr(sys.modules.get(f"torch._inductor.runtime.{name}"), "default_cache_dir", None)
        if default is not None:
            return str(default())
    return ""


def is_pointwise(name: str) -> bool | None:
    """Return whether torch marks the operator as one that works element by element; None for operators not torch's."""
    try:
        operator = functools.reduce(getattr, name.split("."), torch.ops)
    except AttributeError:
        return None
    return torch.Tag.pointwise in getattr(operator, "tags", ()) if name.startswith("aten.") else None


def graphs_above() -> Iterator[Any]:
    """Yield the graphs that the compiler is at work on: locals of its frames, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[int] = set()
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        for name in ("gm", "model_", "graph_module"):
            found = frame.f_locals.get(name)
            if isinstance(found, torch.fx.GraphModule) and id(found) not in seen:
                seen.add(id(found))
                yield found
        frame = frame.f_back


def lines_of(graph: Any, name: str) -> Iterator[str]:
    """Yield the user's lines, as FILE:LINE:FUNCTION, that call the operator *name* in *graph*."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and str(node.target) in (name, name.rpartition(".")[0]):
            stack = node.meta.get("stack_trace") or getattr(node, "stack_trace", None) or ""
            for file, line, function in reversed(_FRAME.findall(stack)):
                if is_users(file):
                    yield f"{os.path.abspath(file)}:{line}:{function}"
                    break


def changed_settings() -> dict[str, object]:
    """Return Inductor's settings that bear on fusion and are not as they come."""
    config: Any = sys.modules.get("torch._inductor.config")
    is_default = getattr(config, "_is_default", None)
    if is_default is None:
        return {}
    found: dict[str, object] = {}
    for name in SETTINGS:
        try:
            if not is_default(name):
                found[name] = functools.reduce(getattr, name.split("."), config)
        except (AttributeError, KeyError):  # another version's
            continue
    return {name: value if isinstance(value, (bool, int, float)) else str(value) for name, value in found.items()}
