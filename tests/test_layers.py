"""Imports point one way: every stage imports `model` and itself, and they meet in `pipeline`."""

import ast
from pathlib import Path

import pytest

import unstall

ROOT = Path(unstall.__file__).parent
STAGES = {"readers", "accounts", "causes", "remedies", "trials", "views", "launch"}
MAY_IMPORT = {
    "model": {"model"},
    "probes": {"probes", "model.wire", "model.exclusive"},  # they live in somebody else's process
    **{stage: {stage, "model"} for stage in STAGES},
    "pipeline": {"pipeline", "model", *STAGES},
    "cli": {"cli", "model", "pipeline", "views", "causes"},
}
# the door into the training process, which is a part of the launcher by its place only
THERE = {"launch/inject/sitecustomize.py": {"probes", "remedies.carried"}}
ANY = {"testing", "__init__", "__main__"}  # the tests' tools and the two doors
MODULES = [
    path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0].removesuffix(".py") not in ANY
]


def imports_of(path):
    """Return the modules of ours that *path* imports anywhere in it, without the leading ``unstall.``."""
    found = set()
    package = path.relative_to(ROOT.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = list(package[: -node.level]) if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {name.removeprefix("unstall.") for name in found if name.startswith("unstall.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_stage_may(path):
    place = path.relative_to(ROOT)
    stage = place.parts[0].removesuffix(".py")
    allowed = THERE.get(place.as_posix(), MAY_IMPORT[stage])
    for name in imports_of(path) - {"__version__"}:
        assert any(name == may or name.startswith(f"{may}.") for may in allowed), f"{stage} imports unstall.{name}"


def test_every_folder_has_a_place_in_the_layers():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= {*MAY_IMPORT, *ANY}


def test_causes_do_not_see_each_other():
    for path in (ROOT / "causes").rglob("*.py"):
        layer = path.parent.name
        for name in imports_of(path):
            if name.startswith("causes.") and path.name != "__init__.py":
                private = name.split(".")[1:3]
                assert private[0].startswith("_") or (private[0] == layer and private[1].startswith("_")), path
