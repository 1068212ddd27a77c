"""Causes of the data layer on trainings that are nearly the planted ones: other loaders, and what only looks like the fault."""

from __future__ import annotations

import pytest

from unstall.causes.data.costly_sampler import CostlySampler
from unstall.causes.data.inflating_chunks import InflatingChunks
from unstall.causes.data.repeated_preprocessing import RepeatedPreprocessing
from unstall.testing.contract import first_fault, train

pytestmark = pytest.mark.slow

SOUNDS = RepeatedPreprocessing.planted[0].before
CLICKS = CostlySampler.planted[0].before
WAVES = InflatingChunks.planted[0].before
BANDS = "bands[1:].reshape(64, -1).mean(1)"
EVALUATES = """            opt.step()
        with torch.no_grad():
            for x, y in DataLoader(held, batch_size=8):
                net(x)
"""


def changed(source: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


SAME = {
    "new-workers-each-epoch": changed(SOUNDS, ("shuffle=True)", "shuffle=True, num_workers=2)")),
    "kept-workers": changed(SOUNDS, ("shuffle=True)", "shuffle=True, num_workers=1, persistent_workers=True)")),
    "part-of-a-dataset": changed(
        SOUNDS,
        ("sounds = Sounds()", "sounds, held = torch.utils.data.random_split(Sounds(), [128, 64])"),
        ("            opt.step()\n", EVALUATES),
    ),
}
NOT_THE_SAME = {
    "noise": changed(SOUNDS, (BANDS, f"{BANDS} * numpy.random.rand()")),
    "flips-by-a-generator-of-its-own": changed(
        SOUNDS,
        ("        self.seeds = list", "        self.rng = numpy.random.default_rng(1)\n        self.seeds = list"),
        (BANDS, f"{BANDS} * (1 if self.rng.random() < 0.8 else -1)"),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_samples_are_told_whoever_makes_them(name: str, tmp_path: object) -> None:
    first = first_fault(train(SAME[name], tmp_path))
    assert first is not None
    assert first.cause == "data/repeated-preprocessing"


@pytest.mark.parametrize("name", NOT_THE_SAME)
def test_augmented_samples_are_not_called_the_same(name: str, tmp_path: object) -> None:
    report = train(NOT_THE_SAME[name], tmp_path)
    assert "data/repeated-preprocessing" not in {finding.cause for finding in report.findings}
    assert "data/repeated-preprocessing" not in {one.cause for one in report.abstained}


def test_one_epoch_does_not_tell_whether_samples_repeat(tmp_path: object) -> None:
    report = train(changed(SOUNDS, ("range(4)", "range(1)"), ("range(192)", "range(800)")), tmp_path)
    assert "data/repeated-preprocessing" not in {finding.cause for finding in report.findings}
    assert "two epochs" in next(one.because for one in report.abstained if one.cause == "data/repeated-preprocessing")


SAMPLER = """class Balanced(torch.utils.data.Sampler):
    def __len__(self):
        return 64

    def __iter__(self):
        for _ in range(64):
            yield max(range(2000), key=lambda i: (i * 7919) % 2003)


if __name__"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_of_the_users_own_is_named_at_its_line(workers: int, tmp_path: object) -> None:
    source = changed(
        CLICKS,
        ("if __name__", SAMPLER),
        ("few = RandomSampler(clicks, num_samples=320)", "few = Balanced()"),
        ("sampler=few)", f"sampler=few, num_workers={workers})"),
        ("2_000_000", "2_000"),
    )
    report = train(source, tmp_path)
    found = next(finding for finding in report.findings if finding.cause == "data/costly-sampler")
    assert found.where.code == "def __iter__(self):"


GZIP = changed(
    WAVES,
    ("import numpy\n", "import gzip\n\nimport numpy\n"),
    ("numpy.load(path)", 'gzip.open(path, "rb")'),
    (
        'wave = self.file["waves"][i]',
        "self.file.seek(0)\n        wave = numpy.frombuffer(self.file.read()[i * 1024 : i * 1024 + 1024], numpy.float32).copy()",
    ),
    ("numpy.savez_compressed(file, waves=waves)", "file.write(gzip.compress(waves.tobytes()))"),
)
ONE_BY_ONE = changed(
    GZIP,
    (
        "self.file.seek(0)\n        wave = numpy.frombuffer(self.file.read()[i * 1024 : i * 1024 + 1024]",
        "self.file.seek(i * 1024)\n        wave = numpy.frombuffer(self.file.read(1024)",
    ),
    ('gzip.open(path, "rb")', 'open(path, "rb")'),
    ("gzip.compress(waves.tobytes())", "waves.tobytes()"),
)


def test_a_stream_that_is_decoded_anew_for_each_sample_is_named(tmp_path: object) -> None:
    first = first_fault(train(GZIP, tmp_path))
    assert first is not None
    assert first.cause == "data/inflating-chunks"


def test_reading_only_the_sample_is_no_fault(tmp_path: object) -> None:
    report = train(ONE_BY_ONE, tmp_path)
    assert "data/inflating-chunks" not in {finding.cause for finding in report.findings}
