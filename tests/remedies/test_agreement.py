"""A script run under the override does what the patched script does."""

import gc
import sys
import types
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.remedy import RemoveCall, SetKeyword, WrapCall
from unstall.remedies.override import applied
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
did = []
def call(a=0, b=0, c=0):
    did.append(("call", a, b, c))
    return len(did)
class Made:
    def __init__(self, a=0, b=0, c=0): did.append(("made", a, b, c))
class On:
    def __init__(self, b=0): did.append(("on", b))
    def __enter__(self): did.append("enter")
    def __exit__(self, *error): did.append("exit")
def wrap(x, n):
    did.append(("wrap", n))
    return x
def decorate(function=None, *, b=0):
    if function is None:
        return lambda function: decorate(function, b=b)
    did.append(("decorate", function.__name__, b))
    return function
"""
STATEMENTS = (
    "lib.call(1)",
    "x = call(\n    1,\n    b=2,\n)",
    "x = call(2, 3)",
    "call(1); lib.call(2)",
    "x = [call(n) for n in range(2)]",
    "x = lib.call(len, b=3)",
    "if True: call(4)",
    "for n in range(2):\n    call(n)\n    call(n)",
    "with On(): call(5)",
    "with On():\n    text = '''\n    a'''\n    lib.call(text)",
    "with On(), lib.On():\n    call(6)",
    "with On() as x:\n    Made(7)",
    "@decorate\ndef f():\n    return call(8)\nf()",
    "@lib.decorate(b=1)\ndef g(): return Made(\n    9\n)\ng()",
    "class Sub(Made):\n    def __init__(self):\n        super().__init__(10)\nSub()",
    "x = (call(11)\n     , call(12))",
    "x = call(\n    call(13),\n)",
    "x = 1",
)
EDITS = st.sampled_from(["call", "Made", "On", "decorate"])


def did(source, file, library):
    library.did.clear()
    exec(compile(source, file, "exec"), {"__name__": "script"})
    return list(library.did)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame tells its line only")
@settings(deadline=None)  # the machine may be busy
@given(statements=st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4), name=EDITS, data=st.data())
def test_override_and_patch_agree(statements, name, data):
    source = "import drawn_library as lib\nfrom drawn_library import *\n" + "\n".join(statements) + "\n"
    line = data.draw(st.integers(3, source.count("\n")))
    with TemporaryDirectory() as folder:
        file = str(Path(folder, "script.py"))
        Path(file).write_text(source)
        path = "drawn_library." + name
        position = None if name == "decorate" else 0 if name == "On" else 1
        made = path if name in ("Made", "On") else ""
        edit = data.draw(
            st.sampled_from(
                [
                    SetKeyword(file, line, path, "b", 9, position),
                    RemoveCall(file, line, path),
                    WrapCall(file, line, path, "drawn_library.wrap", (("n", 1),), made),
                ]
            )
        )
        library = types.ModuleType("drawn_library")
        exec(LIBRARY, vars(library))
        sys.modules["drawn_library"] = library
        try:
            new = patched(source, [edit], file)
        except NotPatchable:
            if not isinstance(edit, SetKeyword):
                with pytest.raises(NotPatchable):
                    applied([edit]).__enter__()
            return
        else:
            with applied([edit]):
                overridden = did(source, file, library)
            assert overridden == did(new, file, library)
            assert did(source, file, library) == did(source, "elsewhere.py", library)
        finally:
            del sys.modules["drawn_library"]


SCRIPT = """\
import gc
import torch
from torch import compile as jit
from torch.utils.data import DataLoader

loader = DataLoader(
    list(range(8)),
    batch_size=4,
)
other = DataLoader(list(range(8)), 4, False, None, None, 0)
torch.set_num_threads(1)
threads = torch.get_num_threads()
gc.collect()
torch.autograd.set_detect_anomaly(True)
checked = torch.is_anomaly_enabled()
torch.autograd.set_detect_anomaly(False)
with torch.autograd.detect_anomaly(check_nan=False):
    inside = torch.is_anomaly_enabled()


@jit(backend="eager")
def f(x):
    return x * 2


@torch.compile
def g(x):
    return x * 3
"""
LOADER = "torch.utils.data.DataLoader"


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(
    "edit, changed",
    [
        (SetKeyword("", 6, LOADER, "num_workers", 2, 5), {"workers": (2, 0)}),
        (SetKeyword("", 10, LOADER, "num_workers", 2, 5), {"workers": (0, 2)}),
        (SetKeyword("", 11, "torch.set_num_threads", "int", 2, 0), {"threads": 2}),
        (RemoveCall("", 11, "torch.set_num_threads"), {"threads": 3}),
        (RemoveCall("", 13, "gc.collect"), {"collected": 0}),
        (RemoveCall("", 14, "torch.autograd.set_detect_anomaly"), {"checked": False}),
        (RemoveCall("", 17, "torch.autograd.detect_anomaly"), {"inside": False}),
        (
            SetKeyword("", 21, "torch.compile", "dynamic", True),
            {"compiled": [{"backend": "eager", "dynamic": True}, {}]},
        ),
        (SetKeyword("", 26, "torch.compile", "dynamic", True), {"compiled": [{"backend": "eager"}, {"dynamic": True}]}),
    ],
)
def test_they_agree_on_torch(tmp_path, monkeypatch, edit, changed):
    torch = pytest.importorskip("torch")
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    edit = replace(edit, file=str(file))
    compiled, collected = [], []

    def compile_(model=None, **options):  # torch.compile is slow; only its arguments matter here
        compiled.append(options)
        return model if model else lambda model: model

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))

    def outcome(source):
        threads = torch.get_num_threads()
        torch.set_num_threads(3)
        compiled.clear(), collected.clear()
        scope = {"__name__": "__main__"}
        exec(compile(source, str(file), "exec"), scope)
        torch.set_num_threads(threads)
        workers = scope["loader"].num_workers, scope["other"].num_workers
        told = {name: scope[name] for name in ("threads", "checked", "inside")}
        return {"workers": workers, "compiled": list(compiled), "collected": len(collected), **told}

    plain = outcome(SCRIPT)
    with applied([edit]):
        overridden = outcome(SCRIPT)
    assert overridden == {**plain, **changed}
    if edit.call != "torch.set_num_threads" or isinstance(edit, RemoveCall):
        assert outcome(patched(SCRIPT, [edit], file)) == overridden
    assert outcome(SCRIPT) == plain


def test_a_compiled_region_stays_whole_while_an_edit_is_in_force():
    torch = pytest.importorskip("torch")
    dynamo = pytest.importorskip("torch._dynamo")
    edits = [SetKeyword("<drawn>", 1, call, "dtype", None) for call in ("torch.sum", "torch.Tensor.sum")]
    with applied(edits):
        explained = dynamo.explain(lambda x: torch.sum(x) + x.sum())(torch.ones(3))
    assert explained.graph_break_count == 0
