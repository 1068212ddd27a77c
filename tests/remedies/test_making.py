"""What a call makes is handed to a wrapper, or gets a call of its own, in source and live alike."""

import json
import sys
import types
from dataclasses import replace

import pytest

from unstall.model.codec import NotAPlan, edit_from_json, edit_to_json
from unstall.model.remedy import CallMethod, Named, SetKeyword, WrapCall
from unstall.remedies.override import applied
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
did = []
class Base:
    def __init__(self): self.made = type(self).__name__
    def to(self, *where): return self
    def ready(self, **given): did.append(("ready", self.made, sorted(given.items())))
class Layer(Base):
    def __init__(self, size=1):
        super().__init__()
        did.append(("layer", size))
class Box:
    def __init__(self, inner): self.made = "box of " + inner.made
    def ready(self): did.append(("ready", self.made))
def boxed(inner, **given):
    did.append(("boxed", inner.made, sorted(given.items())))
    return Box(inner)
def same(inner):
    did.append(("same", inner.made))
    return inner
def build(size):
    return Layer(size)
class Makers:
    @classmethod
    def load(cls, size): return Layer(size)
FAST = "fast"
"""
HEAD = """\
import drawn_making as lib
from drawn_making import Base, Layer
class Net(Base):
    def __init__(self, size, *layers):
        super().__init__()
        self.inner = [Layer(size), Layer(size)]
        lib.did.append(("net", size))
    def copy(self): return Net(0)
class Heir(Net): pass
class Own(Layer):
    def __new__(cls, *args): return super().__new__(cls)
