"""Statements at the head of a file: behind its imports, in its own words, once; live they hold at once and are undone."""

import logging
import sys
import types

import pytest

from unstall.model.codec import NotAPlan, edit_from_json, edit_to_json
from unstall.model.remedy import AddCall, Members, RemoveCall, SetAttribute, SetKeyword
from unstall.remedies.override import NotReachable, applied, awaited
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
now = {"size": 1, "pair": (1, 2)}
def get_size(): return now["size"]
def set_size(n): now["size"] = n
def get_pair(): return now["pair"]
def set_pair(a, b=0): now["pair"] = a, b
def set_blindly(n): pass
class flags:
    fast = False
"""
SIZE, FAST = AddCall("train.py", "drawn_head.set_size", (4,)), SetAttribute("train.py", "drawn_head.flags.fast", True)
# the file, and where the statement is to stand in it
WRITINGS = [
    (
        "import drawn_head\nx = 1\n",
        "import drawn_head\n\ndrawn_head.set_size(4)\nx = 1\n",
    ),
    (
        '"""Trains."""\n\nfrom __future__ import annotations\n\nimport drawn_head as h  # head\nimport os\n\n\nx = 1\n',
        '"""Trains."""\n\nfrom __future__ import annotations\n\nimport drawn_head as h  # head\nimport os\n'
        "\nh.set_size(4)\n\n\nx = 1\n",
    ),
    (
        "import os\n\nos.environ['A'] = '1'\nimport drawn_head\nfrom os import (\n    path,\n)\nx = 1\n",
        "import os\n\nos.environ['A'] = '1'\nimport drawn_head\nfrom os import (\n    path,\n)\n"
        "\ndrawn_head.set_size(4)\nx = 1\n",
    ),
    ("import os\nx = 1\n", "import os\nimport drawn_head\ndrawn_head.set_size(4)\nx = 1\n"),
    ("from drawn_head import flags\n", "from drawn_head import flags\nimport drawn_head\ndrawn_head.set_size(4)\n"),
    ("x = 1\n", "import drawn_head\ndrawn_head.set_size(4)\nx = 1\n"),
    ("", "import drawn_head\ndrawn_head.set_size(4)\n"),
    ("import drawn_head", "import drawn_head\n\ndrawn_head.set_size(4)\n"),
    ("import drawn_head\r\nx = 1\r\n", "import drawn_head\r\n\r\ndrawn_head.set_size(4)\r\nx = 1\r\n"),
    (
        "try:\n    import tqdm\nexcept ImportError:\n    tqdm = None\nimport drawn_head\ndef f():\n    import os\n",
        "try:\n    import tqdm\nexcept ImportError:\n    tqdm = None\nimport drawn_head\n"
        "\ndrawn_head.set_size(4)\ndef f():\n    import os\n",
    ),
]


@pytest.fixture
def library(monkeypatch):
    library = types.ModuleType("drawn_head")
    exec(LIBRARY, vars(library))
    monkeypatch.setitem(sys.modules, "drawn_head", library)
    return library


def ran(source, library):
    """Return what holds where *source* has run."""
    exec(compile(source, "train.py", "exec"), {"__name__": "__main__"})
    return {**library.now, "fast": library.flags.fast}


@pytest.mark.parametrize("source, wanted", WRITINGS)
def test_the_statement_stands_behind_the_imports_and_does_what_the_override_does(library, source, wanted):
    assert patched(source, [SIZE], "train.py") == wanted
    met = []
    with applied([SIZE], met.append):
        live = ran(source, library)
        assert live["size"] == 4 and met == [0]
    assert library.get_size() == 1
    assert ran(wanted, library) == live
    assert patched(wanted, [SIZE], "train.py") == wanted


def test_an_attribute_is_set_and_put_back(library):
    source = "import os\nfrom drawn_head import flags\n"
    new = patched(source, [FAST], "train.py")
    assert new == source + "\nflags.fast = True\n"
    with applied([FAST]):
        live = ran(source, library)
    assert library.flags.fast is False
    assert ran(new, library) == live and live["fast"] is True


def test_a_value_of_several_parts_is_put_back(library):
    with applied([AddCall("train.py", "drawn_head.set_pair", (7,))]):
        assert library.get_pair() == (7, 0)
    assert library.get_pair() == (1, 2)


def test_a_call_without_a_way_back_is_refused_and_nothing_is_called(library):
    edits = [AddCall("train.py", "drawn_head.set_blindly", (1,)), SIZE]
    with pytest.raises(NotReachable, match="could not be undone"):
        applied(edits).__enter__()
    assert library.get_size() == 1


@pytest.mark.parametrize(
    "source, edit",
    [
        ("import drawn_head as h\ndef f():\n    h.set_size(2)\n", SIZE),
        ("from drawn_head import set_size\nset_size(2)\n", SIZE),
        ("import drawn_head\ndrawn_head.flags.fast = False\n", FAST),
        ("drawn_head = None\n", SIZE),
        ("def f():\n    import drawn_head\n", SIZE),
        ("import drawn_head; x = 1\n", SIZE),
    ],
)
def test_a_file_that_does_so_otherwise_is_refused(source, edit):
    with pytest.raises(NotPatchable, match=r"^train\.py:1: "):
        patched(source, [edit], "train.py")


def test_the_override_refuses_where_the_file_goes_before_it(library, tmp_path):
    file = tmp_path / "train.py"
    file.write_text("import drawn_head as h\nh.set_size(2)\n")
    with pytest.raises(NotPatchable, match="line 2 does so already"):
        applied([AddCall(str(file), "drawn_head.set_size", (4,))]).__enter__()
    assert library.get_size() == 1


def test_lines_of_other_edits_are_those_of_the_file_as_it_was(library):
    source = "import drawn_head\ndrawn_head.set_pair(1)\nprint(drawn_head)\n"
    edits = [
        SIZE,
        SetKeyword("train.py", 2, "drawn_head.set_pair", "b", 5, 1),
        RemoveCall("train.py", 3, "print"),
        FAST,
    ]
    assert patched(source, edits, "train.py") == (
        "import drawn_head\n\ndrawn_head.flags.fast = True\n\ndrawn_head.set_size(4)\ndrawn_head.set_pair(1, b=5)\n"
    )


def test_strings_take_the_quotes_of_the_file():
    edit = AddCall("train.py", "torch.set_float32_matmul_precision", ("high",))
    assert patched('import torch\nx = "a"\n', [edit], "train.py") == (
        'import torch\n\ntorch.set_float32_matmul_precision("high")\nx = "a"\n'
    )


SAYS = SetAttribute("train.py", "drawn_head.flags.said", Members(("builtins.print", "logging.Logger.info")))


def test_a_set_of_functions_is_written_in_the_words_of_the_file():
    assert patched("import logging as log\nimport drawn_head\n", [SAYS], "train.py") == (
        "import logging as log\nimport drawn_head\n\ndrawn_head.flags.said = {print, log.Logger.info}\n"
    )


@pytest.mark.parametrize("source", ["import drawn_head\n", "import logging\nimport drawn_head\nprint = None\n"])
def test_a_set_of_what_the_file_does_not_import_or_calls_otherwise_is_refused(source):
    with pytest.raises(NotPatchable):
        patched(source, [SAYS], "train.py")


def test_a_set_of_functions_holds_the_functions_themselves(library):
    library.flags.said = set()
    with applied([SAYS]):
        assert library.flags.said == {print, logging.Logger.info}
    assert library.flags.said == set()


def test_settings_of_torch_hold_and_are_put_back():
    torch = pytest.importorskip("torch")
    edits = [
        AddCall("train.py", "torch.set_float32_matmul_precision", ("high",)),
        AddCall("train.py", "torch.multiprocessing.set_sharing_strategy", ("file_system",)),
        SetAttribute("train.py", "torch._dynamo.config.recompile_limit", 64),
    ]
    before = torch.get_float32_matmul_precision(), torch.multiprocessing.get_sharing_strategy()
    with applied(edits):
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.multiprocessing.get_sharing_strategy() == "file_system"
        assert torch._dynamo.config.recompile_limit == 64
    assert (torch.get_float32_matmul_precision(), torch.multiprocessing.get_sharing_strategy()) == before
    assert torch._dynamo.config.recompile_limit != 64


@pytest.mark.parametrize("edit", [SIZE, FAST, SAYS, AddCall("t.py", "gc.set_threshold", (50_000, 20, None))])
def test_read_of_write_is_identity(edit):
    import json

    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit


def test_arguments_that_are_no_plain_values_are_refused():
    with pytest.raises(NotAPlan):
        edit_from_json({"kind": "add-call", "file": "t.py", "call": "gc.set_threshold", "arguments": [[1]]})


def test_they_wait_for_their_module():
    assert awaited(SIZE) == "drawn_head" and awaited(FAST) == "drawn_head.flags"
    assert awaited(SetAttribute("", "torch._dynamo.config.recompile_limit", 1)) == "torch"
