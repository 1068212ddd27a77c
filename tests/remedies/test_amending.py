"""A list of strings that a call is given is amended, in source and live alike."""

import json
import sys
import types

import pytest

from unstall.model.codec import edit_from_json, edit_to_json
from unstall.model.remedy import AmendList
from unstall.remedies.override import applied
from unstall.remedies.patch import NotPatchable, patched

HEAD = "from drawn_builds import load\n"
NEW = '["-O3", "-DNDEBUG"]'


@pytest.fixture
def library():
    made = types.ModuleType("drawn_builds")
    made.given = []
    exec("def load(name, flags=None, extra=None): given.append((name, flags, extra))\n", vars(made))
    sys.modules["drawn_builds"] = made
    yield made
    del sys.modules["drawn_builds"]


def edit_at(source, file):
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# <-" in text)
    return AmendList(str(file), line, "drawn_builds.load", "flags", ("-O3", "-DNDEBUG"), ("-O0", "-Og"), 1)


def run(source, file, library):
    library.given.clear()
    exec(compile(source, str(file), "exec"), {"__name__": "script"})
    return list(library.given)


@pytest.mark.parametrize(
    "body, after",
    [
        ('load("a")  # <-\n', f'load("a", flags={NEW})  # <-\n'),
        ('load("a", None)  # <-\n', f'load("a", {NEW})  # <-\n'),
        ('load("a", ["-O0"])  # <-\n', f'load("a", {NEW})  # <-\n'),
        ('load("a", flags=["-g", "-Og"], extra=1)  # <-\n', 'load("a", flags=["-g", "-O3", "-DNDEBUG"], extra=1)  # <-\n'),
        ('load("a", flags=("-g",))  # <-\n', 'load("a", flags=["-g", "-O3", "-DNDEBUG"])  # <-\n'),
        ('own = ["-O0"]\nload("a", own)  # <-\n', f'own = {NEW}\nload("a", own)  # <-\n'),
        ('load(  # <-\n    "a",\n)\n', f'load(  # <-\n    "a",\n    flags={NEW},\n)\n'),
    ],
)  # fmt: skip
def test_items_go_and_come_and_the_rest_stays(library, tmp_path, body, after):
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    edit = edit_at(HEAD + body, script)
    assert patched(HEAD + body, [edit], script) == HEAD + after
    assert patched(HEAD + after, [edit_at(HEAD + after, script)], script) == HEAD + after
    plain = run(HEAD + body, script, library)
    with applied([edit]):
        assert run(HEAD + body, script, library) == run(HEAD + after, "patched.py", library) != plain
        assert run(HEAD + body, "elsewhere.py", library) == plain
    assert run(HEAD + body, script, library) == plain, "it was undone"


@pytest.mark.parametrize(
    "body, why",
    [
        ('own = ["-O0"]\nload("a", own)  # <-\nload("b", own)\n', "used elsewhere"),
        ('def f(own): load("a", own)  # <-\nf(["-O0"])\n', "made or used elsewhere"),
        ('load("a", ["-O" + "0"])  # <-\n', "no list that is written out"),
        ('load("a", "-O0 -g".split())  # <-\n', "no list that is written out"),
        ('load(*["a"])  # <-\n', r"through \*args"),
        ('load(**{"name": "a"})  # <-\n', r"through a \*\*mapping"),
    ],
)
def test_a_list_from_elsewhere_is_refused_in_source_and_live(library, tmp_path, body, why):
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    edit = edit_at(HEAD + body, script)
    with pytest.raises(NotPatchable, match=why):
        patched(HEAD + body, [edit], script)
    with pytest.raises(NotPatchable, match=why):
        applied([edit]).__enter__()


def test_a_comment_in_the_list_is_not_lost(library):
    source = HEAD + 'load("a", flags=[  # <-\n    "-O0",  # to see it\n])\n'
    with pytest.raises(NotPatchable, match="comment"):
        patched(source, [edit_at(source, "train.py")], "train.py")


def test_it_can_be_sent():
    edit = edit_at('load("a")  # <-\n', "train.py")
    assert edit_from_json(json.loads(json.dumps(edit_to_json(edit)))) == edit
