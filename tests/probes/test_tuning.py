"""What is told of a search for the fastest kernel: its time, what was tried, and how many operators share what was found."""

from types import SimpleNamespace

from unstall.model.wire import Phase, cell
from unstall.probes.tuning import Tuning


class ExternKernelCaller:
    name = "bmm"


class CppTemplateCaller:
    name = "cpp_micro_gemm"


LIBRARYS, WRITTEN = ExternKernelCaller(), CppTemplateCaller()


def node(*size):
    return SimpleNamespace(get_size=lambda: size, get_stride=lambda: (1,) * len(size))


def tuning():
    told = {}
    accounting = SimpleNamespace(here=lambda: cell(Phase.BACKWARD, 4))
    recorder = SimpleNamespace(fact=told.update, accounting=accounting)
    return Tuning(SimpleNamespace(recorder=recorder)), told


def test_a_search_tells_its_time_and_what_the_librarys_kernel_takes():
    probe, told = tuning()
    probe.look(None, "bmm", (), [node(4, 8), node(8, 8)])
    probe.end("bmm", [node(4, 8), node(8, 8)], {LIBRARYS: 0.03, WRITTEN: 0.02}, 1.5, 0.5, None)
    search = told["tuned:0"]
    assert (search["ns"], search["choices"], search["phase"]) == (2_000_000_000, 2, "BACKWARD")
    assert (search["best"], search["best_ms"], search["usual_ms"]) == ("cpp_micro_gemm", 0.02, 0.03)


def test_what_the_look_took_beside_the_search_is_counted(monkeypatch):
    probe, told = tuning()
    now = iter([1_000, 6_000_001_000, 7_000_000_000, 7_500_000_000])
    monkeypatch.setattr("unstall.probes.tuning.time.monotonic_ns", lambda: next(now))
    probe.look(None, "bmm", (), [node(4, 8)])
    probe.end("bmm", [node(4, 8)], {LIBRARYS: 0.03}, 1.0)
    probe.close(None)
    assert told["tuned:0"]["ns"] == 6_000_000_000 and told["tuned:0"]["best_ms"] == 0.03
    probe.look(None, "bmm", (), [node(4, 8)])  # found again: nothing was searched
    probe.close(None)
    assert told["tuned:0"]["ns"] == 6_000_000_000


def test_operators_alike_share_a_search_and_are_counted():
    probe, told = tuning()
    for _ in range(2):
        probe.look(None, "bmm", (), [node(4, 8)])
    probe.end("bmm", [node(4, 8)], {LIBRARYS: 0.03}, 1.0)
    probe.look(None, "bmm", (), [node(4, 8)])
    probe.look(None, "bmm", (), [node(4, 9)])
    probe.end("bmm", [node(4, 8)], {LIBRARYS: 0.03}, 1.0)
    assert told["tuned:0"]["uses"] == 2 and told["tuned_uses:0"] == {"uses": 3}
    assert "tuned:1" not in told


def test_without_a_librarys_kernel_what_would_run_otherwise_is_not_known():
    probe, told = tuning()
    probe.end("flex_attention", [node(4, 8)], {WRITTEN: 0.02}, 1.0)
    assert told["tuned:0"]["usual_ms"] is None
