"""Options of sweeps over many points: processes, store and Slurm.

    @click.command()
    @sweep_options
    def scale(*, runner: Runner, ...):
        for index, result in runner(tasks, evaluate, PointResult): ...

`sweep_options` adds the flags; the command gets them as one `runner`. Progress goes to stderr.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from scalewise.sweep.slurm import SlurmOptions

R = TypeVar("R")

PATIENCE = 1.0
"""Delay of the progress bar, seconds."""

LINE_SECONDS = 10.0
"""Interval between lines of progress if stderr is not a terminal, seconds."""

NODES = 8
"""Default number of concurrent Slurm jobs."""

TIME = "1h"
"""Default time limit of a Slurm job."""


class Runner(Protocol):
    """Computes tasks, and yields (position, result) as they finish."""

    def __call__(
        self, tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
    ) -> Iterator[tuple[int, R]]:
        """See `scalewise.sweep.run.run`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """Values of the flags."""

    jobs: str
    store: str | None
    slurm: bool
    slurm_script: bool
    partition: str | None
    nodes: int | None
    time_limit: str | None


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one argument, `runner`."""
    names = SweepFlags.__dataclass_fields__

    @functools.wraps(command)
    def with_runner(*args: Any, **given: Any) -> Any:
        flags = SweepFlags(**{name: given.pop(name) for name in names})
        return command(*args, runner=runner_of(flags), **given)

    wrapped: Callable[..., Any] = with_runner
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_OPTIONS = (
    click.option(
        "--jobs",
        metavar="N",
        default="1",
        show_default=True,
        help="Number of processes; 0 or all: one per core.",
    ),
    click.option(
        "--store", metavar="FILE", help="File that caches results; a second run resumes it."
    ),
    click.option("--slurm", is_flag=True, help="Compute on a Slurm cluster; needs --store."),
    click.option("--partition", metavar="P", help="Slurm: partition. [the cluster's default]"),
    click.option(
        "--nodes", type=click.IntRange(1), metavar="N", help=f"Slurm: concurrent jobs. [{NODES}]"
    ),
    click.option("--time", "time_limit", metavar="T", help=f"Slurm: time limit of a job. [{TIME}]"),
    click.option("--slurm-script", is_flag=True, help="Print the sbatch script, and stop."),
)


def runner_of(flags: SweepFlags) -> Runner:
    """Return the runner of the flags.

    Args:
        flags: Values of the flags. Other options of sbatch are set by its environment variables,
            such as SBATCH_ACCOUNT and SBATCH_QOS.

    Raises:
        InputError: If flags contradict each other.
    """
    from scalewise.errors import InputError

    jobs = jobs_of(flags.jobs)
    on_slurm = flags.slurm or flags.slurm_script
    for name, value in (
        ("--partition", flags.partition),
        ("--nodes", flags.nodes),
        ("--time", flags.time_limit),
    ):
        if value is not None and not on_slurm:
            raise InputError(f"{name} {value} needs --slurm", hint="add --slurm")
    if on_slurm and flags.store is None:
        raise InputError("--slurm needs --store", hint="add --store sweep.db")
    slurm = slurm_of(flags, jobs) if on_slurm else None

    def runner(
        tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
    ) -> Iterator[tuple[int, R]]:
        listed = list(tasks)
        if flags.slurm_script:
            from scalewise.sweep.slurm import script

            assert slurm is not None
            assert flags.store is not None
            click.echo(script(len(listed), flags.store, slurm))
            raise click.exceptions.Exit(0)
        from scalewise.sweep.run import run

        with Bar(len(listed)) as bar:
            yield from run(
                listed,
                function,
                result_type=result_type,
                store=flags.store,
                jobs=jobs,
                slurm=slurm,
                progress=bar,
                say=bar.say,
            )

    return runner


def jobs_of(text: str) -> int:
    """Return the number of processes of "4", "0" or "all"; 0 is one per core.

    Raises:
        InputError: If it is no number.
    """
    from scalewise.errors import InputError

    if text.strip().lower() == "all":
        return 0
    try:
        jobs = int(text)
    except ValueError:
        jobs = -1
    if jobs < 0:
        raise InputError(
            f"--jobs {text[:40]} must be a whole number or all", hint="--jobs 4, or --jobs all"
        )
    return jobs


def slurm_of(flags: SweepFlags, jobs: int) -> SlurmOptions:
    """Return the options of Slurm; `--jobs` are the processes of one job."""
    from scalewise.errors import InputError
    from scalewise.sweep.slurm import SlurmOptions
    from scalewise.units import parse

    if jobs == 0:
        raise InputError(
            f"--jobs {flags.jobs}: --slurm needs a number of cores per job", hint="--jobs 16"
        )
    return SlurmOptions(
        partition=flags.partition,
        nodes=flags.nodes or NODES,
        cpus=jobs,
        seconds=parse(flags.time_limit or TIME, "seconds"),
    )


class Bar:
    """Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.printed_at = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        # A timer, because the first result on a cluster may take long.
        self._timer = threading.Timer(PATIENCE, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show the progress."""
        self.done = done
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)
        elif not sys.stderr.isatty() and time.monotonic() - self.printed_at > LINE_SECONDS:
            self.printed_at = time.monotonic()
            self.say(f"{done} of {total} points")

    def say(self, sentence: str) -> None:
        """Print a message above the bar."""
        if self._progress is None:
            click.echo(sentence, err=True)
        else:
            self._progress.console.print(sentence, markup=False, highlight=False)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = progress.add_task("", total=self.total, completed=self.done)
        progress.start()
        self._progress = progress
