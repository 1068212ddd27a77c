"""What the processes of one rank told of samples and workers, as facts of the rank."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.model.run import Fact
from unstall.readers.wire import Process


def looks(process: Process, workers: Iterable[Process]) -> dict[str, Fact]:
    """Return the facts ``digests``, ``reads``, ``open`` and ``memory`` (docs/recording.md) of a process and its data workers."""
    workers = list(workers)
    digests: list[Fact] = []
    reads: dict[str, list[int]] = {}
    opened: dict[str, Fact] = {}
    for one in (process, *workers):
        for name, told in one.facts.items():
            kind, _, of = name.partition(":")
            if kind == "digests" and isinstance(told, list):
                digests.append(told)
            elif kind == "reads" and isinstance(told, list):
                before = reads.get(of, [0] * len(told))
                reads[of] = [a + int(str(b)) for a, b in zip(before, told)]
            elif kind == "open" and isinstance(told, int):
                opened[of] = max(told, int(str(opened.get(of, 0))))
    memory: dict[str, Fact] = {}
    for worker in workers:
        seen = sorted((name, told) for name, told in worker.facts.items() if name.startswith("memory:"))
        if seen:
            memory[str(worker.pid)] = [told for _, told in sorted(seen, key=lambda one: int(one[0][7:]))]
    sums: dict[str, Fact] = {name: list(numbers) for name, numbers in reads.items()}
    found: dict[str, Fact] = {"digests": digests, "reads": sums, "open": opened, "memory": memory}
    return {name: told for name, told in found.items() if told}
