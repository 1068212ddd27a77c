"""Find why a PyTorch training run is slow, fix it, and prove the fix.

The public names are imported when they are first read: this package is also imported in the process that trains,
where it may cost no numpy and no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.causes import Cause as Cause
    from unstall.model.case import Fires as Fires
    from unstall.model.case import Given as Given
    from unstall.model.case import Planted as Planted
    from unstall.model.case import Silent as Silent
    from unstall.model.errors import UnstallError as UnstallError
    from unstall.model.events import Events as Events
    from unstall.model.finding import Candidate as Candidate
    from unstall.model.finding import Evidence as Evidence
    from unstall.model.finding import Finding as Finding
    from unstall.model.finding import Saving as Saving
    from unstall.model.ledger import Activity as Activity
    from unstall.model.ledger import Basis as Basis
    from unstall.model.ledger import Ledger as Ledger
    from unstall.model.ledger import Phase as Phase
    from unstall.model.remedy import Edit as Edit
    from unstall.model.remedy import Remedy as Remedy
    from unstall.model.remedy import Safety as Safety
    from unstall.model.report import Job as Job
    from unstall.model.report import Report as Report
    from unstall.model.run import Run as Run
    from unstall.model.run import Sensor as Sensor
    from unstall.pipeline import RunOptions as RunOptions
    from unstall.pipeline import account as account
    from unstall.pipeline import diagnose as diagnose
    from unstall.pipeline import run as run

__version__ = "0.1.0"

_HOMES = {
    "causes": ("Cause",),
    "model.case": ("Fires", "Given", "Planted", "Silent"),
    "model.errors": ("UnstallError",),
    "model.events": ("Events",),
    "model.finding": ("Candidate", "Evidence", "Finding", "Saving"),
    "model.ledger": ("Activity", "Basis", "Ledger", "Phase"),
    "model.remedy": ("Edit", "Remedy", "Safety"),
    "model.report": ("Job", "Report"),
    "model.run": ("Run", "Sensor"),
    "pipeline": ("RunOptions", "account", "diagnose", "run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
