"""Hypothesis profiles, markers by folder and fixture, and fixtures for every folder.

pytest -m physics                                  # formulas and steps, under 60 s of CPU
pytest -m "not slow"                               # nothing that takes longer than 5 s
pytest -n 0                                        # one process, for a debugger
HYPOTHESIS_PROFILE=thorough pytest tests/step      # 600 random examples of each property
"""

import inspect
import os
import signal
from collections import Counter
from contextlib import suppress
from functools import cache, partialmethod
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, settings

import dispatch
from perfetto_wasm import Bridge
from slurm_cluster import slurm_cluster  # noqa: F401 - a fixture of every folder
from waiting import NEEDS, path_of

TESTS = Path(__file__).parent

FRAMEWORKS = (
    "frameworks/test_frameworks_real.py",
    "frameworks/test_frameworks_judge.py",
    "program/test_program_frameworks.py",
)
"""Files that ask training frameworks, which have an environment of their own."""

PHYSICS = ("physics", "step", "simulation")
"""Folders whose tests are marked `physics`, besides the files of nouns beside this one."""

NOT_PHYSICS = ("test_readme.py", "test_layers.py", "test_repository.py")
"""Files beside this one that test the repository."""

OUTSIDE = {"slurm_cluster": "slurm", "browser": "browser"}
"""Markers by fixture; both start other programs, so their tests are also `slow`."""

SLOW = (
    "cli/test_cli_study.py",
    "docs/test_docs.py::test_blocks_run",
    "evidence/test_leave_out.py",
    "measure/test_measure_experts.py",
    "measure/test_measure_losses.py",
    "measure/test_measure_loop.py",
    "simulation/test_simulation_agreement.py",
    "simulation/test_simulation_perfetto.py",
    "simulation/test_simulation_simulate.py::test_any_step",
    "simulation/test_simulation_tuning.py::test_time_and_exposed",
    "step/test_step_explain.py::test_every_derivation_of_2000",
    "step/test_step_explain.py::test_every_derivation_of_models",
    "step/test_step_explain.py::test_every_derivation_of_variants",
    "study/test_study_run.py",
    "test_readme.py::test_command_runs",
)
"""Files and tests over 5 s on one core."""

# Workers inherit the width of their terminal; output must not depend on it.
os.environ.pop("COLUMNS", None)

# Hundreds of processes of the tests would compile all of scalewise each time they start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts background jobs with SIGINT ignored, and children inherit that; tests send SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

# click < 8.2 mixes stderr into stdout by default.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)

# The same examples every time, whatever the load of the machine; `thorough` shrinks failures.
# Constants of loaded modules are left out: which are loaded depends on what ran before in a worker.
with suppress(AttributeError, ImportError):
    providers = import_module("hypothesis.internal.conjecture.providers")
    constants_of_no_module = providers._local_constants
    providers._get_local_constants = lambda: constants_of_no_module
settings.register_profile(
    "ci",
    derandomize=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("ci"),
    derandomize=False,
    phases=tuple(Phase),
    max_examples=600,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def perfetto():
    """Perfetto's trace processor, one process for all traces."""
    path_of("node")
    with Bridge() as bridge:
        yield bridge


def pytest_xdist_make_scheduler(config, log):
    """Keep groups of files on one worker; see dispatch.py."""
    return dispatch.ByGroup(config, log) if config.option.dist == "loadfile" else None


def pytest_ignore_collect(collection_path, config):
    """Skip folders without tests of `-m physics`: importing them would take as long as these."""
    place = collection_path.relative_to(TESTS).parts if TESTS in collection_path.parents else ()
    other = len(place) == 1 and collection_path.is_dir() and place[0] not in PHYSICS
    return True if other and config.option.markexpr == "physics" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Set the markers, and the order in which workers take files."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for name in markers(item, fixtures):
            item.add_marker(name)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: dispatch.place(item.nodeid))


def markers(item, fixtures):
    """Names of the markers of a test, by its folder, its fixtures and what it imports."""
    place = item.path.relative_to(TESTS)
    node = f"{place.as_posix()}::{item.name}"
    found = {OUTSIDE[name] for name in fixtures if name in OUTSIDE}
    if needs_torch(item):
        found.add("torch")
    if node.startswith(FRAMEWORKS):
        found |= {"frameworks", "slow"}
    if found & set(OUTSIDE.values()) or node.startswith(SLOW):
        found.add("slow")
    folder = place.parts[0]
    if (
        not found & {"slow", "torch"}
        and "perfetto" not in fixtures
        and (folder in PHYSICS or (len(place.parts) == 1 and folder not in NOT_PHYSICS))
    ):
        found.add("physics")
    return found


def needs_torch(item):
    """Whether a test, or its whole file, is skipped without PyTorch."""
    code = item.function.__code__
    return file_needs_torch(item.path) or (
        "importorskip" in code.co_names and "torch" in code.co_consts
    )


@cache
def file_needs_torch(path):
    """Whether a line of a file, outside of functions, skips it without PyTorch."""
    lines = path.read_text(encoding="utf-8").splitlines()
    calls = ("torch = pytest.importorskip", 'pytest.importorskip("torch"')
    return any(line.startswith(calls) for line in lines)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Print last how many tests were skipped because a program is missing."""
    yield
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    reasons = [reason.removeprefix("Skipped: ") for reason in reasons]
    for reason, count in Counter(r for r in reasons if r.startswith(NEEDS)).items():
        terminalreporter.write_line(
            f"NOT TESTED on this machine: {count} tests ({reason})", red=True
        )
