"""What a cache would save: the time that Inductor took, where the compiler told it, and of the windows where it did not."""

from dataclasses import replace

from unstall.causes.compiler._starts import SAVED, SAVED_UNTOLD, Cache
from unstall.model.ledger import Phase

COLD = Cache(False, 0, 2, "/tmp/one", True, True, ((Phase.BACKWARD, 2_000), (Phase.FORWARD, 8_000)))


def test_it_is_the_time_in_inductor():
    saving = replace(COLD, inductor_ns=6_000).saving
    assert (saving.low_ns, saving.high_ns) == (int(SAVED[0] * 6_000), 6_000)


def test_it_is_a_part_of_the_windows_where_that_is_not_told():
    assert (COLD.saving.low_ns, COLD.saving.high_ns) == tuple(int(part * 10_000) for part in SAVED_UNTOLD)


def test_it_is_no_more_than_the_windows():
    assert replace(COLD, inductor_ns=20_000).saving.high_ns == 10_000
