"""A method of a class of the script gets a decorator, in source and live alike."""

import copy
import json

import pytest
import torch

from unstall.model.codec import edit_from_json, edit_to_json
from unstall.model.remedy import Decorate, Named
from unstall.remedies.override import NotReachable, applied, awaited
from unstall.remedies.patch import NotPatchable, patched

HEAD = '"""A net."""\nimport functools\nimport torch\nfrom torch import nn\n'
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)
"""
NEW = '    @torch.autocast("cpu", dtype=torch.bfloat16)\n'
ROUND = "def same(f):\n    return functools.wraps(f)(lambda *args: f(*args))\n"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a script and returns what it defines, and another that makes the edit of a line of it."""
    file = tmp_path / "train.py"

    def run(source):
        known = {"__name__": "__main__"}
        exec(compile(source, str(file), "exec"), known)
        return known

    def edit(source, text, **given):
        file.write_text(source)
        line = next(n for n, row in enumerate(source.splitlines(), 1) if text in row)
        return Decorate(
            str(file), line, "forward", "torch.autocast", ("cpu",), (("dtype", Named("torch.bfloat16")),), **given
        )

    run.file, run.edit = file, edit
    return run


def kind_of(known):
    """Return the type of what the net gives for float32."""
    return known["Net"]()(torch.ones(2, 4)).dtype


SOURCES = [
    (HEAD + NET, "def forward"),
    (HEAD + ROUND + NET.replace("    def forward", "    @same\n    def forward"), "@same"),
    (HEAD + "if True:\n" + "".join(f"    {line}\n" if line else "\n" for line in NET.splitlines()), "def forward"),
    ((HEAD + NET).replace("\n", "\r\n"), "def forward"),
]


@pytest.mark.parametrize("source, text", SOURCES)
def test_the_patch_does_what_the_override_does(run, source, text):
    edit = run.edit(source, text)
    new = patched(source, [edit], run.file)
    (added,) = set(new.splitlines()) - set(source.splitlines())
    assert added.strip() == NEW.strip() and len(new.splitlines()) == len(source.splitlines()) + 1
    assert patched(new, [edit], run.file) == new
    assert kind_of(run(source)) is torch.float32
    met = []
    with applied([edit], met.append):
        live = run(source)
        assert kind_of(live) is kind_of(run(new)) is torch.bfloat16
    assert met and "__init_subclass__" not in vars(torch.nn.Module)
    assert kind_of(live) is torch.float32  # put back


def test_it_is_put_on_a_class_that_is_there_already_and_on_copies_by_their_class(run):
    edit = run.edit(HEAD + NET, "def forward")
    known = run(HEAD + NET)
    net, twin = known["Net"](), copy.deepcopy(known["Net"]())
    with applied([edit]):
        twin.layer.weight.data.zero_()
        twin.layer.bias.data.zero_()
        assert twin(torch.ones(1, 4)).dtype is torch.bfloat16 and not twin(torch.ones(1, 4)).any()
        assert net(torch.ones(1, 4)).any()


def test_only_the_method_of_the_line_is_changed(run):
    other = NET.replace("Net", "Other")
    edit = run.edit(HEAD + NET + other, "def forward")
    with applied([edit]):
        known = run(HEAD + NET + other)
    assert known["Other"]()(torch.ones(2, 4)).dtype is torch.float32
    assert patched(HEAD + NET + other, [edit], run.file) == HEAD + NET.replace("    def f", NEW + "    def f") + other


@pytest.mark.parametrize(
    "source, text, why",
    [
        (HEAD + NET, "return self", "no method forward begins there"),
        (HEAD + ROUND + NET.replace("    def forward", "    @same\n    def forward"), "def forward", "no method"),
        ("from torch import nn\n" + NET, "def forward", "does not import torch"),
        (HEAD + NET.replace("    def f", '    @torch.autocast("cpu")\n    def f'), "@torch", "in another way"),
        (HEAD + "def forward(self, x):\n    return x\n", "def forward", "no method"),
    ],
)
def test_what_cannot_be_written_is_not_tried(run, source, text, why):
    edit = run.edit(source, text)
    with pytest.raises(NotPatchable, match=why):
        patched(source, [edit], run.file)
    with pytest.raises(NotPatchable, match=why), applied([edit]):
        pass


def test_a_class_that_cannot_be_watched_is_refused(run):
    with (
        pytest.raises(NotReachable, match="can be imported"),
        applied([run.edit(HEAD + NET, "def f", made="no.Such")]),
    ):
        pass


def test_it_goes_through_json_and_waits_for_torch(run):
    edit = run.edit(HEAD + NET, "def forward")
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit
    assert awaited(edit) == "torch"
