"""A report shows calibrated savings, and everything that goes by what was claimed stays as it was."""

from unstall.accounts import calibration
from unstall.accounts.calibration import Scores, unit
from unstall.model.codec import report_to_json
from unstall.model.report import Job
from unstall.pipeline import account, explained, report
from unstall.readers.recording import Ended
from unstall.testing.timeline import draw

WAITS = """
step   |ssssssssss|ssssssssss
main   |FFFFFFFFOO|FFFFFFFFOO
host   |LyyyxxL...|LyyyxxL...
stream |.kkk...kkk|.kkk...kkk
"""  # the host waits for the device in every step, and the device then for the host


def made(monkeypatch, scores):
    monkeypatch.setattr(calibration, "known", lambda: Scores(scores))
    drawn = draw(WAITS)
    ended = Ended(("python", "train.py"), "", 1, 0, 60_000_000, 0, {}, "", {})
    return report(drawn, ended, Job(hours=10), "")


def test_the_scores_of_another_layer_change_nothing(monkeypatch):
    assert made(monkeypatch, {"other/x": ((0.1, 0.1),) * 20}).findings == made(monkeypatch, {}).findings


def test_the_saving_is_calibrated_and_the_order_shares_and_remedies_are_not(monkeypatch):
    plain = made(monkeypatch, {})
    wide = made(monkeypatch, {"host/x": ((0.1, 0.1),) * 20})
    drawn = draw(WAITS)
    ledger, tables, segments = account(drawn)
    raw = explained(drawn, ledger, tables, segments, job=Job(hours=10))
    assert plain.findings == raw.findings
    assert [one.cause for one in wide.findings] == ["host/sync-every-step"]
    assert (wide.findings[0].share, wide.findings[0].spent_ns) == (plain.findings[0].share, plain.findings[0].spent_ns)
    assert wide.remedies == plain.remedies
    claimed, saving, step_ns = plain.findings[0].saving, wide.findings[0].saving, wide.mean_step_ns
    assert saving.claimed == claimed
    moved = 0.1 * unit(step_ns, claimed.high_ns)
    assert (saving.low_ns, saving.high_ns) == (round(claimed.low_ns - moved), round(claimed.high_ns + moved))
    assert wide.projection.saved_low_hours < plain.projection.saved_low_hours
    assert wide.projection.saved_high_hours > plain.projection.saved_high_hours
    told = report_to_json(wide)["findings"][0]["saving"]["calibrated"]
    assert (told["of"], told["family"], told["claimed_per_step_ns_high"]) == (20, "host", claimed.high_ns)


def test_without_scores_nothing_is_called_calibrated(monkeypatch):
    plain = made(monkeypatch, {})
    assert report_to_json(plain)["findings"][0]["saving"]["calibrated"] is None
