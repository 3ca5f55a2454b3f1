"""Which tests share a worker of pytest-xdist, and in which order workers take them.

A file stays on one worker, so that its fixtures are set up once. Files that share what is slow to
start (Slurm, a browser, the server's cache) stay together too. The groups that take longest start
first: the last ones are then short, and no worker waits for the other.

Groups are those of node ids: `xdist_group` renames items in a way that pytest 9.2 no longer reads.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "measure/test_measure_slurm.py": "slurm",
    "sweep/test_sweep_cli.py": "slurm",
    "sweep/test_sweep_slurm.py": "slurm",
    "ui/test_ui_browser": "browser",
    "ui/test_ui_leaving.py": "browser",
    "ui/": "ui",
}
"""Groups by the start of a path below tests/; the first that fits counts."""

FIRST = (
    "browser",
    "ui",
    "program/test_program_gloo.py",
    "slurm",
    "step/test_step_explain.py",
    "measure/test_measure_losses.py",
    "docs/test_docs.py",
    "program/",
    "measure/test_measure_experts.py",
    "study/test_study_run.py",
    "test_readme.py",
    "sweep/test_sweep_run.py",
    "measure/",
    "step/test_step_properties.py",
    "simulation/",
    "cli/test_cli_calibrate.py",
    "trace/",
)
"""Groups and starts of paths, the longest first; all others follow."""


def group(nodeid: str) -> str:
    """Name of what stays on one worker: the file, or the group of its file."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return next((name for start, name in TOGETHER.items() if path.startswith(start)), path)


def place(nodeid: str) -> int:
    """Place of a test among all, by its group."""
    name = group(nodeid)
    starts = (i for i, start in enumerate(FIRST) if name.startswith(start))
    return next(starts, len(FIRST))


class ByGroup(LoadScopeScheduling):
    """Hands out groups in the order of the tests."""

    def __init__(self, config, log=None):
        # Files with the most tests are not those that take longest.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid):
        return group(nodeid)
