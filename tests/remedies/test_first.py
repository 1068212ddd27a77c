"""The first argument is called in the place of the call it was handed to, in source and live alike."""

import json
import sys
import types

import pytest

from unstall.model.codec import edit_from_json, edit_to_json
from unstall.model.remedy import CallFirst
from unstall.remedies.override import NotReachable, applied
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
did = []
def through(function, *args, keep=True, **kwargs):
    did.append("through")
    return function(*args, **kwargs)
class Net:
    def __call__(self, *args, **kwargs):
        did.append(("called", args, kwargs))
        return self
    def made(self, *args, **kwargs): did.append(("made", args, kwargs))
class Holder:
    def __init__(self, function): pass
    def through(self, function): pass
net = Net()
nets = [net]
"""
HEAD = "import drawn_first\nfrom drawn_first import net, nets, through as call\n"
WRITINGS = [
    ("x = call(net, 1, keep=False)  # <-\n", "x = net(1)  # <-\n"),
    ("x = drawn_first.through(net, 1, keep=False, b=2)  # <-\n", "x = net(1, b=2)  # <-\n"),
    ("x = call(nets[0], keep=False)  # <-\n", "x = nets[0]()  # <-\n"),
    ("x = call(net)  # <-\n", "x = net()  # <-\n"),
    ("x = call(net, keep=False, b=2)  # <-\n", "x = net(b=2)  # <-\n"),
    ("x = call(net, b=2, keep=False, c=3)  # <-\n", "x = net(b=2, c=3)  # <-\n"),
    ("x = call(net, *(1, 2), keep=False)  # <-\n", "x = net(*(1, 2))  # <-\n"),
    ("x = call(lambda n: net(n), 1, keep=False)  # <-\n", "x = (lambda n: net(n))(1)  # <-\n"),
    ("x = call(net, 1,  # <- kept\n    b=2, keep=False)\n", "x = net(1,  # <- kept\n    b=2)\n"),
    ("y = [call(n, 1) for n in nets]  # <-\n", "y = [n(1) for n in nets]  # <-\n"),
]


@pytest.fixture
def did(monkeypatch, tmp_path):
    library = types.ModuleType("drawn_first")
    exec(LIBRARY, vars(library))
    library.through.__module__ = "drawn_first"
    monkeypatch.setitem(sys.modules, "drawn_first", library)
    file = tmp_path / "train.py"

    def did(source):
        library.did.clear()
        exec(compile(source, str(file), "exec"), {"__name__": "__main__"})
        return list(library.did)

    did.file = file
    return did


def edit_of(source, did, **options):
    did.file.write_text(source)
    marked = [n for n, text in enumerate(source.splitlines(), 1) if "# <-" in text]
    line = marked[0] if marked else HEAD.count("\n") + 1
    return CallFirst(str(did.file), line, "drawn_first.through", **{"dropped": ("keep",), **options})


@pytest.mark.parametrize("source, wanted", WRITINGS)
def test_the_first_argument_is_called_with_the_others(did, source, wanted):
    edit = edit_of(HEAD + source, did)
    with applied([edit]):
        live = did(HEAD + source)
    assert patched(HEAD + source, [edit], did.file) == HEAD + wanted
    assert did(HEAD + wanted) == live and "through" not in live
    assert patched(HEAD + wanted, [edit], did.file) == HEAD + wanted
    assert "through" in did(HEAD + source)


def test_rows_stay_as_they_were_written(did):
    source = HEAD + "x = call(\n    net,\n    1,\n    keep=False,\n)\n"
    assert patched(source, [edit_of(source, did)], did.file) == HEAD + "x = net(\n    1,\n)\n"


def test_a_method_of_the_first_argument_takes_its_place(did):
    source = HEAD + "call(net, b=2)  # <-\n"
    edit = edit_of(source, did, method="made", dropped=())
    with applied([edit]):
        live = did(source)
    new = patched(source, [edit], did.file)
    assert new == HEAD + "net.made(b=2)  # <-\n"
    assert did(new) == live == [("made", (), {"b": 2})]
    assert patched(new, [edit], did.file) == new


def test_a_method_of_the_name_of_the_call_is_what_the_edit_leads_to():
    edit = CallFirst("train.py", 2, "torch.compile", "compile")
    assert patched("import torch\ntorch.compile(net)\n", [edit], "train.py") == "import torch\nnet.compile()\n"
    assert patched("import torch\nnet.compile()\n", [edit], "train.py") == "import torch\nnet.compile()\n"


@pytest.mark.parametrize(
    "source",
    [
        "call(function=net)  # <-\n",
        "call(*nets)  # <-\n",
        "call(net, **{'keep': 1})  # <-\n",
        "call(net, 1,  # <-\n    keep=False)  \n".replace("1,  # <-", "b=1,  # <-"),
        "other(net)  # <-\n",
    ],
)
def test_what_is_not_written_out_is_refused(did, source):
    if source.startswith("other"):
        source = "x = 1  # <-\n"
    with pytest.raises(NotPatchable):
        patched(HEAD + source, [edit_of(HEAD + source, did)], did.file)


@pytest.mark.parametrize("call", ["drawn_first.Holder", "drawn_first.Holder.through"])
def test_a_class_or_a_method_is_not_passed_over(did, call):
    with pytest.raises(NotReachable):
        applied([CallFirst("train.py", 1, call)]).__enter__()


def test_read_of_write_is_identity():
    edit = CallFirst("train.py", 3, "torch.utils.checkpoint.checkpoint", dropped=("use_reentrant", "debug"))
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit
