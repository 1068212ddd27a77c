"""Facts of the machine, read from recorded files of machines that we do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.launch import cgroup
from unstall.launch.machine import machine_facts, settings

V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_CPU = "33 32 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
V1_MEMORY = "34 32 0:30 {root} /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 50000", 1.0), ("", None), ("0 1", 0.0)]
)
def test_a_v2_quota_is_read(text: str, cpus: float | None) -> None:
    assert cgroup.parse_cpu_max(text) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1\n", None), ("250000\n", 2.5), ("", None)])
def test_a_v1_quota_is_read(quota: str, cpus: float | None) -> None:
    assert cgroup.parse_cfs(quota, "100000\n") == cpus


def test_throttled_time_is_in_us_in_both_versions() -> None:
    assert cgroup.parse_throttled("usage_usec 9\nnr_throttled 3\nthrottled_usec 4200\n") == 4200
    assert cgroup.parse_throttled("nr_periods 9\nnr_throttled 3\nthrottled_time 4200000\n") == 4200
    assert cgroup.parse_throttled("usage_usec 9\n") is None


def test_the_tightest_quota_of_the_groups_above_counts(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod1/c1\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/kubepods/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/kubepods/pod1/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/pod1/memory.max": "2147483648\n",
            "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max\n",
        },
    )
    assert cgroup.cpu_quota(root) == 1.5
    assert cgroup.memory_limit(root) == 2 << 30


def test_a_v1_group_is_found_where_the_container_mounts_only_its_own(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
            "proc/self/mountinfo": V1_CPU.format(root="/docker/abc") + V1_MEMORY.format(root="/docker/abc"),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_throttled 1\nthrottled_time 7000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert cgroup.cpu_quota(root) == 0.5
    assert cgroup.memory_limit(root) is None
    assert cgroup.throttled_us(cgroup.find("cpu", root)) == 7


def test_a_namespaced_v2_container_reads_its_own_root(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/cpu.max": "300000 100000\n",
        },
    )
    assert cgroup.cpu_quota(root) == 3.0


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cgroup.cpu_quota(tmp_path) is None
    assert cgroup.throttled_us(cgroup.find("cpu", tmp_path)) is None


def test_usable_cores_are_bounded_by_the_quota(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/cpu.max": "25000 100000\n",
            "proc/cpuinfo": "processor : 0\nmodel name : A CPU\nphysical id : 0\ncore id : 0\nflags : fpu avx avx2\n"
            "processor : 1\nphysical id : 0\ncore id : 0\nflags : fpu avx avx2\n",
            "proc/meminfo": "MemTotal:       1024 kB\n",
            "proc/loadavg": "0.50 0.1 0.1 1/99 9\n",
            "proc/sys/kernel/yama/ptrace_scope": "1\n",
        },
    )
    facts = machine_facts({"OMP_NUM_THREADS": "1", "USER": "someone"}, root)
    assert facts["machine.usable_cores"] == 0.25
    assert (facts["machine.cpu"], facts["machine.cpus"], facts["machine.cores"]) == ("A CPU", 2, 1)
    assert facts["machine.isa"] == ["avx", "avx2"]
    assert (facts["machine.memory_bytes"], facts["machine.load1"], facts["machine.ptrace_scope"]) == (1 << 20, 0.5, 1)
    assert facts["env.OMP_NUM_THREADS"] == "1"
    assert "someone" not in str(facts)


def test_this_machine_has_cores() -> None:
    facts = machine_facts({})
    usable = facts["machine.usable_cores"]
    assert isinstance(usable, float)
    assert usable > 0


def test_only_allowed_variables_are_told_and_no_secret_among_them() -> None:
    env = {"MKL_NUM_THREADS": "2", "HOSTNAME": "box", "TORCH_HUB_TOKEN": "x", "NCCL_DEBUG": "INFO", "HF_TOKEN": "x"}
    assert settings(env) == {"MKL_NUM_THREADS": "2", "NCCL_DEBUG": "INFO"}


def test_an_installed_allocator_is_found_and_that_of_the_environment_first(tmp_path: Path) -> None:
    assert "machine.allocator" not in machine_facts({}, tmp_path)
    machine(tmp_path, {"usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4": "", "conda/lib/libjemalloc.so.2": ""})
    assert machine_facts({}, tmp_path)["machine.allocator"] == str(
        tmp_path / "usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    )
    conda = {"CONDA_PREFIX": str(tmp_path / "conda")}
    assert machine_facts(conda, tmp_path)["machine.allocator"] == str(tmp_path / "conda/lib/libjemalloc.so.2")


def test_the_c_library_and_the_size_of_a_page_are_told() -> None:
    facts = machine_facts({})
    assert str(facts["machine.libc"]).startswith("glibc") and facts["machine.page_bytes"] in (4096, 16384, 65536)
