"""Hypothesis profiles: the same examples every time unless somebody asks for more. And a Slurm.

HYPOTHESIS_PROFILE=thorough pytest tests/step      # 600 random examples of each property
"""

import os

from hypothesis import HealthCheck, settings

from slurm_cluster import loopback, slurm_cluster  # noqa: F401 - fixtures of every folder

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