"""
AFTER = "lib.did.append(sorted(str(type(v).__name__) for k, v in globals().items() if k in 'model other'.split()))\n"
WRAPPED = [
    ("model = Net(8)  # <-\n", "Net", "model = lib.boxed(Net(8))  # <-\n"),
    ("model = Heir(\n    8,  # <- ?\n)\n", "Heir", "model = lib.boxed(Heir(\n    8,  # <- ?\n))\n"),
    ("other, model = Net(1), Heir(2)  # <-\n", "Heir", "other, model = Net(1), lib.boxed(Heir(2))  # <-\n"),
    ("model = Net(3, Layer(4)).to('x')  # <-\n", "Net", None),
    ("def f(): return Net(5)  # <-\nmodel = f()\n", "Net", "def f(): return lib.boxed(Net(5))  # <-\nmodel = f()\n"),
    ("model = lib.Layer(6)  # <-\n", "drawn_making.Layer", "model = lib.boxed(lib.Layer(6))  # <-\n"),
    ("model = [Net(n) for n in (1, 2)]  # <-\n", "Net", "model = [lib.boxed(Net(n)) for n in (1, 2)]  # <-\n"),
]
FOLLOWED = [
    ("model = Net(8)  # <-\n", "Net", "model = Net(8)  # <-\nmodel.ready()\n"),
    ("model = Net(8)  # <-", "Net", "model = Net(8)  # <-\nmodel.ready()\n"),
    ("model = Net(8).to('x').to('y')  # <-\nx = 1\n", "Net", "model = Net(8).to('x').to('y')  # <-\nmodel.ready()\nx = 1\n"),
    ("if True: model = Net(8)  # <-\n", "Net", "if True: model = Net(8); model.ready()  # <-\n"),
    ("x = 1; model = Heir(8)  # <-\n", "Heir", "x = 1; model = Heir(8); model.ready()  # <-\n"),
    ("model = Net(8); x = 1  # <-\n", "Net", "model = Net(8); model.ready(); x = 1  # <-\n"),
    ("model = Net(8);  # <-\n", "Net", "model = Net(8); model.ready();  # <-\n"),
    ("model: Net = Net(  # <-\n    8)\n", "Net", "model: Net = Net(  # <-\n    8)\nmodel.ready()\n"),
    ("for n in (1, 2):\n    model = Layer(n)  # <-\n", "drawn_making.Layer",
     "for n in (1, 2):\n    model = Layer(n)  # <-\n    model.ready()\n"),
    ("class A:\n    def f(self):\n        self.net = Net(1)  # <-\nA().f()\n", "Net",
     "class A:\n    def f(self):\n        self.net = Net(1)  # <-\n        self.net.ready()\nA().f()\n"),
    ("other = model = Net(8)  # <-\n", "Net", "other = model = Net(8)  # <-\nmodel.ready()\n"),
    ("with open('/dev/null'):\n    model = Net(8)  # <-\n", "Net",
     "with open('/dev/null'):\n    model = Net(8)  # <-\n    model.ready()\n"),
]  # fmt: skip


@pytest.fixture
def did(monkeypatch, tmp_path):
    library = types.ModuleType("drawn_making")
    library.__file__ = str(tmp_path / "drawn_making.py")
    monkeypatch.setitem(sys.modules, "drawn_making", library)
    exec(compile(LIBRARY, "drawn_making.py", "exec"), vars(library))
    file = tmp_path / "train.py"

    def did(source):
        library.did.clear()
        exec(compile(source, str(file), "exec"), {"__name__": "__main__"})
        return list(library.did)

    did.file = file
    return did


def edit_of(kind, source, did, call, *what, **options):
    did.file.write_text(HEAD + source)
    line = next(n for n, text in enumerate((HEAD + source).splitlines(), 1) if "# <-" in text)
    if source.startswith("model = Heir(\n"):
        line -= 1
    return kind(str(did.file), line, call, *what, **{"made": "drawn_making.Base", **options})


def check_alike(did, source, edit, wanted):
    """Hold that the patch is *wanted*, does what the override does, and is left alone by the edit."""
    source, new = HEAD + source, patched(HEAD + source, [edit], did.file)
    assert new == HEAD + wanted
    with applied([edit]):
        live = did(source + ("" if source.endswith("\n") else "\n") + AFTER)
    assert live == did(new + AFTER) != did(source + "\n" + AFTER)
    assert patched(new, [edit], did.file) == new


@pytest.mark.parametrize("source, call, wanted", WRAPPED)
def test_what_is_made_is_handed_to_the_wrapper(did, source, call, wanted):
    edit = edit_of(WrapCall, source, did, call, "drawn_making.boxed")
    if wanted is None:  # a box has no method `to`: both fail alike
        with applied([edit]), pytest.raises(AttributeError):
            did(HEAD + source)
        with pytest.raises(AttributeError):
            did(patched(HEAD + source, [edit], did.file))
        return
    check_alike(did, source, edit, wanted)


@pytest.mark.parametrize("source, call, wanted", FOLLOWED)
def test_a_method_of_what_is_made_is_called_behind_the_statement(did, source, call, wanted):
    edit = edit_of(CallMethod, source, did, call, "ready")
    check_alike(did, source, edit, wanted)


def test_a_wrapper_that_returns_what_it_was_given_does_not_make_it_twice(did):
    source = "model = Net(8)  # <-\n"
    edit = edit_of(WrapCall, source, did, "Net", "drawn_making.same")
    with applied([edit]):
        live = did(HEAD + source)
        assert did(HEAD + source) == live
    assert live == [("layer", 8), ("layer", 8), ("net", 8), ("same", "Net")]


def test_keywords_are_written_as_the_file_names_them(did):
    source = "model = Net(8)  # <-\n"
    given = (("size", 2), ("how", Named("drawn_making.FAST")), ("word", "x"))
    edit = edit_of(WrapCall, source, did, "Net", "drawn_making.boxed", given)
    check_alike(did, source, edit, 'model = lib.boxed(Net(8), size=2, how=lib.FAST, word="x")  # <-\n')
    edit = edit_of(CallMethod, source, did, "Net", "ready", given)
    check_alike(did, source, edit, 'model = Net(8)  # <-\nmodel.ready(size=2, how=lib.FAST, word="x")\n')


@pytest.mark.parametrize("call", ["drawn_making.build", "drawn_making.Makers.load"])
def test_what_a_function_makes_is_changed_too(did, call):
    written = call.replace("drawn_making", "lib")
    source = f"model = {written}(8)  # <-\n"
    edit = edit_of(WrapCall, source, did, call, "drawn_making.boxed", made="")
    check_alike(did, source, edit, f"model = lib.boxed({written}(8))  # <-\n")
    edit = edit_of(CallMethod, source, did, call, "ready", made="")
    check_alike(did, source, edit, f"model = {written}(8)  # <-\nmodel.ready()\n")


def test_only_the_call_on_the_line_is_changed(did):
    source = "other = Net(7)\nmodel = Net(8)  # <-\nlast = model.copy()\n"
    edit = edit_of(CallMethod, source, did, "Net", "ready")
    with applied([edit]):
        live = did(HEAD + source)
    assert [what for what in live if what[0] == "ready"] == [("ready", "Net", [])]
    assert live.index(("ready", "Net", [])) == live.index(("net", 8)) + 1


@pytest.mark.parametrize(
    "kind, source, call",
    [
        (CallMethod, "print(Net(8))  # <-\n", "Net"),
        (CallMethod, "model = lib.boxed(Net(8))  # <-\n", "Net"),
        (CallMethod, "model = Net(8).copy()  # <-\n", "Net"),
        (CallMethod, "model, other = Net(8), 1  # <-\n", "Net"),
        (CallMethod, "def f(): return Net(8)  # <-\nmodel = f()\n", "Net"),
        (CallMethod, "models = {}; models[0] = Net(8)  # <-\n", "Net"),
        (WrapCall, "model = [Net(1), Net(2)]  # <-\n", "Net"),
        (WrapCall, "model = Layer(1)  # <-\n", "Net"),
    ],
)
def test_what_cannot_be_written_is_not_tried(did, kind, source, call):
    what = "ready" if kind is CallMethod else "drawn_making.boxed"
    edit = edit_of(kind, source, did, call, what)
    with pytest.raises(NotPatchable):
        patched(HEAD + source, [edit], did.file)
    with pytest.raises(NotPatchable):
        applied([edit]).__enter__()


def test_a_wrapper_that_the_file_does_not_import_is_refused(did):
    source = "model = Net(8)  # <-\n"
    edit = edit_of(WrapCall, source, did, "Net", "torch.compile")
    for attempt in (lambda: patched(HEAD + source, [edit], did.file), applied([edit]).__enter__):
        with pytest.raises(NotPatchable, match="does not import torch"):
            attempt()


def test_two_methods_are_called_in_one_order_in_source_and_live(did):
    source = "model = Net(8).to('x')  # <-\nmodel.to('y')\n"
    edits = [edit_of(CallMethod, source, did, "Net", "ready", (("n", n),)) for n in (1, 2)]
    new = patched(HEAD + source, edits, did.file)
    with applied(edits):
        live = did(HEAD + source)
    assert did(new) == live and live[-2:] == [("ready", "Net", [("n", 2)]), ("ready", "Net", [("n", 1)])]
    assert patched(new, edits, did.file) == new


def test_an_argument_of_the_same_call_can_be_set_too(did):
    source = "model = Net(8)  # <-\n"
    edit = edit_of(CallMethod, source, did, "Net", "ready")
    setting = SetKeyword(edit.file, edit.line, "Net", "size", 9, 0)
    assert patched(HEAD + source, [edit, setting], did.file) == HEAD + "model = Net(9)  # <-\nmodel.ready()\n"


def test_a_class_with_a_new_of_its_own_is_made_as_it_was(did):
    source = "model = Own(6)  # <-\n"
    edit, met = edit_of(WrapCall, source, did, "Own", "drawn_making.boxed"), []
    with applied([edit], met.append):
        live = did(HEAD + source)
    assert (live, met) == ([("layer", 6)], [])


def test_classes_are_made_as_before_once_undone(did):
    source = "model = Net(8)  # <-\n"
    before = did(HEAD + source)
    with applied([edit_of(WrapCall, source, did, "Net", "drawn_making.boxed")]):
        pass
    assert did(HEAD + source) == before


@pytest.mark.parametrize(
    "edit",
    [
        WrapCall("train.py", 3, "Net", "torch.compile", (("dynamic", False), ("mode", None))),
        CallMethod("train.py", 3, "Net", "to", (("memory_format", Named("torch.channels_last")),), made=""),
    ],
)
def test_read_of_write_is_identity(edit):
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit


@pytest.mark.parametrize(
    "keywords", [3, [3], [["a"]], [[1, 2]], [["a", [1]]], [["a", {"name": "x"}]], [["a", {"path": 3}]]]
)
def test_a_plan_with_other_keywords_is_refused(keywords):
    record = {**edit_to_json(CallMethod("t.py", 1, "Net", "to")), "keywords": keywords}
    with pytest.raises(NotAPlan):
        edit_from_json(record)


def test_a_compiled_module_keeps_the_names_of_its_parameters(tmp_path):
    torch = pytest.importorskip("torch")
    source = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x).relu()
torch.manual_seed(0)
model = Net()
y = model(torch.ones(2, 4))
names = list(model.state_dict())
"""
    file = tmp_path / "train.py"
    file.write_text(source)
    edit = CallMethod(str(file), 9, "Net", "compile", (("backend", "aot_eager"),))
    new = patched(source, [edit], file)
    assert "model = Net()\nmodel.compile(backend=" in new
    torch._dynamo.reset()
    seen = []
    for text, edits in ((source, []), (new, []), (source, [edit])):
        torch._dynamo.utils.counters.clear()
        names = {"__name__": "__main__"}
        with applied(edits):
            exec(compile(text, str(file), "exec"), names)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        seen.append((names["names"], graphs, names["y"].tolist()))
    plain, written, live = seen
    assert plain[0] == written[0] == live[0] == ["layer.weight", "layer.bias"]
    assert (plain[1], written[1], live[1]) == (0, 1, 1)
    assert written[2] == live[2]


PLAIN = """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
y = model(torch.ones(2, 3, 6, 6))
follows = y.is_contiguous(memory_format=torch.channels_last)
"""


@pytest.mark.parametrize(
    "edit, graphs, follows",
    [
        (WrapCall("", 4, "torch.nn.Sequential", "torch.compile", (("backend", "aot_eager"),)), 1, False),
        (CallMethod("", 4, "torch.nn.Sequential", "compile", (("backend", "aot_eager"),)), 0, False),
        (CallMethod("", 4, "torch.nn.Sequential", "to", (("memory_format", Named("torch.channels_last")),)), 0, True),
    ],
)
def test_what_the_page_says_of_modules_of_torch_holds(tmp_path, edit, graphs, follows):
    torch = pytest.importorskip("torch")
    file = tmp_path / "train.py"
    file.write_text(PLAIN)
    edit = replace(edit, file=str(file))
    seen = []
    for text, edits in ((patched(PLAIN, [edit], file), []), (PLAIN, [edit])):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        names = {"__name__": "__main__"}
        with applied(edits):
            exec(compile(text, str(file), "exec"), names)
        seen.append((torch._dynamo.utils.counters["stats"]["unique_graphs"], names["follows"]))
    assert seen == [(graphs, follows)] * 2
