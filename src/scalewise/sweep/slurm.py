"""How does a sweep run on a cluster? As a job array, one chunk of tasks per job, through submitit.

    run_all(tasks, price_of, result_type=Price, store="sweep.db",
            slurm=SlurmOptions(partition="cpu", nodes=16, seconds=1800))

SQLite is not safe on a network file system, so jobs never open the store: each writes one file,
whole or not at all, into a shared folder, and the process that submitted merges the files. Which
jobs are under way is remembered in the store, so that process may be stopped and started again: it
collects what was finished meanwhile, waits for what still runs, and submits only what nobody has.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.sweep.chunks import Results, read_results, run_chunk
from scalewise.sweep.local import Outcomes
from scalewise.sweep.store import Store, StoreError
from scalewise.sweep.submit import (
    Queue,
    batch_script,
    cancel,
    executor_of,
    last_words,
    pause,
    refused,
)
from scalewise.sweep.work import Keyed, Outcome, Work

ATTEMPTS = 3
"""How often a chunk is submitted before it is given up."""

MOST_JOBS = 1000
"""Jobs in one array: Slurm's MaxArraySize is 1001 unless an administrator changed it."""

JOBS_PER_NODE = 4
"""Chunks per node that runs at a time, so that quick ones make up for slow ones."""

NO_SLURM = "run it where you run sbatch, or use --jobs instead of --slurm"
"""What to do where there is no Slurm."""


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to ask of the cluster."""

    partition: str | None = None
    """Where to run; None leaves it to the cluster."""
    nodes: int = 8
    """Jobs at a time at most, each on one node."""
    cpus: int = 1
    """Cores per job, each computing tasks."""
    seconds: float = 3600.0
    """Time limit of one job, seconds; what it has when that ends is kept."""
    account: str | None = None
    """Who pays; None leaves it to the cluster."""
    folder: str | None = None
    """Where jobs leave results and logs, on a file system that all nodes share; None is a folder
    beside the store."""
    tasks_per_job: int | None = None
    """Tasks in one job; None spreads them so that every node gets a few jobs."""
    setup: tuple[str, ...] = ()
    """Shell lines before the job starts, such as `module load`."""
    extra: Mapping[str, str] = {}
    """Further options of sbatch by their long names, such as {"qos": "low"}."""
    cancel_on_interrupt: bool = False
    """Whether Ctrl-C cancels the jobs; otherwise they go on and are collected next time."""
    poll_seconds: float = 5.0
    """How often to look for results at most, seconds; at first it is done more often."""
    settle_seconds: float = 30.0
    """How long after the end of a job its file may take to show up; network file systems cache
    what a folder holds."""

    def __post_init__(self) -> None:
        for name in ("nodes", "cpus", "seconds", "tasks_per_job", "poll_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} = {value} must be positive")


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chunk under way, as the store remembers it."""

    chunk: str
    """Its own name."""
    keys: list[str]
    """Points it computes."""
    folder: str
    """Where its file will be."""
    job: str = ""
    """Slurm's number, such as "71_3"; empty until sbatch gave one."""
    log: str = ""
    """Where the job writes what goes wrong."""
    attempt: int = 1
    """How often it was submitted."""


def script(tasks: int, store: str | Path, options: SlurmOptions) -> str:
    """What would be submitted, to be read before it is.

    Args:
        tasks: How many there are.
        store: The store's path.
        options: What to ask of the cluster.

    Returns:
        The batch script. The tasks themselves travel in files beside it, so it is not submitted
        by hand.
    """
    folder = folder_of(store, options)
    count = math.ceil(tasks / chunk_size(tasks, options))
    given = _parameters(options) | {"map_count": min(count, MOST_JOBS) if count > 1 else None}
    text = batch_script(folder, given)
    note = (
        f"# What --slurm submits: {tasks} tasks in {count} jobs.\n"
        "# The tasks travel in files beside it, so it is not submitted by hand."
    )
    return text.replace("#!/bin/bash\n", f"#!/bin/bash\n{note}\n", 1)


def folder_of(store: str | Path, options: SlurmOptions) -> Path:
    """Where jobs leave their files."""
    given = options.folder or f"{Path(store).expanduser().absolute()}.slurm"
    return Path(given).expanduser().absolute()


