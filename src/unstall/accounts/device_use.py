"""What the device did in the steady steps, all ranks."""

from __future__ import annotations

from unstall.accounts.device import States
from unstall.model.run import Run
from unstall.model.steps import Steps
from unstall.model.tables import DeviceUse


def device_use(run: Run, steps: Steps, states: tuple[States, ...]) -> DeviceUse | None:
    """Return what the device did, or None where no rank has a trace with device work."""
    return None
