"""What the probe keeps of an error that the compiler hides."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from unstall.probes.compiling import Compiling, error_of

HIDDEN = """\
WON'T CONVERT loss_of /work/train.py line 17\x20
due to:\x20
Traceback (most recent call last):
  File "/env/site-packages/torch/_dynamo/output_graph.py", line 1446, in _call_user_compiler
    compiled_fn = compiler_fn(gm, self.example_inputs())
torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:
InvalidCxxCompiler: No working C++ compiler found in config.cpp.cxx

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


class _Probe:
    on = True

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def guard(self) -> _Probe:
        return self


def heard(message: str) -> list[dict[str, object]]:
    """Return the facts that the probe keeps of a record with *message*."""
    told: list[dict[str, object]] = []
    probe = Compiling.__new__(Compiling)
    probe.probe = _Probe()  # type: ignore[assignment]
    probe.recorder = SimpleNamespace(fact=told.append, step=3)  # type: ignore[assignment]
    probe.limits = probe.failures = 0
    assert probe.overhear(logging.LogRecord("torch", logging.WARNING, "", 0, message, None, None)), "the record goes on"
    return told


def test_the_error_and_what_raised_it_are_kept() -> None:
    assert error_of(HIDDEN) == (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised: "
        "InvalidCxxCompiler: No working C++ compiler found in config.cpp.cxx"
    )


def test_a_hidden_error_is_told_with_its_function() -> None:
    (fact,) = heard(HIDDEN)
    (about,) = fact.values()
    assert isinstance(about, dict)
    assert (about["frame"], about["step"]) == ("/work/train.py:17:loss_of", 3)


@pytest.mark.parametrize(
    "message", ["compiling", "Graph break in user code: WON'T CONVERT loss_of /work/train.py line 17", ""]
)
def test_other_words_of_the_compiler_are_no_error(message: str) -> None:
    assert heard(message) == []


def test_an_error_in_other_words_is_no_error_of_ours() -> None:
    assert error_of("") == ""
    assert error_of("something new") == ""
