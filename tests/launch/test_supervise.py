"""A command is started, watched and ended: its exit code, its signals, its descendants.

The commands are small scripts that report themselves as the probes would; none imports torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from unstall.launch import recording, stacks
from unstall.launch.supervise import Ended, inject_folder, injected, launch
from unstall.model.errors import UnstallError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descendants and pidfds are Linux's")
PATIENCE_S = 20.0  # until something that takes milliseconds is taken as failed; the machine may be loaded

# Says what the probes say once torch is imported and a step is closed.
REPORT = """
import json, os, sys, time, signal, threading
def report(folder, **more):
    place = os.path.join(os.environ["UNSTALL_RECORDING"], folder, str(os.getpid()))
    with open(place + ".part", "w") as file:
        json.dump({"pid": os.getpid(), "thread": threading.get_native_id(), **more}, file)
    os.rename(place + ".part", place)
"""
LAUNCHER = """
import json, os, sys
from pathlib import Path
from unstall.launch import recording
from unstall.launch.supervise import launch
folder, argv = Path(sys.argv[1]), sys.argv[2:]
ended = launch(argv, dict(os.environ), folder)
print("after the end", flush=True)
sys.exit(ended.exit_code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recording.create("train.py", tmp_path / "recording", {})


@pytest.fixture
def without_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "find_binary", lambda: None)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", REPORT + textwrap.dedent(code)]


def run(folder: Path, code: str) -> Ended:
    return launch(python(code), os.environ, folder)


def wait_for(path: Path) -> str:
    until = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.01)
    return path.read_text()


def is_gone(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def launcher(folder: Path, code: str, settings: str = "") -> subprocess.Popen[str]:
    """Start a launcher of its own, in a process group of its own."""
    source = str(Path(inject_folder()).parents[2])
    env = {**os.environ, "PYTHONPATH": source}
    argv = [sys.executable, "-c", settings + LAUNCHER, str(folder), *python(code)]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [
        ("pass", 0, None),
        ("sys.exit(3)", 3, None),
        ("raise ValueError('planted')", 1, None),
        ("os._exit(7)", 7, None),
        ("os.kill(os.getpid(), 9)", 137, 9),
    ],
)
def test_the_exit_is_the_commands_own(folder: Path, code: str, exit_code: int, number: int | None) -> None:
    before = time.monotonic_ns()
    ended = run(folder, code)
    assert (ended.exit_code, ended.signal) == (exit_code, number)
    assert before <= ended.spawn_ns < ended.reap_ns <= time.monotonic_ns()
    written = json.loads((folder / "recording.json").read_text())
    assert written["exit_code"] == exit_code
    assert (written["spawn_ns"], written["reap_ns"]) == (ended.spawn_ns, ended.reap_ns)


def test_a_python_child_is_seen_and_its_children_too(folder: Path) -> None:
    ended = run(folder, "import subprocess; subprocess.run([sys.executable, '-c', 'pass'])")
    assert len(ended.seen) == 2
    assert ended.pid in ended.seen


def test_an_isolated_child_is_not_seen(folder: Path) -> None:
    assert launch([sys.executable, "-I", "-c", "pass"], os.environ, folder).seen == {}


def test_what_is_not_python_runs_as_well(folder: Path) -> None:
    assert launch(["sh", "-c", "exit 4"], os.environ, folder).exit_code == 4


def test_stdin_and_stdout_are_the_commands_own(folder: Path) -> None:
    done = launcher(folder, "pass")
    done.communicate()
    source = str(Path(inject_folder()).parents[2])
    echoed = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(folder), "cat"],
        env={**os.environ, "PYTHONPATH": source},
        input="typed\n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, echoed.returncode) == (0, 0)
    assert echoed.stdout == "typed\nafter the end\n"
    assert echoed.stderr == ""


def test_a_command_that_cannot_start_is_a_message(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "no_shebang").write_text("x")
    (tmp_path / "no_shebang").chmod(0o755)
    for program in ("/no/such/program", str(tmp_path / "no_shebang")):
        with pytest.raises(UnstallError, match="cannot be started"):
            launch([program], os.environ, folder)


