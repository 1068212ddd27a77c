"""Take secrets out of what a report shows: arguments, settings, folders.

Reports are made to be shared.  What looks like a secret is replaced by ``***``; a
harmless value that is hidden by mistake costs less than a token that is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

HIDDEN = "***"
_SECRET_WORDS = frozenset(
    re.findall(
        r"\w+", "token secret password passwd pwd passphrase key apikey auth authorization credential credentials"
    )
)
_OPTION = re.compile(r"(?P<name>--?[A-Za-z][\w.-]*)(?P<rest>=.*)?", re.DOTALL)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)=(?P<value>[^\s;&|'\"]+|'[^']*'|\"[^\"]*\")")
_LOOKS_SECRET = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS access key id
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON web token
    r"|\b[0-9a-f]{40}\b"  # W&B key (a git commit id looks the same, and is hidden too)
)
_IN_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)


def redacted(argv: Iterable[str]) -> tuple[str, ...]:
    """Return *argv* with what looks like a secret replaced by ``***``, and the home folder by ``~``.

    Hidden are: the value of an option or assignment whose name ends in a word such as
    token, secret, password or key (``--token X``, ``--api-key=X``, ``wandb.key=X``, ``A_TOKEN=X``
    within a shell line); values in the shape of a known kind of key; passwords in URLs.
    """
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option = _OPTION.fullmatch(word)
        if hide_next and not word.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
            continue
        hide_next = bool(option and option["rest"] is None and is_secret_name(option["name"]))
        if option and option["rest"] is not None and is_secret_name(option["name"]):
            shown.append(f"{option['name']}={HIDDEN}")
        else:
            shown.append(redacted_value(word))
    return tuple(shown)


def redacted_value(text: str) -> str:
    """Return one value or shell line with secrets replaced by ``***``, and the home folder by ``~``."""
    text = _ASSIGNED.sub(lambda m: f"{m['name']}={HIDDEN}" if is_secret_name(m["name"]) else m[0], text)
    text = _IN_URL.sub(lambda m: f"{m['scheme']}{HIDDEN}@", text)
    text = _LOOKS_SECRET.sub(HIDDEN, text)
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = re.sub(re.escape(home) + r"(?=/|$)", "~", text)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether the last word of an option's or variable's name says that its value is secret."""
    words = re.split(r"[-_.]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return words[-1] in _SECRET_WORDS
