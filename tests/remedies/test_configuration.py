"""Configurations are classes, often dataclasses that a script derives from: an edit reaches the call that makes one."""

import sys
import types
from dataclasses import replace

import pytest

from unstall.model.remedy import RemoveCall, SetEnvironment, SetKeyword
from unstall.remedies.override import applied, awaited
from unstall.remedies.patch import NotPatchable, patched

LIBRARY = """
from dataclasses import dataclass, field
@dataclass
class Arguments:
    out: str
    workers: int = 0
    doubled: int = field(init=False, default=0)
    def __post_init__(self): self.doubled = 2 * self.workers
@dataclass
class SeqArguments(Arguments):
    beams: int = 1
@dataclass(frozen=True)
class Frozen:
    workers: int = 0
    def __post_init__(self): object.__setattr__(self, "seen", self.workers)
@dataclass
class Plain:
    workers: int = 0
"""
SCRIPT = """\
from dataclasses import dataclass
import drawn_settings as lib
from drawn_settings import Arguments as Args, SeqArguments

@dataclass
class Mine(Args):
    extra: int = 0
class Own(Args):
    def __init__(self, out):
        super().__init__(out, workers=1)
a = Args("o", 1)
b = SeqArguments(
    "o",
    beams=2,  # kept
)
c = Mine("o", extra=3)
d = Own("o")
e = lib.Frozen(workers=0)
f = lib.Plain()
g = Args("o")
"""
ARGUMENTS = "drawn_settings.Arguments"


@pytest.fixture
def outcome(monkeypatch, tmp_path):
    library = types.ModuleType("drawn_settings")
    monkeypatch.setitem(sys.modules, "drawn_settings", library)
    exec(LIBRARY, vars(library))
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)

    def outcome(source):
        scope = {"__name__": "__main__"}
        exec(compile(source, str(file), "exec"), scope)
        made = {name: scope[name] for name in "abcdefg"}
        return {name: (one.workers, getattr(one, "doubled", getattr(one, "seen", 0))) for name, one in made.items()}

    outcome.file = str(file)
    return outcome


@pytest.mark.parametrize(
    "edit, changed",
    [
        (SetKeyword("", 11, ARGUMENTS, "workers", 4, 1), {"a": (4, 8)}),
        (SetKeyword("", 12, "drawn_settings.SeqArguments", "workers", 4), {"b": (4, 8)}),
        (SetKeyword("", 16, ARGUMENTS, "workers", 4), {"c": (4, 8)}),
        (SetKeyword("", 18, "drawn_settings.Frozen", "workers", 4), {"e": (4, 4)}),
        (SetKeyword("", 19, "drawn_settings.Plain", "workers", 4), {"f": (4, 0)}),
    ],
)
def test_override_and_patch_agree_on_the_call_that_makes_a_configuration(outcome, edit, changed):
    edit, plain, met = replace(edit, file=outcome.file), outcome(SCRIPT), []
    with applied([edit], met.append):
        live = outcome(SCRIPT)
    assert live == {**plain, **changed}
    assert met == [0]
    assert outcome(patched(SCRIPT, [edit], outcome.file)) == live
    assert outcome(SCRIPT) == plain


def test_a_class_that_makes_its_arguments_itself_is_not_given_another(outcome):
    edit = SetKeyword(outcome.file, 17, ARGUMENTS, "workers", 4)
    with pytest.raises(NotPatchable, match="no such call"):
        patched(SCRIPT, [edit], outcome.file)


def test_a_call_of_a_derived_class_is_not_removed_for_its_base(outcome):
    with pytest.raises(NotPatchable):
        patched("import drawn_settings as lib\nclass Mine(lib.Plain): pass\nMine()\n", [
            RemoveCall("train.py", 3, "drawn_settings.Plain")], "train.py")  # fmt: skip


@pytest.mark.parametrize(
    "edit, module",
    [
        (SetKeyword("", 1, "transformers.training_args.TrainingArguments", "x", 1), "transformers.training_args"),
        (SetKeyword("", 1, "lightning.pytorch.Trainer", "x", 1), "lightning.pytorch"),
        (SetKeyword("", 1, "a.b.Class.method", "x", 1), "a.b"),
        (SetKeyword("", 1, "torch.utils.data.DataLoader", "x", 1), "torch"),
        (RemoveCall("", 1, "gc.collect"), "gc"),
        (SetEnvironment("OMP_NUM_THREADS", "1"), ""),
    ],
)
def test_an_edit_waits_for_the_module_that_defines_what_it_changes(edit, module):
    assert awaited(edit) == module
