"""Numbers and places in words."""

from __future__ import annotations

import pytest

from unstall.model.finding import Command, Line
from unstall.views import _words as words


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 s"),
        (7, "7 ns"),
        (1_500, "1.5 µs"),
        (999_960, "1 ms"),
        (8_236_000, "8.24 ms"),
        (71_040_000, "71 ms"),
        (238_600_000, "239 ms"),
        (54_300_000_000, "54.3 s"),
        (1_200_000_000_000, "1200 s"),
        (60 * 3_600_000_000_000, "60 h"),
    ],
)
def test_a_time_is_told_in_three_digits(ns, said):
    assert words.finish(words.duration(ns)) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0 %"), (0.0003, "<0.1 %"), (0.0141, "1.4 %"), (0.0996, "10 %"), (0.7, "70 %"), (1, "100 %")],
)
def test_a_share_is_told_in_per_cent(value, said):
    assert words.finish(words.share(value)) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(150e6, 168e6, "150-168 ms"), (900e3, 2e6, "0.9-2 ms"), (0, 2e6, "up to 2 ms"), (168e6, 168.1e6, "168 ms")],
)
def test_bounds_share_one_unit(low, high, said):
    assert words.finish(words.duration_range(low, high)) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (2e6, "ns", "2 ms"),
        (2e6, "ns a step", "2 ms a step"),
        (0.5, "share", "50 %"),
        (12_400_000, "bytes", "12.4 MB"),
        (1_200, "bytes a step", "1.2 kB a step"),
        (21, "count", "21"),
        (3.42, "x", "3.42x"),
        (1234, "samples", "1,234 samples"),
    ],
)
def test_a_value_is_told_in_its_unit(value, unit, said):
    assert words.finish(words.measured(value, unit)) == said


@pytest.mark.parametrize("room", [12, 20, 30, 40])
def test_a_long_file_name_is_cut_on_the_left(room):
    line = Line("/a/very/long/way/to/training/loop.py", 118)
    said = words.place(line, room)
    assert len(said) <= room
    assert said.endswith("loop.py:118"[-room + 1 :])
    assert said.startswith(("…", "/a/very"))


def test_a_short_place_is_left_alone():
    assert words.place(Line("train.py", 4), 40) == "train.py:4"
    assert words.place(Command("torchrun train.py")) == "command: torchrun train.py"
