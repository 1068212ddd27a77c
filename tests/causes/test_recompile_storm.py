"""What is left of a storm's time once the program is compiled for all that it meets is about one compilation."""

from unstall.causes.compiler._changes import Change
from unstall.causes.compiler.recompile_storm import KEPT, KEPT_OTHERWISE, _kept_ns, _window

MS = 1_000_000


def windows(count):
    return [_window(10 * n, 50, n + 1, "") for n in range(count)]


def test_of_many_one_is_left():
    assert _kept_ns(Change.VALUE, windows(20)) == KEPT_OTHERWISE[1] * 50 * MS


def test_one_with_open_sizes_takes_longer():
    assert _kept_ns(Change.SHAPE, windows(20)) == KEPT[Change.SHAPE][1] * 50 * MS > _kept_ns(Change.VALUE, windows(20))


def test_of_few_it_is_no_more_than_a_part():
    assert _kept_ns(Change.VALUE, windows(2)) == KEPT_OTHERWISE[0] * 100 * MS
    assert _kept_ns(Change.VALUE, windows(0)) == 0
