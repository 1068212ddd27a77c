"""A trial waits while other programs take its cores, and no longer than it may."""

import os

from unstall.launch.quiet import await_quiet, taken


def test_cores_that_the_training_may_not_use_anyway_are_not_taken_from_it(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert not taken(50.0, 8)
    assert taken(60.0, 8)


def test_it_waits_until_others_are_through():
    busy = iter([2.0, 1.5, 0.1])
    usable = os.cpu_count() or 1
    looks = []

    def look():
        looks.append(next(busy) * usable / 2)
        return looks[-1]

    assert await_quiet(usable, 60.0, look, pause_s=0.0) >= 0
    assert len(looks) == 3


def test_it_waits_no_longer_than_it_may():
    looks = []

    def look():
        looks.append(1)
        return float(os.cpu_count() or 1)

    assert await_quiet(os.cpu_count() or 1, 0.0, look, pause_s=0.0) >= 0
    assert len(looks) == 1


def test_a_quiet_machine_is_not_waited_for():
    assert await_quiet(os.cpu_count() or 1, 60.0, lambda: 0.0) == 0


def test_a_machine_that_does_not_tell_is_not_waited_for():
    assert await_quiet(2, 60.0, lambda: None) == 0
