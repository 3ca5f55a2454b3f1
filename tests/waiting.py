"""Waiting and skipping, so that neither the speed nor the load of a machine decides a test.

until(lambda: file.exists(), "the file")
process.communicate(timeout=PATIENCE)
needs("a browser")
"""

import time
from typing import NoReturn

import pytest

PATIENCE = 900.0
"""Seconds that a test waits for what must happen before it fails; no claim about speed."""

NEEDS = "needs "
"""What reasons begin with that `scripts/test` would have mended, had it been able to."""


def until(condition, what="it"):
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what} in vain"
        time.sleep(0.02)


def needs(program) -> NoReturn:
    """Skip a test whose program is not on this machine; the end of the run counts them."""
    pytest.skip(f"{NEEDS}{program}, which `sh scripts/test` installs where it can")
