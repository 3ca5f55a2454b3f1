"""Waiting and skipping, so that neither the speed nor the load of a machine decides a test.

until(lambda: file.exists(), "the file")
process.communicate(timeout=PATIENCE)
path_of("browser")
"""

import asyncio
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "scripts" / "system_packages"

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


def finished(coroutine):
    """What a coroutine returns; in a thread, since tests of the browser leave a loop running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def path_of(program):
    """The path of a program; skip tests without it, which the end of the run counts."""
    command = ["sh", str(PACKAGES), "--which", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{NEEDS}{program}, which `sh scripts/test` installs where it can")
    return done.stdout.strip()
