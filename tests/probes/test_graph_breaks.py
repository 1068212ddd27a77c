"""What the probe reads out of the compiler's report of a graph break."""

from __future__ import annotations

import pytest

from unstall.probes.compiling import broken_at, reason_of

ITEM = """\
Graph break in user code at /work/train.py:16
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()`.
  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`.

User code traceback:
  File "/work/train.py", line 59, in <module>
    loss = model(x)
  File "/work/train.py", line 16, in forward
    most = x.max().item()

Traceback (most recent call last):
  File "/work/elsewhere.py", line 1, in call
    raise
"""
BRANCH = """\
Graph break in user code at /work/train.py:38
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching.

User code traceback:
  File "/work/train.py", line 38, in forward
    if x.sum() > 0:
"""
IN_LIBRARY = BRANCH.replace(
    "    if x.sum() > 0:\n",
    '    log("x")\n  File "/env/site-packages/logs/__init__.py", line 7, in log\n    if level:\n',
)
OLD = "Graph break in user code at /work/train.py:3\nReason: Unsupported: builtin print\nUser code traceback:\n" + (
    '  File "/work/train.py", line 3, in f\n    print(x)\n'
)


@pytest.mark.parametrize(
    ("report", "line", "kind"),
    [
        (ITEM, "/work/train.py:16:forward", "Unsupported Tensor.item() call with capture_scalar_outputs=False"),
        (BRANCH, "/work/train.py:38:forward", "Data-dependent branching"),
        (IN_LIBRARY, "/work/train.py:38:forward", "Data-dependent branching"),
        (OLD, "/work/train.py:3:f", "Unsupported: builtin print"),
    ],
)
def test_the_innermost_line_of_the_user_and_the_compilers_words_are_kept(report: str, line: str, kind: str) -> None:
    assert broken_at(report)[0] == line
    assert reason_of(report).startswith(kind)


def test_a_break_in_a_library_names_its_frame_as_well() -> None:
    assert broken_at(IN_LIBRARY)[1] == "/env/site-packages/logs/__init__.py:7:log"
    assert broken_at(BRANCH)[1] == ""


def test_a_report_in_other_words_is_no_error() -> None:
    assert broken_at("") == ("", "")
    assert reason_of("") == ""
    assert reason_of("something new") == "something new"