def test_our_folder_is_put_in_front_once(folder: Path) -> None:
    once = injected({"PYTHONPATH": "/a:/b"}, folder)
    assert once["PYTHONPATH"] == f"{inject_folder()}:/a:/b"
    assert injected(once, folder) == once
    assert injected({}, folder)["PYTHONPATH"] == inject_folder()


COUNT_SIGNALS = """
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda n, f: got.append(n))
print(os.getpid(), flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.5)  # longer than it takes to pass a second one on
print(*got, flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_launcher_reaches_the_training_once(folder: Path, number: int) -> None:
    ours = launcher(folder, COUNT_SIGNALS)
    assert ours.stdout
    child = int(ours.stdout.readline())
    os.kill(ours.pid, number)
    rest = ours.communicate(timeout=PATIENCE_S)[0]
    assert rest.split("\n")[:2] == [str(int(number)), "after the end"]
    assert ours.returncode == 5
    assert is_gone(child)
    assert json.loads((folder / "recording.json").read_text())["signals"] == [number]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_reaches_the_training_once(folder: Path, number: int) -> None:
    ours = launcher(folder, COUNT_SIGNALS)
    assert ours.stdout
    ours.stdout.readline()
    os.killpg(ours.pid, number)
    rest = ours.communicate(timeout=PATIENCE_S)[0]
    assert rest.split("\n")[:2] == [str(int(number)), "after the end"]
    assert ours.returncode == 5


def test_a_training_that_a_signal_ends_is_reported_after(folder: Path) -> None:
    ours = launcher(folder, "print(os.getpid(), flush=True); time.sleep(60)")
    assert ours.stdout
    child = int(ours.stdout.readline())
    os.kill(ours.pid, signal.SIGTERM)
    assert ours.communicate(timeout=PATIENCE_S)[0] == "after the end\n"
    assert ours.returncode == 128 + signal.SIGTERM
    assert is_gone(child)


def test_a_second_interrupt_is_passed_on_as_well(folder: Path) -> None:
    ours = launcher(
        folder,
        """
        got = []
        signal.signal(signal.SIGINT, lambda n, f: (got.append(n), print(len(got), flush=True)))
        print("ready", flush=True)
        while len(got) < 2:
            time.sleep(0.01)
        """,
    )
    assert ours.stdout
    assert ours.stdout.readline() == "ready\n"
    for count in ("1\n", "2\n"):
        os.killpg(ours.pid, signal.SIGINT)
        assert ours.stdout.readline() == count
    assert ours.communicate(timeout=PATIENCE_S)[0] == "after the end\n"
    assert ours.returncode == 0


def test_the_third_signal_kills_what_does_not_end_after_a_long_grace(folder: Path) -> None:
    ours = launcher(
        folder,
        """
        signal.signal(signal.SIGTERM, lambda n, f: print("no", flush=True))
        print(os.getpid(), flush=True)
        while True:
            time.sleep(0.01)
        """,
        settings="import unstall.launch.supervise as s; s.KILL_AFTER_S = 0.5",
    )
    assert ours.stdout
    child = int(ours.stdout.readline())
    for _ in range(2):
        os.kill(ours.pid, signal.SIGTERM)
        assert ours.stdout.readline() == "no\n"
        time.sleep(0.3)
    os.kill(ours.pid, signal.SIGTERM)
    assert ours.communicate(timeout=PATIENCE_S)[0].endswith("after the end\n")
    assert ours.returncode == 128 + signal.SIGKILL
    assert is_gone(child)


def test_an_ignored_signal_stays_ignored(folder: Path) -> None:
    source = str(Path(inject_folder()).parents[2])
    code = "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", LAUNCHER, str(folder), *python(code)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\nafter the end\n"


def test_a_killed_launcher_takes_the_training_with_it(folder: Path) -> None:
    ours = launcher(folder, "print(os.getpid(), flush=True); time.sleep(60)")
    assert ours.stdout
    child = int(ours.stdout.readline())
    ours.kill()
    ours.communicate(timeout=PATIENCE_S)
    assert is_gone(child)


def test_a_descendant_that_outlives_the_command_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstall.launch.supervise.GRACE_S", 0.2)
    pids = folder / "pids"
    ended = run(
        folder,
        f"""
        import subprocess
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        left = [subprocess.Popen([sys.executable, "-c", stubborn]), subprocess.Popen(["sleep", "60"])]
        print(*(p.pid for p in left), file=open({str(pids)!r}, "w"))
        time.sleep(0.5)
        """,
    )
    left = [int(pid) for pid in pids.read_text().split()]
    assert set(left) == set(ended.terminated)
    assert all(is_gone(pid) for pid in left)
    assert ended.exit_code == 0


def test_a_descendant_that_ends_by_itself_is_given_the_time(folder: Path) -> None:
    ended = run(folder, "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.3)'])")
    assert ended.terminated == ()
    assert (ended.exit_code, len(ended.seen)) == (0, 2)


@pytest.mark.parametrize("trains", [False, True])
def test_only_a_daemon_that_does_not_train_is_left_alone(
    folder: Path, trains: bool, monkeypatch: pytest.MonkeyPatch, without_sampler: None
) -> None:
    monkeypatch.setattr("unstall.launch.supervise.GRACE_S", 0.2)
    daemon = REPORT + ("report('torch', role='main')\n" if trains else "") + "print('up', flush=True); time.sleep(60)"
    ended = run(
        folder,
        f"""
        import subprocess
        daemon = subprocess.Popen([sys.executable, "-c", {daemon!r}], start_new_session=True, stdout=subprocess.PIPE)
        daemon.stdout.readline()
        """,
    )
    (pid,) = ended.seen.keys() - {ended.pid}
    try:
        assert (pid in ended.terminated) is trains
        assert Path(f"/proc/{pid}").exists() is not trains
    finally:
        if not trains:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_when_each_rank_ended_is_known_to_the_ms(folder: Path, without_sampler: None) -> None:
    rank = """
