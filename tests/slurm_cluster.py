"""A real Slurm for tests: two nodes on loopback, started once by `scripts/slurm_on_loopback.py`.

Tests that take the fixture `slurm_cluster` fail, and are not skipped, where it cannot be started.
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "scripts" / "slurm_on_loopback.py"


@pytest.fixture(scope="session")
def loopback():
    """The script that starts clusters, as a module."""
    spec = importlib.util.spec_from_file_location("slurm_on_loopback", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def slurm_cluster(loopback):
    """A real Slurm with two nodes, started once; installs the packages if they are missing."""
    folder = Path(tempfile.gettempdir()) / f"scalewise-slurm-{os.getpid()}"
    try:
        loopback.start(folder)
    except loopback.LoopbackError as error:
        pytest.fail(f"these tests need Slurm, and it cannot be started: {error}")
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
    loopback.stop(folder)
    shutil.rmtree(folder)


def _set(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
