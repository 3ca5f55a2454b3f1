import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Workers import the tests' tasks by name: this process and its children by sys.path, jobs of a
# cluster by the environment that they inherit.
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def cluster(slurm_cluster):
    """A real Slurm with two nodes."""
    return slurm_cluster
