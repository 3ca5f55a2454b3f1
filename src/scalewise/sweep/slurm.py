"""Sweeps on a Slurm cluster: a job array with one chunk of tasks per job.

    run_all(tasks, price_of, result_type=Price, store="sweep.db",
            slurm=SlurmOptions(partition="cpu", nodes=16, seconds=1800))

SQLite is not safe on a network file system, so jobs never open the store: each job replaces one
file in a shared folder, and the process that submitted merges the files.
"""

from __future__ import annotations

import math
import pickle
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from scalewise.reading import user_path
from scalewise.slurm.jobs import Job, JobRun
from scalewise.slurm.script import check_positive, header, minutes
from scalewise.sweep.chunks import read_results, write_sealed
from scalewise.sweep.store import Store, StoreError
from scalewise.sweep.work import Keyed, Outcome, Work

MAX_JOBS = 1000
"""Jobs in one array: Slurm's MaxArraySize is 1001 unless an administrator changed it."""

JOBS_PER_NODE = 4
"""Chunks per node, so that nodes with fast chunks take more of them."""

NO_SLURM = "run it where you run sbatch, or use --jobs instead of --slurm"
"""The alternative where there is no Slurm."""


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources to request from the cluster."""

    partition: str | None = None
    """Partition; None leaves it to the cluster."""
    nodes: int = 8
    """Jobs that run at a time at most, each on one node."""
    cpus: int = 1
    """Cores per job, each computing tasks."""
    seconds: float = 3600.0
    """Time limit of one job, seconds; results of a job that reaches it are kept."""
    account: str | None = None
    """Account to charge; None leaves it to the cluster."""
    folder: str | None = None
    """Folder of results and logs, on a file system that all nodes share; None is a folder beside
    the store."""
    tasks_per_job: int | None = None
    """Tasks in one job; None gives every node a few jobs."""
    setup: tuple[str, ...] = ()
    """Shell lines before the job starts, such as `module load`."""
    extra: Mapping[str, str] = {}
    """Further options of sbatch by their long names, such as {"qos": "low"}."""
    cancel_on_interrupt: bool = False
    """Whether Ctrl-C cancels the jobs; otherwise they continue and are collected next time."""
    poll_seconds: float = 5.0
    """Longest time between two polls, seconds; the first ones follow faster."""
    settle_seconds: float = 30.0
    """Longest time from the end of a job until its results can be read, seconds."""

    def __post_init__(self) -> None:
        check_positive(self, "nodes", "cpus", "seconds", "tasks_per_job", "poll_seconds")


def script(tasks: int, store: str | Path, options: SlurmOptions) -> str:
    """Return the batch script that would be submitted, to be read before it is.

    The tasks are in files beside it, so it is not submitted by hand.

    Args:
        tasks: Number of tasks.
        store: The store's path.
        options: Resources.
    """
    count = math.ceil(tasks / chunk_size(tasks, options))
    notes = [
        f"What --slurm submits: {tasks} tasks in {count} jobs.",
        "The tasks are in files beside it, so it is not submitted by hand.",
    ]
    names = [f"chunk{i}" for i in range(min(count, MAX_JOBS))]
    return _script(names, folder_of(store, options), options, notes)


def _script(
    names: Sequence[str], folder: Path, options: SlurmOptions, notes: Sequence[str] = ()
) -> str:
    array = f"0-{len(names) - 1}%{min(options.nodes, len(names))}" if len(names) > 1 else None
    lines = header(
        {
            "job_name": "scalewise",
            "partition": options.partition,
            "account": options.account,
            "nodes": 1,
            "cpus_per_task": options.cpus,
            "time": minutes(options.seconds),
            "array": array,
            **options.extra,
        },
        notes,
    )
    # Slurm signals all processes: the shell must outlive the interpreter that writes results.
    return "\n".join(
        [
            *lines, "", *options.setup, "trap : TERM", f"chunks=({' '.join(names)})",
            f"{shlex.quote(sys.executable)} -u -m scalewise.sweep.chunks "
            f"{shlex.quote(str(folder))}/${{chunks[${{SLURM_ARRAY_TASK_ID:-0}}]}}.tasks", "",
        ]
    )  # fmt: skip


def folder_of(store: str | Path, options: SlurmOptions) -> Path:
    """Return the folder in which jobs leave their files."""
    given = options.folder or f"{user_path(store).absolute()}.slurm"
    return user_path(given).absolute()


def chunk_size(tasks: int, options: SlurmOptions) -> int:
    """Return the number of tasks of one job."""
    if options.tasks_per_job is not None:
        return options.tasks_per_job
    return max(1, math.ceil(tasks / min(JOBS_PER_NODE * options.nodes, MAX_JOBS)))


class ChunkRun(JobRun[Outcome]):
    """The jobs of one sweep.

    Args:
        work: Function of the sweep.
        tasks: Its tasks.
        store: Keeps results.
        options: Resources.
        say: Called with messages for the user.
    """

    what, attempts, array_size = "sweep", 3, MAX_JOBS
    hint = "check --partition, --time and the account; --slurm-script shows the job"

    def __init__(
        self,
        work: Work,
        tasks: Iterable[Keyed],
        store: Store,
        options: SlurmOptions,
        say: Callable[[str], None],
    ) -> None:
        self.tasks = dict(tasks)
        self.work, self.store, self.options = work, store, options
        self.cancels = options.cancel_on_interrupt
        self.seen: dict[str, int] = {}
        self.keeping = True
        super().__init__(
            self.tasks,
            folder_of(store.path, options),
            say,
            poll_seconds=options.poll_seconds,
            settle_seconds=options.settle_seconds,
        )

    def _split(self, keys: list[str]) -> list[list[str]]:
        size = chunk_size(len(keys), self.options)
        return [keys[start : start + size] for start in range(0, len(keys), size)]

    def _script(self, jobs: list[Job]) -> str:
        for job in jobs:
            tasks = [(key, self.tasks[key]) for key in job.keys]
            content = pickle.dumps((self.work, tasks, self.options.cpus))
            write_sealed(self.folder / f"{job.name}.tasks", content)
        return _script([job.name for job in jobs], self.folder, self.options)

    def _collect(self, job: Job) -> tuple[list[Outcome], bool]:
        """Merge the file of a job: all points are stored, those of other sweeps too."""
        file = self.folder / f"{job.name}.results"
        try:
            stamp = file.stat().st_mtime_ns
        except OSError:
            return [], False
        if self.seen.get(job.name) == stamp or (results := read_results(file)) is None:
            return [], False
        self.seen[job.name] = stamp
        if self.keeping:
            try:
                self.store.put(results.records)
            except StoreError as error:
                self.keeping = False
                self.say(f"{error}; results from here on are only in {self.folder}")
        found = [Outcome(key=one.key, result=one.result) for one in results.records]
        return self._taken([*found, *results.failures]), results.complete

    def _collected_elsewhere(self, keys: list[str]) -> list[Outcome]:
        known = self.store.get(keys)
        return self._taken([Outcome(key=key, result=result) for key, result in known.items()])

    def _taken(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes of tasks that had none yet."""
        ours = [one for one in outcomes if one.key in self.wanted]
        for one in ours:
            del self.wanted[one.key]
        return ours

    def forget(self, job: Job) -> None:
        """See `JobRun`; the files of the job go too, unless they alone have its results."""
        super().forget(job)
        (self.folder / f"{job.name}.tasks").unlink(missing_ok=True)
        if self.keeping:
            (self.folder / f"{job.name}.results").unlink(missing_ok=True)

    def _summary(self) -> str:
        return f"results so far are in {self.store.path}"
