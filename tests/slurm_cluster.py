"""A real Slurm for tests: two nodes on loopback, started once by `scripts/slurm_on_loopback.py`.

Where it is not installed, tests that take the fixture `slurm_cluster` are skipped and counted;
where it is installed and does not start, they fail.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import slurm_on_loopback

from waiting import path_of

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def slurm_cluster():
    """A real Slurm with two nodes, started once."""
    path_of("slurm")
    folder = Path(tempfile.gettempdir()) / f"scalewise-slurm-{os.getpid()}"
    try:
        slurm_on_loopback.start(folder)
    except slurm_on_loopback.LoopbackError as error:
        pytest.fail(f"Slurm is installed, but it does not start: {error}")
    # Which job these tests themselves run in, if any, would confuse those they submit.
    foreign = [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]
    tasks = str(HERE / "sweep")
    changed = {
        **dict.fromkeys(foreign),
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PYTHONPATH": os.pathsep.join(filter(None, [tasks, os.environ.get("PYTHONPATH")])),
    }
    before = {name: os.environ.get(name) for name in changed}
    _set(changed)
    yield folder
    _set(before)
    slurm_on_loopback.stop(folder)
    shutil.rmtree(folder)


def _set(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
