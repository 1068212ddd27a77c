"""`import unstall` is cheap, and its public names are what they say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unstall

SOURCE = Path(unstall.__file__).parent


def imported_by(statement):
    """Return the top-level modules that a fresh interpreter holds after *statement* and not before."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_unstall_loads_the_standard_library_only():
    tops = {name.partition(".")[0] for name in imported_by("import unstall")}
    assert tops - set(sys.stdlib_module_names) == {"unstall"}


@pytest.mark.parametrize("module", ["unstall.model.wire", "unstall.remedies.override", "unstall.model.remedy"])
def test_what_the_training_process_imports_is_the_standard_library_only(module):
    tops = {name.partition(".")[0] for name in imported_by(f"import {module}")}
    assert tops - set(sys.stdlib_module_names) == {"unstall"}


def test_every_public_name_can_be_read_and_is_documented():
    assert 20 <= len(unstall.__all__) <= 30
    for name in unstall.__all__:
        assert getattr(unstall, name).__doc__ or name == "Edit", name


def test_the_names_that_type_checkers_see_are_the_public_ones():
    text = (SOURCE / "__init__.py").read_text()
    assert sorted(re.findall(r"^    from \S+ import (\w+) as \1$", text, re.MULTILINE)) == unstall.__all__


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'profile'"):
        unstall.profile  # noqa: B018
    assert set(unstall.__all__) <= set(dir(unstall))


def test_no_module_but_the_probes_imports_torch():
    """Ours must work from an environment that has no torch; a probe is imported after the training's."""
    for path in SOURCE.rglob("*.py"):
        if "probes" not in path.parts:
            imports = [
                node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            assert not any(re.search(r"\btorch\b", ast.unparse(node)) for node in imports), path
