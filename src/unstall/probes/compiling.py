"""Compile windows, why something was compiled anew or in pieces, and which line asked for compilation."""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import sys
from threading import get_ident
from types import CodeType
from typing import Any

import torch
import torch._logging

from unstall.model.wire import Activity, Kind
from unstall.probes._around import is_compiling
from unstall.probes._pieces import Pieces
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site, is_users
from unstall.probes._windows import on_windows

AFTER = "torch"
MOST_REASONS = 500
MOST_BREAKS = 200
MOST_SITES = 500  # calls of torch.compile that are told one by one
MOST_LIMITS = 50
MOST_FAILURES = 50
STANCE_AT = 8  # step at whose end the compiler's stance is read, once
MOST_WORDS = 300  # characters of a reason
# What a break's report holds, torch 2.6 to 2.13: the reason, then the frames that led to it, then the compiler's own.
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (\S+)', re.MULTILINE)
_REASON = re.compile(r"^(?:Graph Break )?Reason:[ \t]*", re.MULTILINE)
_FUNCTION = re.compile(r"^'(\S+)' \((.+):(\d+)\)$")  # as the compiler names one where it gives up
_FAILED = re.compile(r"^WON'T CONVERT (\S+) (.+) line (\d+)")  # an error that suppress_errors keeps from the user
_OPENINGS = ("Encountered graph break", "Failed to handle graph break", "Graph break under GenericContextWrapping")
_SKIPS = ("Skipping the function", "torch.compile will skip", "WON'T CONVERT", "Graph break in a loop")


def install(probe: Probe) -> None:
    Compiling(probe)


class Compiling:
    """Times compile windows on the training thread and collects the compiler's own reasons."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.open: list[tuple[int, int, str, str]] = []
        self.sites = 0
        self.reasons = 0
        self.breaks = 0
        self.limits = 0
        self.failures = 0
        self.pieces = Pieces(probe)
        logging.getLogger("torch._dynamo.convert_frame").addFilter(self.overhear)
        self.recorder.when("torch._dynamo.callback", self.watch_windows)
        original = torch._logging.trace_structured
        torch._logging.trace_structured = self.tap(original)
        torch.compile = self.remembering(torch.compile)
        self.recorder.at_step.append((probe, self.look))

    def watch_windows(self, module: Any) -> None:
        on_windows(self.probe, module, self.start, self.end)

    def start(self, *args: Any) -> None:
        if not self.probe.on or get_ident() != self.recorder.thread:
            return
        with self.probe.guard():
            depth = self.recorder.accounting.enter_activity(Activity.COMPILE)
            # a callback has arguments since torch 2.8
            compiled = getattr(args[0], "compile_id", "") if args else torch._guards.CompileContext.current_compile_id()
            identity = str(compiled or "")
            user, library = call_site(2)
            self.open.append((depth, self.recorder.accounting.at, identity, f"{user}|{library}"))

    def end(self, *args: Any) -> None:
        if not self.open or get_ident() != self.recorder.thread:
            return
        with self.probe.guard():
            depth, start, identity, site = self.open.pop()
            end = self.recorder.accounting.leave(depth)
            number = identity.split("_")[0].rpartition("/")[2]
            self.recorder.span(
                Kind.COMPILE, start, end, f"{identity}|{site}", int(number) if number.isdigit() else 0, rare=True
            )

    def tap(self, original: Any) -> Any:
        """Stand in for ``trace_structured``, and build only the payloads that are wanted.

        The compiler looks at the parameter's name ``metadata_fn``; an error that escaped would fail the compilation.
        """

        @functools.wraps(original)
        def trace_structured(
            name: str, metadata_fn: Any = dict, *, payload_fn: Any = lambda: None, **kwargs: Any
        ) -> Any:
            if name == "artifact" and self.probe.on:
                with self.probe.guard():
                    self.hear(metadata_fn, payload_fn)
            return original(name, metadata_fn, payload_fn=payload_fn, **kwargs)

        return trace_structured

    def hear(self, metadata_fn: Any, payload_fn: Any) -> None:
        name = metadata_fn().get("name")
        if name == "recompile_reasons" and self.reasons < MOST_REASONS:
            self.hear_recompile(payload_fn())
        elif name == "dynamo_graph_break_reason" and self.breaks < MOST_BREAKS:
            self.hear_break(str(payload_fn()))

    def hear_recompile(self, reasons: Any) -> None:
        self.reasons += 1
        code = compiled_code()
        identity = torch._guards.CompileContext.current_compile_id()
        self.recorder.fact(
            {
                f"recompile:{self.reasons}": {
                    "id": str(identity),
                    "frame": f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}" if code else "",
                    "reasons": reasons if isinstance(reasons, str) else [str(reason) for reason in reasons or ()][:3],
                    "called": call_site(2)[0],
                }
            }
        )

    def hear_break(self, report: str) -> None:
        code = compiled_code()
        self.pieces.broke(code)
        user, library = broken_at(report)
        facts = {
            "id": str(torch._guards.CompileContext.current_compile_id()),
            "frame": f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}" if code else "",
            "at": user,
            "library": library,
            "reason": reason_of(report),
            "skipped": any(sign in report for sign in _SKIPS),
        }
        self.recorder.fact({f"graph_break:{self.breaks}": facts})
        self.breaks += 1

    def overhear(self, record: logging.LogRecord) -> bool:
        """Note where the compiler says that it gives up a function for good; the record goes on as it is."""
        if not self.probe.on:
            return True
        with self.probe.guard():
            said = str(record.msg)
            if self.limits < MOST_LIMITS and "hit config." in said:
                self.hear_limit(record.args if isinstance(record.args, tuple) else ())
            elif self.failures < MOST_FAILURES and (match := _FAILED.match(said)):
                self.recorder.fact(
                    {
                        f"compile_failed:{self.failures}": {
                            "frame": f"{match[2]}:{match[3]}:{match[1]}",
                            "reason": error_of(said),
                            "step": self.recorder.step,
                        }
                    }
                )
                self.failures += 1
        return True

    def look(self, step: int) -> None:
        """Tell a stance other than the usual, as `torch.compiler.set_stance("force_eager")`; and what could compile."""
        if step == STANCE_AT:
            if not self.sites:
                self.recorder.fact({"compiler.cpp": shutil.which(os.environ.get("CXX") or "g++") is not None})
            stance = getattr(getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None), "stance", "default")
            if stance != "default":
                self.recorder.fact({"compiler.stance": str(stance)})

    def hear_limit(self, args: tuple[object, ...]) -> None:
        named = next((match for arg in args if (match := _FUNCTION.match(str(arg)))), None)
        facts = {
            "limit": str(args[0]) if args else "",
            "value": args[1] if len(args) > 1 and isinstance(args[1], int) else None,
            "frame": f"{named[2]}:{named[3]}:{named[1]}" if named else "",
            "reason": str(args[3]).split("\n", 1)[0][:MOST_WORDS] if len(args) > 3 else "",
            "step": self.recorder.step,
        }
        self.recorder.fact({f"compile_limit:{self.limits}": facts})
        self.limits += 1

    def remembering(self, original: Any) -> Any:
        """Wrap ``torch.compile`` (``Module.compile`` goes through it) to remember who asked, for what, how."""

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self.probe.on or self.sites >= MOST_SITES:
                return original(model, *args, **kwargs)
            with self.probe.guard():
                self.tell_site(model, kwargs)
            return original(model, *args, **kwargs)

        return compile

    def tell_site(self, model: Any, kwargs: dict[str, Any]) -> None:
        user, library = call_site(3)
        function = getattr(type(model), "forward", None) if isinstance(model, torch.nn.Module) else model
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.nn.Module):  # Module.compile passes a bound method on
            model, function = owner, type(owner).forward
        code = getattr(function, "__code__", None)
        self.recorder.fact(
            {
                f"compile:{self.sites}": {
                    "site": user,
                    "library": library,
                    "target": f"{os.path.abspath(code.co_filename)}:{code.co_firstlineno}" if code else "",
                    "name": code.co_name if code else "",
                    "bare": model is None,
                    "model": isinstance(model, torch.nn.Module),
                    "off": switched_off(),
                    "step": self.recorder.step,
                    "settings": {name: str(value) for name, value in kwargs.items()},
                    **(repeated(model) if isinstance(model, torch.nn.Module) else {}),
                }
            }
        )
        self.sites += 1


def switched_off() -> bool:
    """Return whether the compiler is told to do nothing."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")):
        return True
    return bool(getattr(sys.modules.get("torch._dynamo.config"), "disable", False))


