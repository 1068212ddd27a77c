"""Text for terminals that cannot show every character."""

from __future__ import annotations

import re

# One column for one column, so that what was aligned stays aligned.
_ASCII = str.maketrans(
    {
        "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": "=", "▎": "-", "▏": "-",
        "·": "|", "→": ">", "µ": "u", "…": "*", "─": "-", "–": "-", "×": "x", "•": "-",
    }
)  # fmt: skip


def fit(text: str, encoding: str | None) -> str:
    """Return *text* in characters that *encoding* has; bars of blocks become bars of ``#``.

    An unknown encoding is taken for ASCII.
    """
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        known = encoding or "ascii"
    except LookupError:
        known = "ascii"
    else:
        return text
    text = re.sub(r"   (\S[^\n]*)±", r"  \1+-", text)  # two columns for one, taken from the gap before it
    return text.replace("±", "+-").translate(_ASCII).encode(known, "replace").decode(known)