report("torch", role="main"); report("trains", role="trainer"); time.sleep(0.5)
print(os.getpid(), time.monotonic_ns(), flush=True); os._exit(0)
"""
    ends = folder / "ends"
    ended = run(
        folder,
        f"""
        import subprocess
        out = open({str(ends)!r}, "w")
        rank = subprocess.Popen([sys.executable, "-c", {REPORT + rank!r}], stdout=out)
        rank.wait(); time.sleep(0.5)
        """,
    )
    pid, at_ns = (int(word) for word in ends.read_text().split())
    late_ns = ended.rank_exits[pid] - at_ns
    assert 0 < late_ns < 200e6  # some ms on a quiet machine; half a second before the command's end in any case
    assert ended.reap_ns - ended.rank_exits[pid] > 200e6


def test_the_status_is_called_with_time_and_processes(folder: Path) -> None:
    calls: list[tuple[float, int]] = []
    launch(python("time.sleep(1.3)"), os.environ, folder, status=lambda s, n: calls.append((s, n)))
    assert len(calls) >= 2
    assert calls[-1][0] > calls[0][0]
    assert calls[-1][1] == 1


def test_cpu_time_and_memory_of_a_training_are_read(folder: Path, without_sampler: None) -> None:
    ended = run(
        folder,
        """
        report("torch", role="main")
        until = time.monotonic() + 0.7
        while time.monotonic() < until: pass
        """,
    )
    lines = [json.loads(line) for line in (folder / "machine.jsonl").read_text().splitlines()]
    read = [line["processes"][str(ended.pid)] for line in lines if line["processes"]]
    assert read[0]["rss"] > 1 << 20
    assert read[0]["cpu_ns"] > 0
    assert str(ended.pid) in read[0]["threads"]
    assert 0 <= read[0]["system_ns"] <= read[0]["cpu_ns"] + 20_000_000 and read[0]["faults"] > 100
    assert [line["at_ns"] for line in lines] == sorted(line["at_ns"] for line in lines)
    assert ended.spawn_ns < lines[0]["at_ns"] < ended.spawn_ns + 10**9


def test_without_a_sampler_the_recording_says_so_and_the_training_goes_on(folder: Path, without_sampler: None) -> None:
    ended = run(folder, "report('torch', role='main'); time.sleep(0.3)")
    assert ended.exit_code == 0
    assert ended.refused is not None
    assert "py-spy was not found" in ended.refused
    assert "py-spy was not found" in (folder / "stacks-refused").read_text()
    assert list(folder.glob("stacks-*")) == [folder / "stacks-refused"]