def repeated(model: torch.nn.Module) -> dict[str, object]:
    """Return the class that most children of one module share, how many they are, and their share of the parameters."""
    best: tuple[int, list[torch.nn.Module]] = (0, [])
    for holder in model.modules():
        alike: dict[type, list[torch.nn.Module]] = {}
        for child in holder.children():
            if next(child.children(), None) is not None:
                alike.setdefault(type(child), []).append(child)
        for group in alike.values():
            best = max(best, (len(group), group), key=lambda pair: pair[0])
    if best[0] < 2:
        return {}
    total = sum(tensor.numel() for tensor in model.parameters())
    held = sum(tensor.numel() for child in best[1] for tensor in child.parameters())
    return {"block": type(best[1][0]).__name__, "blocks": best[0], "block_share": round(held / max(1, total), 3)}


def compiled_code() -> CodeType | None:
    """Return the code that is being compiled now: a local of the compiler's frames, looked up from here."""
    frame = sys._getframe(1)
    while frame is not None:
        compiled = frame.f_locals.get("frame")
        code = getattr(compiled, "f_code", None)
        if isinstance(code, CodeType):
            return code
        frame = frame.f_back  # type: ignore[assignment]
    return None


def broken_at(report: str) -> tuple[str, str]:
    """Return the user's line that a break's report names and the library's frame below it, each "" for none."""
    stack = report.rpartition("User code traceback:")[2] or report
    library = ""
    for file, line, function in reversed(_FRAME.findall(stack.split("Traceback (most recent call last)", 1)[0])):
        place = f"{os.path.abspath(file)}:{line}:{function}"
        if is_users(file):
            return place, library
        library = library or place
    return "", library


def error_of(report: str) -> str:
    """Return the error that *report* ends its traceback with: its type and first words, and those of what raised it."""
    lines = [line.strip() for line in report.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]]
    said = [line for line in lines if re.match(r"^[\w.]+: \S", line)]
    return " ".join(said[:2])[:MOST_WORDS]


def reason_of(report: str) -> str:
    """Return why the graph broke, in the compiler's words: the kind of the break and its explanation."""
    match = _REASON.search(report)
    said = [line.strip() for line in report[match.end() if match else 0 :].splitlines()]
    said = [line for line in said if line and not line.startswith(_OPENINGS)]
    kind = said[0] if said else ""
    more = next((line for line in said[1:6] if line.startswith("Explanation:")), "")
    return f"{kind} {more}".strip()[:MOST_WORDS]