def chunk_size(tasks: int, options: SlurmOptions) -> int:
    """How many tasks one job gets."""
    if options.tasks_per_job is not None:
        return options.tasks_per_job
    return max(1, math.ceil(tasks / min(JOBS_PER_NODE * options.nodes, MOST_JOBS)))


def _parameters(options: SlurmOptions) -> dict[str, Any]:
    """The options in submitit's words."""
    return {
        "job_name": "scalewise",
        "partition": options.partition,
        "account": options.account,
        "time": max(1, math.ceil(options.seconds / 60)),
        "cpus_per_task": options.cpus,
        "array_parallelism": options.nodes,
        "setup": list(options.setup) or None,
        "additional_parameters": dict(options.extra) or None,
        # One process on one node needs no srun, which would bind it to a part of its cores.
        "use_srun": False,
    }


def computed_on_slurm(
    work: Work,
    tasks: Sequence[Keyed],
    store: Store,
    options: SlurmOptions,
    say: Callable[[str], None],
) -> Outcomes:
    """Compute tasks on the cluster, handing out outcomes as jobs leave them.

    Args:
        work: What to do.
        tasks: What to do it to.
        store: Remembers the jobs.
        options: What to ask of the cluster.
        say: Told what people should know.

    Yields:
        Some outcomes, in no particular order.

    Raises:
        ScalewiseError: If Slurm refuses a job, or a job failed too often.
    """
    start = time.monotonic()
    array = _Array(work, tasks, store, options, say)
    try:
        array.attach()
        array.submit_rest()
        while array.wanted:
            if outcomes := array.collect() or array.mend():
                yield outcomes
            else:
                pause(start, options.poll_seconds)
    except (KeyboardInterrupt, GeneratorExit):
        # The second is how an interrupt arrives that hit whoever uses the results.
        array.interrupted()
        raise


