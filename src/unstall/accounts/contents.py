"""What the batches of a loader hold, as the recorder saw in the few that it looked at."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from unstall.accounts.code import is_users
from unstall.model.loading import Padding
from unstall.model.run import Facts, Rank

LEAST_LOOKS = 2  # one batch may be any
_PACKS = re.compile(
    r"pack_padded_sequence|pack_sequence|nested_tensor|unpad_input|varlen|cu_seqlens|flex_attention|BlockMask"
)


def padding_of(facts: Facts, rank: Rank) -> Padding | None:
    """Return how the batches are padded, from the facts ``contents:K``; None where most of them are not."""
    looks, padded = int(facts.number("looks") or 0), int(facts.number("padded_looks") or 0)
    width, length, longest, part = (facts.number(name) for name in ("width", "length", "longest", "part"))
    if padded < max(LEAST_LOOKS, looks / 2) or width is None or length is None or longest is None or part is None:
        return None
    return Padding(width, length, longest, part, facts.flag("same_width") is True, padded, _packs(rank))


def _packs(rank: Rank) -> bool:
    """Return whether a file of the user's that was seen at work packs its rows before it computes with them."""
    stacks = rank.samples.stacks if rank.samples is not None else ()
    files = {place.file for stack in stacks for place in stack if is_users(place.file)}
    return any(_names_packing(file) for file in files)


@functools.lru_cache(maxsize=256)
def _names_packing(file: str) -> bool:
    try:
        return bool(_PACKS.search(Path(file).read_text(errors="replace")))
    except OSError:
        return False
