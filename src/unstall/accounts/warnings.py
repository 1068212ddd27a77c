"""What a reader of the report is to know before any of its numbers."""

from __future__ import annotations

from unstall.model.run import Run

FEW_STEPS = 5


def warnings(recorded: Run, starved: str, steady: int) -> tuple[str, ...]:
    """Return a sentence for each thing that makes the account of *recorded* less than whole.

    Args:
        starved: what is to be said of other programs on the machine, or "".
        steady: how many steps are steady.
    """
    said = [starved] if starved else []
    said += [f"probe {message}" for message in recorded.coverage.trouble]
    cut = recorded.facts.known.get("cut")
    if isinstance(cut, list) and cut:
        said.append(
            f"the recording of {', '.join(map(str, cut))} ends in the middle of a record; what came before it was read"
        )
    if lost := recorded.facts.text("lost"):
        said.append(
            f"the recording of {_who(recorded, 'lost_ranks')} ends early: {lost}. "
            "The training went on; its later steps are not in the account"
        )
    if recorded.facts.flag("ended") is False:
        said.append(
            f"{_who(recorded, 'cut_off_ranks')} ended without saying so (os._exit or a kill); "
            "up to 200 ms and its last step are not in the account"
        )
    if recorded.facts.flag("second_thread"):
        said.append("two threads trained in one process; the account is of the first one")
    if recorded.missing_ranks:
        said.append(
            f"ranks {', '.join(map(str, recorded.missing_ranks))} left no recording; the account is of the others"
        )
    if others := int(recorded.facts.number("others") or 0):
        said.append(
            f"{others} more {'processes' if others > 1 else 'process'} trained; the account is of the longest training"
        )
    if steady < FEW_STEPS:
        said.append(f"only {steady} steady steps: shares are rough. Let it run longer")
    return tuple(said)


def _who(recorded: Run, fact: str) -> str:
    """Return the ranks that *fact* lists, in words."""
    ranks = recorded.facts.known.get(fact)
    several = len(recorded.ranks) > 1 and isinstance(ranks, list)
    return f"rank {', '.join(map(str, ranks))}" if several and isinstance(ranks, list) else "the training"