class _Array:
    """The jobs of one sweep."""

    def __init__(
        self,
        work: Work,
        tasks: Sequence[Keyed],
        store: Store,
        options: SlurmOptions,
        say: Callable[[str], None],
    ) -> None:
        self.work = work
        self.wanted = dict(tasks)
        self.store = store
        self.options = options
        self.say = say
        self.folder = folder_of(store.path, options)
        self.jobs: dict[str, Job] = {}
        self.seen: dict[str, int] = {}
        self.ended: dict[str, float] = {}
        self.queue = Queue()
        self.keeping = True
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {self.folder} for jobs: {error.strerror}"
            ) from error

    def attach(self) -> None:
        """Take over jobs that an earlier run, or another one now, submitted for our points."""
        for written in self.store.jobs().values():
            try:
                job = msgspec.msgpack.decode(written, type=Job)
            except msgspec.DecodeError:
                continue
            if self.wanted.keys() & set(job.keys):
                self.jobs[job.chunk] = job
        if self.jobs:
            self.say(f"found {len(self.jobs)} jobs of an earlier run that have points of this one")

    def submit_rest(self) -> None:
        """Submit what no job has."""
        taken = {key for job in self.jobs.values() for key in job.keys}
        rest = [key for key in self.wanted if key not in taken]
        size = chunk_size(len(rest), self.options)
        chunks = [rest[start : start + size] for start in range(0, len(rest), size)]
        new = [Job(chunk=uuid.uuid4().hex, keys=keys, folder=str(self.folder)) for keys in chunks]
        for start in range(0, len(new), MOST_JOBS):
            self.submit(new[start : start + MOST_JOBS])

    def submit(self, jobs: list[Job]) -> None:
        """Submit chunks as one array, and remember them."""
        if not jobs:
            return
        executor = executor_of(self.folder, _parameters(self.options), NO_SLURM)
        calls = [
            (
                str(self._file(job)),
                self.work,
                [(key, self.wanted[key]) for key in job.keys],
                self.options.cpus,
            )
            for job in jobs
        ]
        try:
            given = executor.map_array(run_chunk, *zip(*calls, strict=True))
        except Exception as error:
            hint = "check --partition, --time and the account; --slurm-script shows the job"
            raise refused(error, "sweep", hint) from error
        fresh = [
            msgspec.structs.replace(job, job=one.job_id, log=str(one.paths.stderr))
            for job, one in zip(jobs, given, strict=True)
        ]
        for job in fresh:
            self.jobs[job.chunk] = job
        written = {job.chunk: msgspec.msgpack.encode(job) for job in fresh}
        self.keep(lambda: self.store.remember(dict(written)))

    def collect(self) -> list[Outcome]:
        """Merge what jobs have written since the last look."""
        found: list[Outcome] = []
        for job in list(self.jobs.values()):
            path = self._file(job)
            try:
                stamp = path.stat().st_mtime_ns
            except OSError:
                continue
            if self.seen.get(job.chunk) == stamp:
                continue
            results = read_results(path)
            if results is None:
                continue
            self.seen[job.chunk] = stamp
            found += self._merge(results)
            if results.complete:
                self.forget(job)
        return found

    def keep(self, action: Callable[[], None]) -> None:
        """Write to the store; if that fails say so once and go on without."""
        if not self.keeping:
            return
        try:
            action()
        except StoreError as error:
            self.keeping = False
            self.say(f"{error}; results from here on are only in {self.folder}")

    def _merge(self, results: Results) -> list[Outcome]:
        """Keep all points, those of other sweeps too; hand out our own new ones."""
        self.keep(lambda: self.store.put(results.records))
        ours = [
            Outcome(key=one.key, result=one.result)
            for one in results.records
            if one.key in self.wanted
        ]
        ours += [one for one in results.failures if one.key in self.wanted]
        for one in ours:
            del self.wanted[one.key]
        return ours

    def forget(self, job: Job) -> None:
        """A chunk is merged or given up: drop what was remembered of it, then its file."""
        self.jobs.pop(job.chunk, None)
        self.keep(lambda: self.store.remember({job.chunk: None}))
        if self.keeping:
            self._file(job).unlink(missing_ok=True)

    def mend(self) -> list[Outcome]:
        """Submit again what ended without its results, or give up.

        Returns:
            Points that another process, which shares the store, collected from our jobs.
        """
        alive = self.queue.look()
        if alive is None:
            return []
        now = time.monotonic()
        again: list[Job] = []
        found: list[Outcome] = []
        for job in list(self.jobs.values()):
            if job.job in alive:
                self.ended.pop(job.chunk, None)
                continue
            if job.chunk not in self.ended:
                # It may have written its file after we looked: look once more at least.
                self.ended[job.chunk] = now
                continue
            if now - self.ended[job.chunk] < self.options.settle_seconds:
                continue
            left = [key for key in job.keys if key in self.wanted]
            known = self.store.get(left)
            found += [Outcome(key=key, result=result) for key, result in known.items()]
            left = [key for key in left if key not in known]
            log = last_words(Path(job.log))
            self.forget(job)
            if not left:
                continue
            if job.attempt >= ATTEMPTS:
                raise ScalewiseError(
                    f"job {job.job} and {ATTEMPTS - 1} before it ended without results for "
                    f"{len(left)} tasks: {log}",
                    hint="what other jobs finished is kept; run the same again to try once more",
                )
            self.say(
                f"job {job.job} ended without results for {len(left)} tasks, submitted again "
                f"({job.attempt + 1} of {ATTEMPTS}): {log}"
            )
            again.append(
                Job(
                    chunk=uuid.uuid4().hex,
                    keys=left,
                    folder=str(self.folder),
                    attempt=job.attempt + 1,
                )
            )
        self.submit(again)
        for one in found:
            del self.wanted[one.key]
        return found

    def interrupted(self) -> None:
        """Say how to go on, or cancel, as the user wished."""
        numbers = sorted({job.job.split("_")[0] for job in self.jobs.values() if job.job})
        if not numbers:
            return
        if self.options.cancel_on_interrupt:
            cancel(job.job for job in self.jobs.values())
            self.keep(lambda: self.store.remember(dict.fromkeys(self.jobs)))
            self.say(f"{len(self.jobs)} jobs cancelled; results so far are in {self.store.path}")
            return
        self.say(
            f"{len(self.jobs)} jobs go on; run the same again to collect them, "
            f"or end them with: scancel {' '.join(numbers)}"
        )

    def _file(self, job: Job) -> Path:
        return Path(job.folder) / f"{job.chunk}.results"
