"""How does a command compute many points? On the cores, the store and the cluster its flags name.

    @click.command()
    @sweep_options
    def scale(*, runner: Runner, ...):
        for index, priced in runner(tasks, price, Priced): ...

`sweep_options` adds the flags and turns them into `runner`, so that commands know nothing of them.
Progress goes to stderr, and only once people begin to wait.
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
"""Seconds after which a progress bar appears."""

LINE_SECONDS = 10.0
"""Seconds between lines of progress where stderr is no terminal."""

NODES = 8
"""Jobs at a time on a cluster, unless asked for."""

TIME = "1h"
"""Time limit of a job, unless asked for."""


class Runner(Protocol):
    """Computes a list of tasks, yielding (position, result) as they get ready."""

    def __call__(
        self, tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
    ) -> Iterator[tuple[int, R]]:
        """See `scalewise.sweep.run.run`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """The flags as they were typed."""

    jobs: str
    store: str | None
    slurm: bool
    slurm_script: bool
    partition: str | None
    nodes: int | None
    time_limit: str | None


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of sweeps to a command, which gets them as one argument, `runner`."""
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
        help="Processes; 0 or all: one a core.",
    ),
    click.option("--store", metavar="FILE", help="Keep results in FILE; resume from it."),
    click.option("--slurm", is_flag=True, help="Compute on a Slurm cluster; needs --store."),
    click.option("--partition", metavar="P", help="Slurm: where to run. [the cluster's default]"),
    click.option(
        "--nodes", type=click.IntRange(1), metavar="N", help=f"Slurm: jobs at a time. [{NODES}]"
    ),
    click.option("--time", "time_limit", metavar="T", help=f"Slurm: limit of a job. [{TIME}]"),
    click.option("--slurm-script", is_flag=True, help="Print what --slurm would submit, and stop."),
)


def runner_of(flags: SweepFlags) -> Runner:
    """Turn flags into a runner, refusing what does not go together.

    Args:
        flags: As typed. Further wishes of a cluster go through the variables of sbatch itself,
            such as SBATCH_ACCOUNT and SBATCH_QOS.

    Raises:
        InputError: Naming the flag.
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
            raise InputError(f"{name} {value} has no effect without --slurm", hint="add --slurm")
    if on_slurm and flags.store is None:
        raise InputError(
            "--slurm needs a file that remembers jobs and results", hint="add --store sweep.db"
        )
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
    """Read "4", "0" or "all".

    Raises:
        InputError: If it is none of these.
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
            f"--jobs {text!r} is no number of processes", hint="for example 4, or `all`"
        )
    return jobs


def slurm_of(flags: SweepFlags, jobs: int) -> SlurmOptions:
    """What to ask of the cluster; `--jobs` are the processes of one job."""
    from scalewise.errors import InputError
    from scalewise.sweep.slurm import SlurmOptions
    from scalewise.units import parse

    if jobs == 0:
        raise InputError(
            "with --slurm the cores of a job must be a number, not --jobs all",
            hint="for example --jobs 16",
        )
    return SlurmOptions(
        partition=flags.partition,
        nodes=flags.nodes or NODES,
        cpus=jobs,
        seconds=parse(flags.time_limit or TIME, "seconds"),
    )


class Bar:
    """Progress on stderr: a bar on a terminal, a line now and then in a file, at first nothing."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.said = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        # By the clock and not by the first result, which on a cluster may take long.
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
        """Show how far it is."""
        self.done = done
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)
        elif not sys.stderr.isatty() and time.monotonic() - self.said > LINE_SECONDS:
            self.said = time.monotonic()
            self.say(f"{done} of {total} points")

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
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
