"""Hypothesis profiles: the same examples every time unless somebody asks for more. And a Slurm.

Two workers share the tests; `-n 0` runs them in one process, for a debugger.

HYPOTHESIS_PROFILE=thorough pytest tests/step      # 600 random examples of each property
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from slurm_cluster import loopback, slurm_cluster  # noqa: F401 - fixtures of every folder

# Workers are told the width of their terminal; what is printed must not depend on it.
os.environ.pop("COLUMNS", None)

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep a file on one worker, for what its tests share, and all of Slurm on one."""
    for item in items:
        slurm = "slurm_cluster" in getattr(item, "fixturenames", ())
        group = "slurm" if slurm else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
