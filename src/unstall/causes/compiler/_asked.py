"""How compilation was asked for: the backends of the calls of `torch.compile`, and the edit of such a call."""

from __future__ import annotations

from unstall.model.finding import Line
from unstall.model.remedy import Scalar, SetKeyword
from unstall.model.run import Facts

UNFUSED = ("eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept", "eager_debug", "pre_dispatch_eager")


def backend_of(asked: Facts) -> str:
    """Return the backend that one call asked for; "inductor" where it named none."""
    settings = asked.known.get("settings")
    named = settings.get("backend") if isinstance(settings, dict) else None
    return named if isinstance(named, str) else "inductor"


def fuses(facts: Facts) -> bool:
    """Return whether any call asked for a backend that fuses operators."""
    asked = facts.family("compile").values()
    return not asked or any(backend_of(one) not in UNFUSED for one in asked)


def set_where_asked(line: Line, keyword: str, value: Scalar) -> SetKeyword:
    """Return the edit of the call on *line*, of `torch.compile` or of a module's ``compile``."""
    method = ".compile(" in line.code and "torch.compile(" not in line.code
    call = "torch.nn.Module.compile" if method else "torch.compile"
    return SetKeyword(line.file, line.line, call, keyword, value)
