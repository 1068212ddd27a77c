"""A fix goes from remedy to remedy on the run as improved so far, and keeps what is proved whatever ends it."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from unstall.launch.workspace import Workspace
from unstall.model.errors import UnstallError
from unstall.model.finding import Basis, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Phase
from unstall.model.remedy import Remedy, RemoveCall, Safety, SetKeyword, Switch
from unstall.model.report import Job, Report, Share
from unstall.model.run import Facts
from unstall.model.trial import Captured, Measure, Trial, Verdict
from unstall.pipeline import fix as fixing
from unstall.pipeline import proving
from unstall.pipeline._asked import BY_USER, FixOptions
from unstall.pipeline.fix import Fix
from unstall.pipeline.proving import Clock, Prover
from unstall.pipeline.trial import Interrupted
from unstall.trials.sequence import next_alpha
from unstall.trials.worth import Worth

MS = 1_000_000
SCRIPT = """\
import gc
from torch.utils.data import DataLoader
loader = DataLoader(data, 8)
for batch in loader:
    gc.collect()
"""
WORKERS = SetKeyword("train.py", 3, "torch.utils.data.DataLoader", "num_workers", 4, 5)
COLLECT = RemoveCall("train.py", 5, "gc.collect")


def finding(cause, line, saved_ms):
    return Finding(
        cause,
        f"{cause} costs {saved_ms} ms.",
        Line("train.py", line, "main", ""),
        Scope.STEADY,
        (Stake(Phase.FETCH, Activity.LOAD, saved_ms * MS),),
        Weight.OVERLAP,
        Basis.MEASURED,
        (),
        Saving(saved_ms * MS, saved_ms * MS),
        share=0.1,
    )


def report(step_ms, *found):
    """Return a report of a 100-step run with *found*: (cause, line, ms saved, edit)."""
    parts = (Share("fetch", step_ms * MS, 1.0),)
    remedies = tuple((Remedy(f"{cause}#it", cause, Safety.SAME_BITS, (edit,)),) for cause, _, _, edit in found)
    empty = Report(("train.py",), 0, False, "", 10**10, (10**10,), 100, 95, 5, None, parts, (), "", 0.0, 0, 0.0, "",
                   (), (), (), (), (), (), (), {}, Facts({}), Job(), None, None)  # fmt: skip
    return replace(empty, findings=tuple(finding(*each[:3]) for each in found), remedies=remedies)


@dataclass
class Planned:
    """A bench whose step takes 40 ms, less what each edit saves; at trial *stop_at* it does what *stop* says."""

    saves: dict
    workspace: Workspace
    stop_at: int = 10**9
    stop: BaseException = field(default_factory=Interrupted)
    words: tuple = ("train.py",)
    made: int = 0
    launched: int = 0
    discarded: int = 0
    waited_s: float = 0.0
    noise: float = 0.005

    def make(self, ask):
        self.made += 1
        if self.made >= self.stop_at:
            raise self.stop
        draw = np.random.default_rng(self.made)
        step = (40 - sum(self.saves.get(edit, 0) for edit in ask.edits)) * MS
        lengths = step * np.exp(draw.normal(0, 0.01, 80) + draw.normal(0, self.noise))
        kept = Captured(np.linspace(2, 1, 80), "the same", epochs=3)
        return Trial(10**9 + np.cumsum(lengths).astype(np.int64), 0, True, kept)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Return a function that begins a fix whose reports after each kept remedy are as given."""
    (tmp_path / "train.py").write_text(SCRIPT)

    def begin(saves, first, *later, **bench):
        options = FixOptions(("train.py",), patch=tmp_path / "unstall.patch", budget_s=1e6)
        planned = Planned(saves, Workspace(tmp_path, None), **bench)
        clock = Clock(options.budget_s)
        reports = iter(later)
        monkeypatch.setattr(fixing, "_record", lambda *_: next(reports))
        return Fix(options, tmp_path, planned, Prover(planned, options, clock, tmp_path), clock, first, first)

    return begin


BOTH = (("data/starved-loader", 3, 20, WORKERS), ("host/collecting-garbage", 5, 10, COLLECT))


def test_the_remedy_of_which_most_is_expected_is_tried_first_and_the_next_against_it(begun):
    fix = begun({WORKERS: 20, COLLECT: 10}, report(40, *reversed(BOTH)), report(20, BOTH[1]), report(10))
    fix.go()
    assert [proof.remedy.edits for proof in fix.kept] == [(WORKERS,), (COLLECT,)]
    alone, then = (proof.ratio for proof in fix.proofs)
    assert alone is not None and alone.value == pytest.approx(2.0, rel=0.05)
    assert then is not None and then.value == pytest.approx(2.0, rel=0.05)


