"""`pytest WORDS...`, as a script for processes that have imported torch already."""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
