"""A value is changed where it is defined, if nothing else uses it; else at the call; a mapping from elsewhere is refused."""

import sys
import types

import pytest

from unstall.model.remedy import SetKeyword
from unstall.remedies.override import applied
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
made = []
def load(data, batch=1, workers=-1):
    made.append((data, batch, workers))
"""
PARSED = """\
import argparse
import drawn_loading as lib
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-w", "--workers", type=int, default={default})
    args = parser.parse_args()
    {call}
main()
"""
# what the file has, the same with the edit in it; the call is marked
WRITINGS = {
    "a constant": ("WORKERS = 0  # few\nlib.load(1, workers=WORKERS)  # <-\n", "WORKERS = 4  # few\n"),
    "a negative one": ("WORKERS: int = -1\nlib.load(1, workers=WORKERS)  # <-\n", "WORKERS: int = 4\n"),
    "a constant used twice": ("W = 0\nlib.load(1, workers=W)  # <-\nlib.load(2, workers=W)\n", "load(1, workers=4)"),
    "a constant set twice": ("W = 0\nW = 1\nlib.load(1, workers=W)  # <-\n", "load(1, workers=4)"),
    "a constant by its string": ("W = 0\nlib.load(1, workers=W)  # <-\nglobals()['W']\n", "load(1, workers=4)"),
    "a local": ("def f():\n    w = 0\n    lib.load(1, workers=w)  # <-\nf()\n", "    w = 4\n"),
    "a parameter": ("def f(w=0):\n    lib.load(1, workers=w)  # <-\nf(3)\n", "load(1, workers=4)"),
    "a constant of a module": (
        "W = 0\ndef f():\n    lib.load(1, workers=W)  # <-\nf()\n",
        "load(1, workers=4)",
    ),
    "a constant of a script": (
        "W = 0\ndef f():\n    lib.load(1, workers=W)  # <-\nif __name__ == '__main__':\n    f()\n",
        "W = 4\n",
    ),
    "an expression": ("W = 0\nlib.load(1, workers=W + 1)  # <-\n", "load(1, workers=4)"),
    "a dictionary": ("cfg = dict(batch=2, workers=0)\nlib.load(1, **cfg)  # <-\n", "dict(batch=2, workers=4)"),
    "a literal": ("cfg = {'batch': 2,\n  'workers': 0}\nlib.load(1, **cfg)  # <-\n", "  'workers': 4}"),
    "a literal in the call": ("lib.load(1, **{'workers': 0})  # <-\n", "**{'workers': 4}"),
    "one without the key": ("cfg = dict(batch=2)\nlib.load(1, **cfg)  # <-\n", "load(1, **cfg, workers=4)"),
    "one of two calls": (
        "cfg = dict(workers=0)\nlib.load(1, **cfg)  # <-\nlib.load(2, **cfg)\n",
        "load(1, **{**cfg, 'workers': 4})",
    ),
    "one that is filled": (
        "cfg = {'batch': 2}\ncfg.update({'workers': 0})\nlib.load(1, **cfg)  # <-\nlib.load(2, **cfg)\n",
        "load(1, **{**cfg, 'workers': 4})",
    ),
    "a constant in a dictionary": ("W = 0\ncfg = dict(workers=W)\nlib.load(1, **cfg)  # <-\n", "W = 4\n"),
    "one that is amended": ("cfg = {}\nlib.load(1, **{**cfg, 'workers': 0})  # <-\n", "**{**cfg, 'workers': 4})"),
}


@pytest.fixture
def made(monkeypatch, tmp_path):
    library = types.ModuleType("drawn_loading")
    exec(LIBRARY, vars(library))
    monkeypatch.setitem(sys.modules, "drawn_loading", library)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    file = tmp_path / "train.py"

    def made(source):
        library.made.clear()
        exec(compile(source, str(file), "exec"), {"__name__": "__main__"})
        return list(library.made)

    made.file = file
    return made


def the_edit(source, made):
    made.file.write_text(source)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# <-" in text)
    return SetKeyword(str(made.file), line, "drawn_loading.load", "workers", 4, 2)


def agree(source, made, command=None):
    """Return the patched source; it does what the source under the override does, and is left alone by the edit."""
    edit = the_edit(source, made)
    with applied([edit]):
        live = made(source)
    new = patched(source, [edit], made.file, command)
    assert made(new) == live
    assert (1, 1, 4) in live or (1, 2, 4) in live
    assert patched(new, [edit], made.file, command) == new
    assert new.count("\n") == source.count("\n")
    return new


@pytest.mark.parametrize("name", WRITINGS)
def test_the_patch_changes_what_the_override_changes_where_a_reader_would_look_for_it(made, name):
    source, expected = WRITINGS[name]
    command = None if "module" in name or "script" in name else [str(made.file)]
    assert expected in agree("import drawn_loading as lib\n" + source, made, command)


@pytest.mark.parametrize(
    "call",
    [
        "lib.load(1, workers=args.workers)  # <-",
        "print(args); lib.load(1, 1, args.workers)  # <-",
        "make(args)\ndef make(a):\n    lib.load(1, workers=a.workers)  # <-",
        "lib.load(1, **dict(workers=args.workers))  # <-",
    ],
)
def test_the_default_of_an_option_is_changed_where_nothing_else_uses_it(made, call):
    source = PARSED.format(default=0, call=call).replace("\nmain()\n", "\nmain()\n")
    new = agree(source, made, ["train.py", "--epochs", "3"])
    assert new == PARSED.format(default=4, call=call)


@pytest.mark.parametrize(
    "call",
    [
        "lib.load(1, workers=args.workers)  # <-\n    lib.load(2, workers=args.workers)",
        "lib.load(1, workers=args.workers)  # <-\n    vars(args)",
        "args.workers = args.workers or 1\n    lib.load(1, workers=args.workers)  # <-",
        "lib.load(1, workers=args.workers + 0)  # <-",
        "parser.set_defaults(workers=2)\n    lib.load(1, workers=args.workers)  # <-",
        "args = parser.parse_args(['-w', '3'])\n    lib.load(1, workers=args.workers)  # <-",
        "args = type('A', (), {'workers': 2})\n    lib.load(1, workers=args.workers)  # <-",
        "keep = [args]\n    lib.load(1, workers=args.workers)  # <-",
    ],
)
def test_the_call_is_changed_where_an_option_has_other_uses(made, call):
    new = agree(PARSED.format(default=0, call=call), made, ["train.py"])
    assert "default=0" in new and "load(1, workers=4)" in new


def test_the_call_is_changed_where_the_command_is_not_known(made):
    assert "default=0" in agree(PARSED.format(default=0, call="lib.load(1, workers=args.workers)  # <-"), made)


@pytest.mark.parametrize(
    "command, given",
    [
        ("train.py --workers 0", "--workers 0"),
        ("torchrun --nproc-per-node 2 train.py --workers=0", "--workers=0"),
        ("python -m train -w 0", "-w"),
        ("train.py --work 0", "--work 0"),
    ],
)
def test_a_flag_of_the_command_goes_before_the_default_and_the_message_says_so(made, command, given):
    source = PARSED.format(default=0, call="lib.load(1, workers=args.workers)  # <-")
    with pytest.raises(NotPatchable, match="start the command with --workers 4 instead") as refused:
        patched(source, [the_edit(source, made)], made.file, command.split())
    assert given in str(refused.value)


@pytest.mark.parametrize("command", ["train.py --epochs 3", "torchrun --workers 2 train.py", "train.py --wide 2"])
def test_other_words_of_the_command_give_no_flag(made, command):
    source = PARSED.format(default=0, call="lib.load(1, workers=args.workers)  # <-")
    assert "default=4" in patched(source, [the_edit(source, made)], made.file, command.split())


@pytest.mark.parametrize(
    "source",
    [
        "import json\ncfg = json.loads('{\"workers\": 0}')\nlib.load(1, **cfg)  # <-\n",
        "def f(**rest):\n    lib.load(1, **rest)  # <-\nf(workers=0)\n",
        "cfg = {}\nif cfg:\n    cfg = {'workers': 0}\nlib.load(1, **cfg)  # <-\n",
        "lib.load(1, **{**rest})  # <-\n",
        "a, b = {}, {}\nlib.load(1, **a, **b)  # <-\n",
    ],
)
def test_a_mapping_that_is_made_elsewhere_is_not_guessed_at(made, source):
    source = "import drawn_loading as lib\n" + source
    with pytest.raises(NotPatchable, match=r"may be passed through \*\*.*set workers where .* is made"):
        patched(source, [the_edit(source, made)], made.file)
