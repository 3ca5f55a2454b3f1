"""Hypothesis profiles: the same examples every time unless somebody asks for more. And a Slurm.

Two workers share the tests; `-n 0` runs them in one process, for a debugger.

HYPOTHESIS_PROFILE=thorough pytest tests/step      # 600 random examples of each property
"""

import os
import signal
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from perfetto_wasm import Bridge
from slurm_cluster import slurm_cluster  # noqa: F401 - a fixture of every folder
from waiting import NEEDS, path_of

# Workers are told the width of their terminal; what is printed must not depend on it.
os.environ.pop("COLUMNS", None)

# A shell lets what it starts in the background ignore Ctrl-C, and children inherit that; tests send
# it to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test run must not depend on luck, nor on how busy the machine is.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=600
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def perfetto():
    """Perfetto's trace processor, one process for all traces."""
    path_of("node")
    with Bridge() as bridge:
        yield bridge


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep a file on one worker, for what its tests share, and all of Slurm on one."""
    for item in items:
        slurm = "slurm_cluster" in getattr(item, "fixturenames", ())
        group = "slurm" if slurm else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Say last, and in numbers, what this machine could not test."""
    yield
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    reasons = [reason.removeprefix("Skipped: ") for reason in reasons]
    for reason, count in Counter(r for r in reasons if r.startswith(NEEDS)).items():
        terminalreporter.write_line(
            f"NOT TESTED on this machine: {count} tests ({reason})", red=True
        )