def test_the_whole_is_told_by_fresh_pairs_of_the_original_against_all_that_was_kept(begun):
    fix = begun({WORKERS: 20, COLLECT: 10}, report(40, *BOTH), report(20, BOTH[1]), report(10))
    fix.go()
    result = fix.result()
    assert result.total is not None and result.total.value == pytest.approx(4.0, rel=0.05)
    assert "num_workers=4" in result.patch and "-    gc.collect()" in result.patch


def test_a_remedy_without_effect_is_tried_once_and_not_kept(begun):
    fix = begun({WORKERS: 0}, report(40, BOTH[0]))
    fix.go()
    result = fix.result()
    assert [proof.verdict for proof in result.proofs] == [Verdict.NO_EFFECT]
    assert not result.kept and not result.patch and result.total is None
    assert (fix.folder / "train.py").read_text() == SCRIPT


def test_a_remedy_that_the_next_one_makes_needless_is_taken_back(begun):
    class Either(dict):
        """Both edits remove the same 20 ms: together they save no more than the second alone."""

        def get(self, edit, default=0):
            return {WORKERS: 15, COLLECT: 20}[edit]

    fix = begun({}, report(40, *BOTH), report(25, BOTH[1]), report(20))
    fix.bench.saves = Either()
    together = fix.bench.make

    def make(ask):
        if WORKERS in ask.edits and COLLECT in ask.edits:
            ask = replace(ask, edits=(COLLECT,))
        return together(ask)

    fix.bench.make = make
    fix.go()
    assert [proof.remedy.edits for proof in fix.kept] == [(COLLECT,)]
    assert any("taken back" in note for note in fix.notes)


def test_ctrl_c_keeps_what_was_proved_until_then(begun):
    fix = begun({WORKERS: 20, COLLECT: 10}, report(40, *BOTH), report(20, BOTH[1]), stop_at=12)
    fix.go()
    result = fix.result()
    assert result.interrupted == BY_USER
    assert [remedy.edits for remedy in result.kept] == [(WORKERS,)] and "num_workers=4" in result.patch


def test_pairs_that_ctrl_c_ended_are_told_and_counted(begun):
    fix = begun({WORKERS: 0}, report(40, BOTH[0]), stop_at=6, noise=0.1)
    fix.go()
    (proof,) = fix.result().proofs
    assert proof.verdict is Verdict.INCONCLUSIVE and proof.because == "you ended it after 2 pairs"
    assert proof.ratio is not None and fix.interrupted == BY_USER
    assert json.loads(Path(fix.folder, "fix.json").read_text())["verdicts"] == ["INCONCLUSIVE"]


def test_pairs_that_ctrl_c_ended_have_spent_their_alpha_when_the_fix_is_resumed(resumed):
    unclear = ({WORKERS: 0}, report(40, BOTH[0]))
    first, second = resumed(unclear, unclear, stop_at=6, noise=0.1)
    assert first == [next_alpha([])] and second == [next_alpha([Verdict.INCONCLUSIVE])]


def test_a_full_disk_in_a_trial_keeps_what_was_proved_until_then(begun):
    full = UnstallError("the folder cannot be copied for a trial: No space left on device")
    fix = begun({WORKERS: 20, COLLECT: 10}, report(40, *BOTH), report(20, BOTH[1]), stop_at=12, stop=full)
    fix.go()
    assert "No space left" in fix.interrupted and len(fix.kept) == 1


def test_a_fault_of_ours_is_said_and_keeps_what_was_proved_until_then(begun, capsys):
    fix = begun({WORKERS: 20, COLLECT: 10}, report(40, *BOTH), report(20, BOTH[1]), stop_at=12, stop=KeyError("x"))
    fix.go()
    assert len(fix.kept) == 1 and any("fault of unstall" in note for note in fix.notes)
    assert "KeyError" in capsys.readouterr().err


def test_the_state_tells_what_is_kept_so_that_it_can_be_resumed(begun):
    fix = begun({WORKERS: 20}, report(40, BOTH[0]), report(20))
    fix.go()
    state = json.loads(Path(fix.folder, "fix.json").read_text())
    assert state["kept"] == ["data/starved-loader#it"] and len(state["proofs"]) == 1


@pytest.fixture
def resumed(begun, tmp_path, monkeypatch):
    """Return a function that begins a fix, ends it, goes on with it, and tells the alphas that each part spent."""

    def go_on(first, *later, **bench):
        alphas = []
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(proving, "next_alpha", lambda verdicts: alphas.append(next_alpha(verdicts)) or alphas[-1])
        fix = begun(*first, **bench)
        fix.go()
        parts = [list(alphas)]
        for saves, *reports in later:
            alphas.clear()
            planned = Planned(saves, Workspace(tmp_path, None), **bench)
            left = iter(reports)
            monkeypatch.setattr(fixing, "_record", lambda *_, left=left: next(left))
            monkeypatch.setattr(fixing, "Bench", lambda *_, planned=planned, **__: planned)
            fixing.fix(FixOptions((), patch=None, budget_s=1e6, workdir="same", resume=fix.folder))
            parts.append(list(alphas))
        return parts

    return go_on


