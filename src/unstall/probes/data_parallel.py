"""DistributedDataParallel: which line wrapped the model, and how many of its first passes were synchronised.

The reducer counts its synchronised passes itself, for the first ten; passes under ``no_sync()``, or with
``require_backward_grad_sync`` switched off by hand, are not among them. So nothing is wrapped in the loop.
"""

from __future__ import annotations

import weakref
from typing import Any

from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch.nn.parallel.distributed"
LOOK_AT = 3  # steps; by then even two passes a step can be told from one


def install(probe: Probe) -> None:
    from torch.nn.parallel.distributed import DistributedDataParallel

    recorder = probe.recorder
    made: list[weakref.ref[Any]] = []
    sites: list[str] = []

    def remember(module: Any, *args: object, **kwargs: object) -> None:
        user, _ = call_site(3)
        recorder.fact({f"ddp:{len(made)}": {"site": user}})
        made.append(weakref.ref(module))
        sites.append(user)

    def look(step: int) -> None:
        if step != LOOK_AT:
            return
        for number, module in enumerate(made):
            if (alive := module()) is not None:
                recorder.fact({f"ddp:{number}": {"site": sites[number], "synced": round(synced(alive) / step, 2)}})

    kind = DistributedDataParallel
    kind.__init__ = around(probe, kind.__init__, remember, lambda _: None)  # type: ignore[method-assign, unused-ignore]
    recorder.at_step.append((probe, look))


def synced(module: Any) -> int:
    """Return how many passes of *module* its reducer has synchronised, of the first ten; 0 where it does not say."""
    counts = module.logger._get_ddp_logging_data().ints_map
    return int(counts["iteration"]) + 1 if counts.get("iteration") else 0
