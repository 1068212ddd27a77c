"""``python -m unstall``: the same as ``unstall``."""

from __future__ import annotations

import sys

from unstall.cli import main

if __name__ == "__main__":
    sys.exit(main())
