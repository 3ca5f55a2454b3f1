"""The life of a list of pieces on Slurm: submit, poll, collect, resubmit what is lost, resume.

    class ChunkRun(JobRun[Outcome]): ...           # what a piece is, and where its result shows up
    for results in ChunkRun(...).results(): ...

A piece is done when its result can be read, whatever Slurm says of its job. A job that left the
queue without all of its results is lost: what is missing is submitted again, in a new job. Jobs are
remembered in files, so this process may be stopped: the next run of the same command collects what
they finished and submits only what no job has.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.slurm.queue import ENDED, Entry, Queue, cancel, log_tail, poll_sleep
from scalewise.slurm.script import submit
from scalewise.writing import write_atomically

T = TypeVar("T")


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job, as its file remembers it."""

    keys: list[str]
    """Its pieces."""
    attempt: int = 1
    """Submissions of these pieces so far."""
    name: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    """Its own, for files."""
    number: str = ""
    """Slurm's number, such as "71" or, in an array, "71_3"."""


class JobRun(ABC, Generic[T]):
    """The jobs of one run.

    Args:
        keys: Pieces that have no result yet.
        folder: Holds jobs, results and logs, on a file system that all nodes share.
        say: Called with messages for the user.
        poll_seconds: Longest time between two polls, seconds; the first ones follow faster.
        settle_seconds: Longest time from the end of a job until its results can be read, seconds:
            network file systems cache.
    """

    what: str
    """A run of this kind, for messages: "sweep"."""
    hint: str
    """Options to check if sbatch refuses a job."""
    attempts: int
    """Submissions of a piece before it is given up."""
    array_size: int
    """Jobs submitted at once at most."""
    cancels: bool
    """Whether Ctrl-C cancels the jobs; otherwise they continue."""

    def __init__(
        self,
        keys: Iterable[str],
        folder: Path,
        say: Callable[[str], None],
        *,
        poll_seconds: float,
        settle_seconds: float,
    ) -> None:
        self.wanted = dict.fromkeys(keys)
        self.folder, self.say = folder, say
        self.poll_seconds, self.settle_seconds = poll_seconds, settle_seconds
        self.queue = Queue()
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, float] = {}

    @abstractmethod
    def _split(self, keys: list[str]) -> list[list[str]]:
        """Distribute pieces over jobs."""

    @abstractmethod
    def _script(self, jobs: list[Job]) -> str:
        """Write the files of jobs; return their batch script, an array if they are several."""

    @abstractmethod
    def _collect(self, job: Job) -> tuple[list[T], bool]:
        """Return new results of a job, and whether there will be no more."""

    @abstractmethod
    def _summary(self) -> str:
        """Return what is done so far, for the message after Ctrl-C."""

    def _collected_elsewhere(self, keys: list[str]) -> list[T]:
        """Return results that another process collected from jobs of this run."""
        del keys
        return []

    def _watch(self, job: Job, entry: Entry) -> None:
        """See a job in the queue."""

    def _give_up(self, job: Job, left: list[str]) -> None:
        """Stop submitting pieces."""
        raise ScalewiseError(
            f"job {job.number} and {job.attempt - 1} before it ended without results for "
            f"{len(left)} tasks: {log_tail(self.log(job))}",
            hint="results of other jobs are kept; run the same again to retry",
        )

    @property
    def waiting(self) -> bool:
        """Whether results are still to come."""
        return bool(self.wanted)

    def log(self, job: Job) -> Path:
        """Return the file with the stderr of a job."""
        return self.folder / f"{job.number}.err"

    def results(self) -> Generator[list[T], None, None]:
        """Submit and wait; yield results as jobs write them.

        Raises:
            ScalewiseError: If sbatch refuses a job, or a job failed too often.
        """
        start = time.monotonic()
        try:
            self.attach()
            if self.jobs:
                self.say(
                    f"resumed {len(self.jobs)} job{'s' * (len(self.jobs) > 1)} of earlier runs"
                )
            self.submit_rest()
            while self.waiting:
                if found := self.collect() or self.resubmit_lost():
                    yield found
                elif self.waiting:
                    poll_sleep(start, self.poll_seconds)
        except (KeyboardInterrupt, GeneratorExit):
            # The second is how an interrupt arrives that hit whoever uses the results.
            self.interrupted()
            raise

    def attach(self) -> None:
        """Take over jobs that an earlier run, or another process, submitted for these pieces."""
        for file in self.folder.glob("*.job"):
            try:
                job = msgspec.json.decode(file.read_bytes(), type=Job)
            except (OSError, ValueError):
                continue
            if self.wanted.keys() & set(job.keys):
                self.jobs[job.name] = job

    def submit_rest(self) -> None:
        """Submit pieces that no job has."""
        taken = {key for job in self.jobs.values() for key in job.keys}
        rest = [key for key in self.wanted if key not in taken]
        self.submit([Job(keys=keys) for keys in self._split(rest)] if rest else [])

    def submit(self, jobs: list[Job]) -> None:
        """Submit jobs, as arrays where they are several, and remember them.

        Raises:
            InputError: If their files cannot be written.
        """
        for start in range(0, len(jobs), self.array_size):
            some = jobs[start : start + self.array_size]
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                script = self._script(some)
            except OSError as error:
                raise InputError(
                    f"jobs cannot be written to {self.folder}: {error.strerror or error}",
                    hint="name a place that all nodes share and you can write to",
                ) from error
            number = submit(script, self.folder, what=self.what, hint=self.hint)
            for index, job in enumerate(some):
                own = f"{number}_{index}" if len(some) > 1 else number
                self.jobs[job.name] = msgspec.structs.replace(job, number=own)
                try:
                    content = msgspec.json.encode(self.jobs[job.name])
                    write_atomically(self.folder / f"{job.name}.job", content)
                except ScalewiseError as error:
                    self.say(f"job {own} cannot be resumed later: {error}")

    def collect(self) -> list[T]:
        """Return results that jobs have written since the last call."""
        found: list[T] = []
        for job in list(self.jobs.values()):
            results, complete = self._collect(job)
            found += results
            if complete:
                self.forget(job)
        return found

    def forget(self, job: Job) -> None:
        """Drop a job that is collected or lost."""
        self.jobs.pop(job.name, None)
        (self.folder / f"{job.name}.job").unlink(missing_ok=True)

    def resubmit_lost(self) -> list[T]:
        """Submit again what jobs left undone, or give it up.

        Returns:
            Results that another process collected from them.
        """
        alive = self.queue.look()
        if alive is None:
            return []
        now = time.monotonic()
        again: list[Job] = []
        found: list[T] = []
        for job in list(self.jobs.values()):
            entry = alive.get(job.number)
            if entry is not None and entry.state != ENDED:
                self.ended.pop(job.name, None)
                self._watch(job, entry)
                continue
            # It may have written results after the last look: look once more at least.
            seen = job.name in self.ended
            ended = self.ended.setdefault(job.name, now)
            if self._left(job) and not (seen and now - ended >= self.settle_seconds):
                continue
            found += self._collected_elsewhere(self._left(job))
            self.forget(job)
            left = self._left(job)
            if left and job.attempt >= self.attempts:
                self._give_up(job, left)
            elif left:
                self.say(
                    f"job {job.number} ended without results for {len(left)} tasks, submitted "
                    f"again ({job.attempt + 1} of {self.attempts}): {log_tail(self.log(job))}"
                )
                again.append(Job(keys=left, attempt=job.attempt + 1))
        self.submit(again)
        return found

    def _left(self, job: Job) -> list[str]:
        return [key for key in job.keys if key in self.wanted]

    def interrupted(self) -> None:
        """Cancel the jobs, or say how to continue."""
        jobs = list(self.jobs.values())
        numbers = " ".join(sorted({job.number.split("_")[0] for job in jobs}))
        if self.cancels and jobs:
            cancel(numbers.split())
            for job in jobs:
                self.forget(job)
            self.say(f"Slurm job {numbers} was canceled; {self._summary()}")
        elif jobs:
            self.say(
                f"{len(jobs)} jobs continue; run the same again to collect them, "
                f"or end them with: scancel {numbers}"
            )
