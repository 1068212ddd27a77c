"""Facts of the machine that a training runs on, and the settings in its environment.

No host name, no user name; environment variables by allow-list only.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.launch import cgroup
from unstall.launch.redaction import is_secret_name, redacted_value

if TYPE_CHECKING:
    from unstall.model.run import Fact  # not at run time: it imports numpy, and this runs before the training starts

# Settings that change how fast a training runs, and nothing that says who runs it or where.
ALLOWED = (
    "OMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "VECLIB_*", "KMP_*", "GOMP_*",
    "TORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "PYTORCH_*", "ATEN_CPU_CAPABILITY", "DNNL_*", "ONEDNN_*",
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_DEVICE_*", "CUBLAS_*", "CUDNN_*",
    "NVIDIA_TF32_OVERRIDE", "NCCL_*", "GLOO_*", "LD_PRELOAD", "MALLOC_*", "GLIBC_TUNABLES",
    "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONUNBUFFERED", "PYTHONTRACEMALLOC", "PYTHONASYNCIODEBUG",
    "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME", "PYTHON_GIL", "PYTHON_JIT", "TOKENIZERS_PARALLELISM",
    "LRU_CACHE_CAPACITY", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
)  # fmt: skip
_ISA = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile", "asimd", "sve", "bf16")
_ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
_IN_CONTAINER = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden")


def machine_facts(env: Mapping[str, str], root: Path = Path("/")) -> dict[str, Fact]:
    """Return what is known of the machine and of *env*, by dotted name; what is not known is left out.

    Names: ``machine.cpu`` (model), ``.cpus`` (logical), ``.cores`` (physical), ``.affinity_cpus``,
    ``.quota_cores``, ``.usable_cores`` (affinity bounded by the quota), ``.isa``, ``.virtual``, ``.numa_nodes``,
    ``.memory_bytes``, ``.memory_limit_bytes``, ``.load1`` (before the training), ``.ptrace_scope``, ``.container``,
    ``.gpus`` (NVIDIA's and AMD's that the drivers list), ``.os``, ``.architecture``, ``.libc``, ``.page_bytes``,
    ``.allocator`` (library of another memory allocator that is installed); and ``env.NAME`` for each allowed
    variable that is set.

    Args:
        env: the environment that the training gets.
        root: what stands for ``/``.
    """
    known: dict[str, Fact] = {"machine.os": f"{platform.system()} {platform.release()}"}
    known["machine.architecture"] = platform.machine()
    known["machine.libc"] = _libc()
    known["machine.page_bytes"] = os.sysconf("SC_PAGE_SIZE")
    known["machine.allocator"] = _allocator(env, root)
    known.update(_processor(_text(root / "proc/cpuinfo")))
    known.update(_cores(root))
    known.update(_memory(root))
    load = _text(root / "proc/loadavg").split()
    scope = _text(root / "proc/sys/kernel/yama/ptrace_scope").strip()
    known["machine.load1"] = float(load[0]) if load else None
    known["machine.ptrace_scope"] = int(scope) if scope.isdigit() else None
    known["machine.container"] = _container(env, root)
    known["machine.gpus"] = _gpus(root)
    known = {name: value for name, value in known.items() if value is not None}
    known.update({f"env.{name}": value for name, value in settings(env).items()})
    return known


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *env* that are on the allow-list, secrets and the home folder replaced."""
    allowed = (n for n in sorted(env) if any(fnmatchcase(n, pattern) for pattern in ALLOWED))
    return {name: redacted_value(env[name]) for name in allowed if not is_secret_name(name)}


def _libc() -> str | None:
    """Return the C library that this Python runs on, as ``glibc 2.36``; None where it does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return None


def _allocator(env: Mapping[str, str], root: Path) -> str | None:
    """Return the file of an installed memory allocator that a program can be started with, or None."""
    places = [*sorted((root / "usr/lib").glob("*-linux-gnu")), root / "usr/lib64", root / "usr/lib"]
    conda = [Path(env["CONDA_PREFIX"], "lib")] if env.get("CONDA_PREFIX") else []
    files = (place / name for name in _ALLOCATORS for place in (*conda, *places))
    return next((str(file) for file in files if file.exists()), None)


def _gpus(root: Path) -> int:
    """Return how many GPUs the kernel's drivers list. A node of AMD's topology that is a processor has the id 0."""
    nvidia = sum(1 for _ in (root / "proc/driver/nvidia/gpus").glob("*"))
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    return nvidia + sum(_text(node).strip() not in ("", "0") for node in nodes)


def _processor(cpuinfo: str) -> dict[str, Fact]:
    """Return model, counts and vector instructions out of /proc/cpuinfo."""
    model: str | None = None
    flags: set[str] = set()
    logical = 0
    cores: set[tuple[str, str]] = set()
    package = ""
    for line in cpuinfo.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "processor":
            logical += 1
        elif name == "model name":
            model = value
        elif name in ("flags", "Features"):
            flags = flags or set(value.split())
        elif name == "physical id":
            package = value
        elif name == "core id":
            cores.add((package, value))
    return {
        "machine.cpu": model or platform.processor() or None,
        "machine.cpus": logical or os.cpu_count(),
        "machine.cores": len(cores) or None,
        "machine.isa": [f for f in _ISA if f in flags] or None,
        "machine.virtual": ("hypervisor" in flags) if flags else None,
    }


def _cores(root: Path) -> dict[str, Fact]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota(root)
    nodes = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    return {
        "machine.affinity_cpus": affinity,
        "machine.quota_cores": quota,
        "machine.usable_cores": float(affinity if quota is None else min(affinity, quota)),
        "machine.numa_nodes": len(nodes) or None,
    }


def _memory(root: Path) -> dict[str, Fact]:
    total: int | None = None
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    return {"machine.memory_bytes": total, "machine.memory_limit_bytes": cgroup.memory_limit(root)}


def _container(env: Mapping[str, str], root: Path) -> str | None:
    """Return what hints at a container, as ``docker``, or None."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    group = _text(root / "proc/self/cgroup")
    return next((name for name in _IN_CONTAINER if name in group), env.get("container"))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