WITHOUT_EFFECT = ({WORKERS: 0}, report(40, BOTH[0]))
ONE_MORE = ({WORKERS: 0, COLLECT: 10}, report(40, *BOTH), report(30, BOTH[0]))


def test_a_resumed_fix_counts_earlier_verdicts_when_it_spends_alpha(resumed):
    first, second = resumed(WITHOUT_EFFECT, ONE_MORE)
    assert first == [next_alpha([])]
    assert second == [next_alpha([Verdict.NO_EFFECT])] != first


def test_what_was_kept_before_pays_for_what_a_resumed_fix_tries(resumed):
    kept = ({WORKERS: 20}, report(40, BOTH[0]), report(20))
    _, second = resumed(kept, ({WORKERS: 20, COLLECT: 10}, report(40, *BOTH), report(20, BOTH[1]), report(10)))
    assert second == [next_alpha([Verdict.FASTER])]


def test_a_remedy_that_is_tried_again_has_been_counted_each_time(resumed):
    unclear = ({WORKERS: 0}, report(40, BOTH[0]))
    parts = resumed(unclear, unclear, unclear, noise=0.1)
    assert parts == [[next_alpha([Verdict.INCONCLUSIVE] * n)] for n in range(3)]


def test_where_a_start_takes_minutes_it_is_said_at_once_what_the_budget_can_prove(begun):
    slow = report(40, BOTH[0])
    slow = replace(slow, wall_ns=slow.wall_ns - slow.start_ns + 150 * 10**9)
    said = []
    fix = begun({WORKERS: 0}, slow)
    fix.options = replace(fix.options, progress=lambda one: said.append(one) if one.stays else None)
    fix.clock = Clock(1300.0)
    fix._foresee()
    (one,) = said
    assert "150 s of it the start; 8 fit into the budget, so 3 pairs at most" in one.what and fix.notes == [one.what]
    fix.clock, fix.notes = Clock(600.0), []
    fix._foresee()
    assert "nothing can be proved. Give 20m more." in fix.notes[0]


def test_nothing_is_said_of_a_budget_that_suffices(begun):
    fix = begun({WORKERS: 0}, report(40, BOTH[0]))
    fix._foresee()
    assert fix.notes == []


def test_a_source_that_was_changed_meanwhile_is_named(begun):
    fix = begun({WORKERS: 20}, report(40, BOTH[0]), report(20))
    os.utime(fix.folder / "train.py", (fix.clock.began - 60,) * 2)
    fix.go()
    assert not any("was changed while" in note for note in fix.result().notes)
    os.utime(fix.folder / "train.py", (fix.clock.began + 60,) * 2)
    assert any("train.py was changed while trials ran" in note for note in fix.result().notes)


def test_a_patch_of_an_earlier_fix_is_not_left_to_be_taken_for_this_one(begun):
    fix = begun({WORKERS: 0}, report(40, BOTH[0]))
    (fix.folder / "unstall.patch").write_text("# A patch of unstall fix. Apply it with: git apply unstall.patch")
    fix.go()
    assert any("of an earlier fix" in note for note in fix.result().notes)


SWITCH = Switch("torch.set_num_threads", ("torch.get_num_threads",), (2,))


def test_what_can_be_switched_has_room_for_a_screening(begun):
    fix = begun({}, report(40, *BOTH))
    room = fix._room(_worth(SWITCH))
    assert room is not None and (room.step_ns, room.warm, room.ranks) == (40 * MS, 5, 1)
    assert fix._room(_worth(None)) is None


def test_no_screening_where_a_switch_would_compile_anew(begun, monkeypatch):
    monkeypatch.setattr(fixing, "compiles", lambda _: True)
    assert begun({}, report(40, *BOTH))._room(_worth(SWITCH)) is None


def test_no_screening_of_what_is_for_the_start_or_comes_now_and_then(begun):
    assert begun({}, report(40, *BOTH))._room(_worth(SWITCH, Measure.START)) is None
    periodic = report(40, *BOTH)
    periodic = replace(periodic, findings=tuple(replace(one, scope=Scope.PERIODIC) for one in periodic.findings))
    assert begun({}, periodic)._room(_worth(SWITCH)) is None


def _worth(switch, measure=Measure.STEP):
    remedy = Remedy("data/starved-loader#it", "it", Safety.SAME_BITS, (WORKERS,), switch=switch)
    return Worth("data/starved-loader", "train.py:3", remedy, measure, None, None)
