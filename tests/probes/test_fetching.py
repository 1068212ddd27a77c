"""Fetches of a worker: all of the first are recorded, and of cheap ones few after that."""

import contextlib
import pickle
from multiprocessing import queues
from types import SimpleNamespace

import numpy as np
import pytest
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from unstall.probes import fetching
from unstall.probes.fetching import CHEAP_NS, CHEAP_ONE_IN, CHEAP_UNTIL, Fetching, Pickling
from unstall.readers.wire import FETCHED


class Clock:
    """Stands for the module `time`: a fetch takes *took_ns*, nothing else takes any time."""

    def __init__(self, took_ns):
        self.took_ns, self.now = took_ns, 0

    def monotonic_ns(self):
        return self.now

    def thread_time_ns(self):
        return self.now

    process_time_ns = thread_time_ns


class Recorder:
    role = "worker"

    def __init__(self):
        self.records = []

    def write(self, kind, payload):
        self.records.append(payload)

    def fact(self, facts): ...

    def become_worker(self, number): ...

    def mine(self):
        return True


@pytest.fixture
def recorded(monkeypatch):
    """Return what makes *count* batches of *took_ns* in a worker, each 7 ns to pickle, and returns what is recorded."""

    def made(count, took_ns, watched=()):
        clock, recorder = Clock(took_ns), Recorder()
        monkeypatch.setattr(fetching, "time", clock)
        monkeypatch.setattr(fetching, "get_worker_info", lambda: SimpleNamespace(id=0))
        monkeypatch.setattr(queues, "_ForkingPickler", queues._ForkingPickler)  # put back at the end
        probe = SimpleNamespace(on=True, recorder=recorder, guard=contextlib.nullcontext)
        of = Fetching(probe)
        of.samples = SimpleNamespace(
            left=len(watched),
            wants=lambda fetcher, index: of.count in watched,
            reads=SimpleNamespace(begin=lambda count: None),
            memory=SimpleNamespace(look=lambda count, now: None),
        )

        def work(fetcher, index):
            clock.now += clock.took_ns
            return []

        fetch, fetcher = of.observing(work), _MapDatasetFetcher([0], True, list, False)
        for _ in range(count):
            fetch(fetcher, [0])
            of.pickled_ns += 7  # in the queue's own thread, as it is sent
        return np.frombuffer(b"".join(recorder.records), FETCHED)

    return made


def test_all_batches_that_take_long_are_recorded(recorded):
    count = CHEAP_UNTIL + 5 * CHEAP_ONE_IN
    assert recorded(count, CHEAP_NS)["batch"].tolist() == list(range(1, count + 1))


def test_of_cheap_batches_all_of_the_first_are_recorded_and_then_one_in_so_many(recorded):
    later = [CHEAP_UNTIL + n * CHEAP_ONE_IN for n in range(1, 6)]
    assert recorded(later[-1] + 1, CHEAP_NS - 1)["batch"].tolist() == [*range(1, CHEAP_UNTIL + 1), *later]


def test_a_batch_whose_samples_are_looked_at_is_no_record_of_its_own_and_leaves_the_next_as_it_is(recorded):
    later = CHEAP_UNTIL + CHEAP_ONE_IN
    made = recorded(later, CHEAP_NS - 1, watched={later - 2, later - 1})
    assert made["batch"].tolist() == [*range(1, CHEAP_UNTIL + 1), later] and made["pickle"][-1] == 7


def test_what_is_sent_is_timed_where_it_is_recorded_next_and_left_alone_elsewhere(monkeypatch):
    original = queues._ForkingPickler
    monkeypatch.setattr(queues, "_ForkingPickler", original)
    of = SimpleNamespace(pickled_ns=0)
    pickling = Pickling(of)
    assert pickle.loads(queues._ForkingPickler.dumps([1])) == [1] and of.pickled_ns > 0
    pickling.time(False)
    assert queues._ForkingPickler is original
    pickling.time(True)
    queues._ForkingPickler = own = object()
    pickling.time(False)
    assert queues._ForkingPickler is own


def test_a_record_holds_what_was_pickled_for_one_batch_where_those_before_are_not_recorded(recorded):
    pickled = recorded(CHEAP_UNTIL + 5 * CHEAP_ONE_IN, CHEAP_NS - 1)["pickle"].tolist()
    assert pickled == [0, *[7] * (CHEAP_UNTIL - 1), *[7] * 5]
