"""Code of earlier starts is known again where only its fractions differ."""

import os

import pytest

from unstall.causes.compiler._starts import TRAINING
from unstall.probes._earlier import Earlier
from unstall.testing.contract import first_fault, train

CODE = "x = static_cast<float>({}) * load(in_ptr0 + {})\n"
BEGAN_S = 1_000_000_000.0

HEAD = """\
import os
import random
import torch
from torch import nn

os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join({folder!r}, "kept")
SCALE = {scale}


"""


def kept(folder, name, code, seconds=-10):
    file = folder / name[:2] / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(code)
    os.utime(file, (BEGAN_S + seconds,) * 2)
    return str(file)


def test_files_with_another_fraction_are_counted_and_one_pair_is_told(tmp_path):
    kept(tmp_path, "aa1", CODE.format(0.25, 64))
    kept(tmp_path, "bb1", CODE.format(1e-05, 64))
    own = kept(tmp_path, "cc1", CODE.format(0.75, 64), 5)
    count, now, then = Earlier(BEGAN_S).alike(own, CODE.format(0.75, 64))
    assert (count, now) == (2, "0.75") and then in ("0.25", "1e-05")


@pytest.mark.parametrize(
    "code, seconds",
    [
        (CODE.format(0.25, 32), -10),  # another size
        (CODE.format(0.75, 64), -10),  # the same code: the key differs for another reason
        (CODE.format(0.25, 64), 5),  # of this run
        (CODE.format(0.25, 64) + "y = x\n" * 30, -10),  # another graph
    ],
)
def test_other_code_is_not_taken_for_the_same(tmp_path, code, seconds):
    kept(tmp_path, "aa1", code, seconds)
    own = kept(tmp_path, "cc1", CODE.format(0.75, 64), 5)
    assert Earlier(BEGAN_S).alike(own, CODE.format(0.75, 64)) == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("scale, drifts", [("random.SystemRandom().uniform(0.9, 1.1)", True), ("0.97", False)])
def test_the_third_start_tells_the_line_of_a_number_that_differs_at_each(tmp_path, scale, drifts):
    training = TRAINING.replace("        return x\n", "        return x * SCALE\n")
    source = HEAD.format(folder=str(tmp_path), scale=scale) + training
    for start in ("first", "second"):
        assert train(source, tmp_path / start).exit_code == 0
    report = train(source, tmp_path / "third")
    found = [f for f in report.findings if f.cause == "compiler/cold-cache"]
    if drifts:
        first = first_fault(report)
        assert first in found and first.where.code == "return x * SCALE"
    else:
        assert found == [] and not [c for c in report.candidates if c.cause == "compiler/cold-cache"]
