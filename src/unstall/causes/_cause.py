"""What a cause is: one class in one file, with its rule, page, remedies and cases."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar

from unstall.model.case import Fires, Planted, Silent
from unstall.model.finding import Abstained, Candidate, Finding
from unstall.model.ledger import Ledger
from unstall.model.remedy import Remedy
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_SHARE = 0.02  # of the steady step; below it a finding is noise
HEADINGS = ("What it is", "Why it costs", "How it is told", "Sources")


class Cause:
    """One way a run loses time.

    The module's docstring is the cause's page.  The id is the file's path under
    ``causes``, so there is no list to keep.

    Attributes:
        needs: sensors without which it abstains.
        cases: drawn timelines on which it fires or keeps silent.
        planted: small real trainings with the fault and without it.
    """

    needs: ClassVar[frozenset[Sensor]] = frozenset()
    cases: ClassVar[Sequence[Fires | Silent]] = ()
    planted: ClassVar[Sequence[Planted]] = ()

    @property
    def id(self) -> str:
        """Return ``layer/name``."""
        return "/".join(type(self).__module__.split(".")[-2:]).replace("_", "-")

    @property
    def page(self) -> str:
        """Return the cause's page, Markdown."""
        return inspect.getdoc(sys.modules[type(self).__module__]) or ""

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate | Abstained]:
        """Yield what this cause explains, or nothing; an abstention where what was recorded cannot tell."""
        raise NotImplementedError

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        """Yield the changes that would take *finding* away, the safest first."""
        return iter(())
