"""`python -m muster.train.preflight` is the command of `muster.train.preflight.command`."""

from __future__ import annotations

import sys

from muster.train.preflight.command import main

if __name__ == "__main__":
    sys.exit(main())
