"""Allotting is fair: nothing is given twice, and it does not matter who asks first."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from unstall.causes._explain import LEAST_SHARE, explain
from unstall.model.finding import Finding, Line, Machine, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Device, Phase

ENTRIES = [(Phase.FORWARD, Activity.COMPUTE), (Phase.FORWARD, Activity.PYTHON), (Phase.BETWEEN, Activity.IO)]
LINES = [None, "train.py:3", "train.py:4"]
WHOLE = dict.fromkeys(Scope, 1000)


def finding(cause="data/a", ns=100, *, entry=ENTRIES[0], line=None, weight=Weight.TIMED, scope=Scope.STEADY, **more):
    stakes = more.pop("stakes", (Stake(*entry, ns, line),))
    where = more.pop("where", Line("train.py", 9))
    return Finding(cause, "1 ms is lost.", where, scope, stakes, weight, Basis.MEASURED, (), **more)


def holds(steady, rest=None):
    """Return what the ledger holds: *steady* and *rest* are ns by entry, with the device if it is not all NONE."""
    steady, rest = (
        {entry if len(entry) == 3 else (*entry, Device.NONE): ns for entry, ns in pool.items()}
        for pool in (steady, rest or {})
    )
    both = Counter(steady) + Counter(rest)
    return {Scope.STEADY: steady, Scope.STARTUP: rest, Scope.PERIODIC: dict(both)}


@st.composite
def stakes(draw):
    return Stake(*draw(st.sampled_from(ENTRIES)), draw(st.integers(0, 900)), draw(st.sampled_from(LINES)))


findings = st.lists(
    st.builds(
        lambda cause, stakes, weight, scope, fault, line: finding(
            cause, stakes=tuple(stakes), weight=weight, scope=scope, fault=fault, where=Line("train.py", line)
        ),
        st.sampled_from(["data/a", "io/b", "host/c"]),
        st.lists(stakes(), min_size=1, max_size=3),
        st.sampled_from(Weight),
        st.sampled_from(Scope),
        st.booleans(),
        st.integers(3, 5),
    ),
    max_size=6,
)
pools = st.dictionaries(st.sampled_from(ENTRIES), st.integers(0, 1000))


@given(findings, pools, pools)
def test_no_pool_gives_more_than_it_holds(found, steady, rest):
    got = explain(found, holds(steady, rest), WHOLE)
    by_scope = Counter()
    for said in got:
        assert 0 < said.spent_ns <= said.claim_ns
        assert said.share == said.spent_ns / 1000 >= LEAST_SHARE
        by_scope[said.scope] += said.spent_ns
    assert by_scope[Scope.STEADY] <= sum(steady.values())
    assert by_scope[Scope.STARTUP] <= sum(rest.values())
    assert by_scope.total() <= sum(steady.values()) + sum(rest.values())


@given(findings, pools, pools, st.randoms())
def test_the_order_in_which_causes_are_asked_does_not_matter(found, steady, rest, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert explain(shuffled, holds(steady, rest), WHOLE) == explain(found, holds(steady, rest), WHOLE)


@given(st.lists(st.integers(20, 400), min_size=1, max_size=5), st.sampled_from(ENTRIES))
def test_a_lines_time_is_given_once_however_many_ask(wants, entry):
    found = [finding(f"data/a{n}", ns, entry=entry, line="train.py:3") for n, ns in enumerate(wants)]
    got = explain(found, holds({entry: 5000}), WHOLE)
    assert sum(said.spent_ns for said in got) == max(wants)


@given(st.lists(st.tuples(st.integers(20, 400), st.sampled_from(Weight)), min_size=1, max_size=6), st.integers(20, 800))
def test_every_fault_gets_time_or_is_named_where_it_went(wants, held):
    found = [finding(f"data/a{n}", ns, weight=weight) for n, (ns, weight) in enumerate(wants)]
    got = explain(found, holds({ENTRIES[0]: held}), WHOLE)
    named = {said.cause for said in got} | {note.split()[0] for said in got for note in said.also}
    assert named == {said.cause for said in found}


def test_the_heavier_gets_the_time_first_and_the_loser_is_named_under_it():
    light, heavy = finding("data/light", 90, weight=Weight.OVERLAP), finding("io/heavy", 80, weight=Weight.NEEDLESS)
    (only,) = explain([light, heavy], holds({ENTRIES[0]: 80}), WHOLE)
    assert (only.cause, only.spent_ns, only.also) == ("io/heavy", 80, ("data/light train.py:9",))


def test_of_equal_weight_the_one_that_asks_for_more_is_first_and_the_other_keeps_the_rest():
    less, more = finding("data/less", 60), finding("io/more", 70)
    got = explain([less, more], holds({ENTRIES[0]: 100}), WHOLE)
    assert [(said.cause, said.spent_ns) for said in got] == [("io/more", 70), ("data/less", 30)]


def test_what_is_no_fault_takes_nothing_from_a_fault():
    fault, healthy = (finding(f"host/{fault}", 80 - 20 * fault, fault=bool(fault)) for fault in (1, 0))
    got = explain([healthy, fault], holds({ENTRIES[0]: 100}), WHOLE)
    assert [(said.fault, said.spent_ns) for said in got] == [(True, 60), (False, 40)]


def test_a_finding_that_is_dropped_takes_no_time_with_it():
    small, other = finding("data/small", 19), finding("io/other", 100, weight=Weight.FALLBACK)
    (only,) = explain([small, other], holds({ENTRIES[0]: 100}), WHOLE)
    assert (only.cause, only.spent_ns, only.also) == ("io/other", 100, ())


def test_the_lines_of_one_finding_do_not_stand_in_each_others_way():
    stakes = (Stake(*ENTRIES[0], 30, "train.py:3"), Stake(*ENTRIES[0], 40, "train.py:9"))
    (only,) = explain([finding(stakes=stakes)], holds({ENTRIES[0]: 100}), WHOLE)
    assert only.spent_ns == 70


def test_a_stake_without_a_line_takes_the_time_of_the_line_that_is_named():
    named = finding("io/save", 50, where=Line("train.py", 3))
    hot = finding("host/hot", 50, line="train.py:3", weight=Weight.FALLBACK)
    (only,) = explain([hot, named], holds({ENTRIES[0]: 100}), WHOLE)
    assert (only.cause, only.also) == ("io/save", ("host/hot train.py:9",))


def test_what_comes_now_and_then_is_not_given_again_within_the_steps():
    periodic = finding("io/save", 100, scope=Scope.PERIODIC)
    steady = finding("host/hot", 80, weight=Weight.FALLBACK)
    got = explain([periodic, steady], holds({ENTRIES[0]: 80}, {ENTRIES[0]: 20}), WHOLE)
    assert [(said.cause, said.spent_ns) for said in got] == [("io/save", 100)]


def test_the_machine_is_blamed_after_the_script():
    machine = finding("host/starved", 90, where=Machine("busy"))
    line = finding("io/log", 50, entry=ENTRIES[2])
    got = explain([machine, line], holds({ENTRIES[0]: 100, ENTRIES[2]: 100}), WHOLE)
    assert [said.cause for said in got] == ["io/log", "host/starved"]
    assert explain([replace(line, fault=False), machine], holds({ENTRIES[0]: 100, ENTRIES[2]: 100}), WHOLE)[0].fault


def test_a_stake_that_names_what_the_device_did_takes_only_that_time():
    busy, idle = (*ENTRIES[0], Device.COMPUTE), (*ENTRIES[0], Device.IDLE)
    held = holds({busy: 300, idle: 200})
    (only,) = explain([finding(stakes=(Stake(*ENTRIES[0], 400, device=Device.IDLE),))], held, WHOLE)
    assert only.spent_ns == 200
    (any_device,) = explain([finding(stakes=(Stake(*ENTRIES[0], 400),))], held, WHOLE)
    assert any_device.spent_ns == 400
