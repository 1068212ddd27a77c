"""What of a step torch's own kernels compute in vectors: the lines and library functions that samples lie on tell.

Products of matrices, convolutions, pooling, and the functions that MKL computes choose their vectors by themselves. All other
arithmetic is code that torch compiled for each width, and picks one of at its start.
"""

from __future__ import annotations

import re

from unstall.model.ledger import Activity, Phase
from unstall.model.tables import HotLine, Tables

LEAST_SAMPLES = 10  # of computing in the forward pass; with fewer its lines tell nothing
UNTOLD = 0.25  # of the passes, where no samples tell; 0.17 to 0.53 of six uncompiled models were measured to be lost
# by the name of a library's function, or the text of a line
_ELSEWHERE = re.compile(
    r"@|matmul|linear|conv|einsum|\b(?:bad)?d?b?mm\(|addmm|attention|lstm|gru|rnn|pool|embedding|dropout|gelu|tanh|"
    r"\b(?:exp|sin|cos|erf|log)\(|fft|sort|topk|gather|scatter|index|numpy|\bnp\.",
    re.IGNORECASE,
)


def vectored_ns(tables: Tables) -> dict[Phase, int]:
    """Return the steady ns by phase that torch's vector code takes, at most: of the backward pass the forward's part.

    A line that computes both kinds counts for the other. An optimizer's step is arithmetic on each number.
    """
    computed = {phase: tables.steady_parts.get((phase, Activity.COMPUTE), 0) for phase in Phase}
    part = _part(tables)
    return {
        Phase.FORWARD: int(part * computed[Phase.FORWARD]),
        Phase.BACKWARD: int(part * computed[Phase.BACKWARD]),
        Phase.OPTIMIZER: computed[Phase.OPTIMIZER],
    }


def _part(tables: Tables) -> float:
    """Return the part of the forward pass's computing that is such code."""
    lines = [hot for hot in tables.lines if hot.phase is Phase.FORWARD and hot.part_ns(Activity.COMPUTE)]
    total_ns = sum(hot.part_ns(Activity.COMPUTE) for hot in lines)
    if sum(hot.samples for hot in lines) < LEAST_SAMPLES or not total_ns:
        return UNTOLD
    return sum(hot.part_ns(Activity.COMPUTE) * _of_line(hot) for hot in lines) / total_ns


def _of_line(hot: HotLine) -> float:
    """Return the part of a line's time in which samples show such code; none where nothing is known of what it called."""
    own = 0.0 if _ELSEWHERE.search(hot.line.code.partition("#")[0]) else 1.0
    return sum(share * (own if not names else not _ELSEWHERE.search(names[-1])) for names, share in hot.paths)
