"""A call is handed a list of all items of its argument, in source and live alike."""

import json
import sys
import types

import pytest

from unstall.model.codec import edit_from_json, edit_to_json
from unstall.model.remedy import ListItems, SetKeyword
from unstall.remedies.override import applied
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
made = []
class Loader:
    def __init__(self, dataset, size=1, sampler=None):
        self.dataset, self.size = dataset, size
    def rows(self): return [self.dataset[i] for i in range(len(self.dataset))]
class Data:
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, i):
        made.append(i)
        return 10 * i
def make(dataset, size=1): return Loader(dataset, size)
"""
HEAD = "import drawn_listing as lib\nfrom drawn_listing import Data, Loader\nsome = Data(2)\n"
EPOCHS = "seen = (loader.rows(), loader.rows(), loader.size, list(lib.made))\n"
WRITTEN = [
    ("loader = Loader(some, 4)  # <-\n", "loader = Loader([some[i] for i in range(len(some))], 4)  # <-\n"),
    ("loader = lib.Loader(size=4, dataset=some)  # <-\n",
     "loader = lib.Loader(size=4, dataset=[some[i] for i in range(len(some))])  # <-\n"),
    ("loader = Loader(  # <-\n    some,\n    size=4,\n)\n",
     "loader = Loader(  # <-\n    [some[i] for i in range(len(some))],\n    size=4,\n)\n"),
    ("loader = Loader(Data(2))  # <-\n",
     "loader = Loader([data[i] for data in [Data(2)] for i in range(len(data))])  # <-\n"),
    ("parts = {'train': some}\nloader = Loader(parts['train'])  # <-\n",
     "parts = {'train': some}\nloader = Loader([data[i] for data in [parts['train']] for i in range(len(data))])  # <-\n"),
    ("i = some\nloader = Loader(i)  # <-\n", "i = some\nloader = Loader([i[n] for n in range(len(i))])  # <-\n"),
    ("class Run:\n    data = Data(2)\n    loader = Loader(data)  # <-\nloader = Run.loader\n",
     "class Run:\n    data = Data(2)\n    loader = Loader([data[i] for data in [data] for i in range(len(data))])  # <-\n"
     "loader = Run.loader\n"),
    ("def run(data):\n    return Loader(data)  # <-\nloader = run(some)\n",
     "def run(data):\n    return Loader([data[i] for i in range(len(data))])  # <-\nloader = run(some)\n"),
    ("other = Loader(some)\nloader = lib.Loader(some)  # <-\n",
     "other = Loader(some)\nloader = lib.Loader([some[i] for i in range(len(some))])  # <-\n"),
]  # fmt: skip


@pytest.fixture
def did(monkeypatch, tmp_path):
    library = types.ModuleType("drawn_listing")
    exec(LIBRARY, vars(library))
    monkeypatch.setitem(sys.modules, "drawn_listing", library)
    file = tmp_path / "train.py"

    def did(source):
        library.made.clear()
        names = {"__name__": "__main__"}
        exec(compile(source + EPOCHS, str(file), "exec"), names)
        return names["seen"]

    did.file = file
    return did


def edit_of(source, did, call="drawn_listing.Loader"):
    did.file.write_text(HEAD + source)
    line = next(n for n, text in enumerate((HEAD + source).splitlines(), 1) if "# <-" in text)
    return ListItems(str(did.file), line, call, "dataset", 0)


@pytest.mark.parametrize("source, wanted", WRITTEN)
def test_items_are_made_once_and_come_out_the_same(did, source, wanted):
    edit = edit_of(source, did)
    new = patched(HEAD + source, [edit], did.file)
    with applied([edit]):
        live = did(HEAD + source)
    before = did(HEAD + source)
    assert new == HEAD + wanted
    assert did(new) == live
    assert before[:3] == live[:3] and (before[3], live[3]) == ([0, 1, 0, 1], [0, 1])
    assert patched(new, [edit], did.file) == new


def test_an_argument_of_a_function_is_listed_too(did):
    source = "loader = lib.make(some, size=3)  # <-\n"
    edit = edit_of(source, did, "drawn_listing.make")
    with applied([edit]):
        live = did(HEAD + source)
    assert live == did(patched(HEAD + source, [edit], did.file)) and live[3] == [0, 1]


def test_another_argument_of_the_call_can_be_set_too(did):
    source = "loader = Loader(some)  # <-\n"
    edit = edit_of(source, did)
    setting = SetKeyword(edit.file, edit.line, edit.call, "size", 4, 1)
    new = patched(HEAD + source, [setting, edit], did.file)
    assert new == HEAD + "loader = Loader([some[i] for i in range(len(some))], size=4)  # <-\n"
    with applied([setting, edit]):
        assert did(HEAD + source) == did(new)


@pytest.mark.parametrize(
    "source, why",
    [
        ("loader = Loader(*[some])  # <-\n", r"\*args"),
        ("loader = Loader(**{'dataset': some})  # <-\n", "not written in the call"),
        ("loader = Loader(some)  # <-\nprint(loader.dataset.count)\n", "loader.dataset.count"),
        ("loader = Loader(x := some)  # <-\n", "does more"),
        ("loaders = [Loader(some), Loader(some)]  # <-\n", "2 such calls"),
    ],
)
def test_what_cannot_be_written_is_not_tried(did, source, why):
    edit = edit_of(source, did)
    with pytest.raises(NotPatchable, match=why):
        patched(HEAD + source, [edit], did.file)
    with pytest.raises(NotPatchable, match=why):
        applied([edit]).__enter__()


def test_the_length_of_what_is_held_is_no_more_than_a_list_has(did):
    source = "loader = Loader(some)  # <-\nprint(len(loader.dataset))\n"
    assert "[some[i]" in patched(HEAD + source, [edit_of(source, did)], did.file)


def test_read_of_write_is_identity():
    edit = ListItems("train.py", 3, "torch.utils.data.DataLoader", "dataset", 0)
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit
