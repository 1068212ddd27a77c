"""A comparison to JSON."""

from __future__ import annotations

from dataclasses import asdict

from unstall.model.compared import COMPARE_FORMAT, Comparison, OfGraph, Row, Side, Told


def comparison_to_json(compared: Comparison) -> dict[str, object]:
    """Return the comparison in the format "unstall-compare/1"; keys are added by later versions, never taken away.

    ``step_ratio`` is B's median step over A's; null where one of them has none; ``free_step_ratio`` that of the mean steps
    without the time in which no core was free, null where cores were free. ``paired`` is false: two runs that were
    not made in turns are compared, so nothing in it is proved. A number that a side has none of is null.
    """
    return {
        "format": COMPARE_FORMAT,
        "paired": False,
        "a": _side(compared.a),
        "b": _side(compared.b),
        "step_ratio": compared.ratio,
        "free_step_ratio": compared.free_ratio,
        "step_ranges_apart": compared.apart,
        "step_rows": [_row(row) for row in compared.rows],
        "outside_rows": [_row(row) for row in compared.outside],
        "appeared": [_told(one) for one in compared.appeared],
        "gone": [_told(one) for one in compared.gone],
        "fusion": [_row(row) for row in compared.fusion],
        "graphs": [_graph(pair) for pair in compared.graphs],
        "same_graphs": compared.same_graphs,
        "operators": [asdict(one) for one in compared.operators],
        "differing": [{"name": name, "a": one, "b": other} for name, one, other in compared.differing],
        "notes": list(compared.notes),
    }


def _side(side: Side) -> dict[str, object]:
    return {
        "name": side.name,
        "command": list(side.command),
        "steady_steps": side.steady_steps,
        "ranks": side.ranks,
        "step_ns": None if side.step_ns is None else asdict(side.step_ns),
        "torch": side.facts.get("torch"),
    }


def _row(row: Row) -> dict[str, object]:
    return {"name": row.name, "a": row.a, "b": row.b}


def _told(one: Told) -> dict[str, object]:
    return {
        "cause": one.cause, "fault": one.fault, "title": one.title, "place": one.place, "code": one.code,
        "per_step_ns": one.a_step_ns,
    }  # fmt: skip


def _graph(pair: OfGraph) -> dict[str, object]:
    return {
        "a": None if pair.a is None else asdict(pair.a),
        "b": None if pair.b is None else asdict(pair.b),
        "kernels_gone": [list(one) for one in pair.kernels_gone],
        "kernels_new": [list(one) for one in pair.kernels_new],
    }
