"""How the loop used each loader, and what a batch costs whoever makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import line_at
from unstall.model.ledger import Ledger
from unstall.model.run import Facts, Fetches, Place, Rank
from unstall.model.steps import Steps
from unstall.model.tables import LoaderUse
from unstall.model.wire import RANDOM_DRAWN, RANDOM_SEEN, Kind, Phase

MAIN_PROCESS = 0xFFFF
SKIPPED = 2  # first batches of a worker: imports, first touches and cold files


def loaders(rank: Rank, steps: Steps, ledger: Ledger, project: str) -> tuple[LoaderUse, ...]:
    """Return the loaders of *rank*, those that trained first, then by the time the loop spent on them."""
    window = _steady_window(steps)
    events = rank.events
    spans = [n for n in events.of(Kind.LOAD, Kind.WAIT_DATA) if window[0] <= events.start_ns[n] < window[1]]
    by_name: dict[str, list[int]] = {}
    for n in spans:
        by_name.setdefault(events.name_of(n), []).append(n)
    fetch_ns = ledger.total_ns(steps=steps.steady, rank=0, phase=Phase.FETCH)
    listed = sum(int(events.end_ns[n] - events.start_ns[n]) for n in spans)
    uses = []
    for number, facts in {**rank.facts.family("loader")}.items():
        mine = by_name.get(f"loader:{number}", [])
        uses.append(_use(number, facts, mine, listed, fetch_ns, rank, steps, project))
    for name, mine in by_name.items():
        if not name.startswith("loader:") and (place := Place.parse(name)) is not None:
            wait = _scaled(mine, rank, listed, fetch_ns)
            walls = _lengths(mine, rank)
            uses.append(
                LoaderUse(
                    -1, line_at(place, project), place.function, True, len(mine), len(mine) / max(1, steps.steady_count), wait,
                    batch_wall_ns=int(np.median(walls)),
                )
            )  # fmt: skip
    return tuple(sorted(uses, key=lambda use: (not use.trains, -use.wait_ns)))


def _steady_window(steps: Steps) -> tuple[int, int]:
    steady = steps.steady
    return (int(steps.start_SR[steady[0], 0]), int(steps.end_SR[steady[-1], 0])) if steady.size else (0, 0)


def _lengths(rows: list[int], rank: Rank) -> NDArray[np.int64]:
    return rank.events.end_ns[rows] - rank.events.start_ns[rows]


def _scaled(rows: list[int], rank: Rank, listed: int, fetch_ns: int) -> int:
    """Return the ledger's FETCH time that falls to the spans *rows*: spans may be listed in windows only."""
    return int(fetch_ns * _lengths(rows, rank).sum() / listed) if rows and listed else 0


def _use(
    number: int, facts: Facts, rows: list[int], listed: int, fetch_ns: int, rank: Rank, steps: Steps, project: str
) -> LoaderUse:
    place = Place.parse(facts.text("site") or "") or Place("", 0)
    workers = facts.number("num_workers")
    iterators, iterator_ns, first_ns = _iterators(number, rank)
    cost = _cost(number, int(workers or 0), rank.fetches)
    return LoaderUse(
        number, line_at(place, project, facts.text("library") or None), "DataLoader", bool(rows), len(rows),
        len(rows) / max(1, steps.steady_count), _scaled(rows, rank, listed, fetch_ns),
        workers=_whole(workers), batch_size=_whole(facts.number("batch_size")), prefetch=_whole(facts.number("prefetch_factor")),
        persistent=facts.flag("persistent_workers"), context=facts.text("context"), iterators=iterators,
        iterator_ns=iterator_ns, first_batch_ns=first_ns, worker_threads=_whole(rank.facts.number("worker.threads")), **cost,
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _iterators(number: int, rank: Rank) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return how many iterators the loader made, how long each took, and how long the first batch of each was waited for."""
    events = rank.events
    made = [n for n in events.of(Kind.ITER) if events.value[n] == number]
    batches = [n for n in events.of(Kind.LOAD, Kind.WAIT_DATA) if events.name_of(n) == f"loader:{number}"]
    starts = events.start_ns[batches] if batches else np.zeros(0, np.int64)
    first = []
    for n in made:
        at = int(np.searchsorted(starts, events.end_ns[n]))
        if at < len(batches):
            first.append(int(events.end_ns[batches[at]] - events.start_ns[batches[at]]))
    return len(made), tuple(int(events.end_ns[n] - events.start_ns[n]) for n in made), tuple(first)


def _cost(number: int, workers: int, fetches: Fetches | None) -> dict[str, Any]:
    if fetches is None:
        return {}
    mine = (fetches.loader == number) & (fetches.worker != MAIN_PROCESS) if workers else fetches.worker == MAIN_PROCESS
    settled = mine & (fetches.batch > SKIPPED)
    mine = settled if settled.any() else mine
    if not mine.any():
        return {}

    def median(column: NDArray[np.int64]) -> int:
        return int(np.median(column[mine]))

    looked = mine & ((fetches.flags & RANDOM_SEEN) > 0) if (mine & ((fetches.flags & RANDOM_SEEN) > 0)).any() else None
    if looked is None:
        looked = (fetches.flags & RANDOM_SEEN) > 0
    drawn = bool((fetches.flags[looked] & RANDOM_DRAWN).any()) if looked.any() else None
    wall, cpu, queued = median(fetches.wall_ns), median(fetches.cpu_ns), median(fetches.run_queue_ns)
    return {
        "batch_wall_ns": wall, "batch_cpu_ns": cpu, "batch_run_queue_ns": queued, "batch_blocked_ns": max(0, wall - cpu - queued),
        "batch_team_cpu_ns": median(fetches.team_cpu_ns), "getitem_ns": median(fetches.getitem_ns),
        "collate_ns": median(fetches.collate_ns), "pickle_ns": median(fetches.pickle_ns) if workers else None,
        "nbytes": median(fetches.nbytes), "draws_random": drawn,
    }  # fmt: skip
