"""Measurement of a study on this machine: launch after launch, until all is done or time is up.

    session = Session(study=study, machine=machine, train=..., collective=..., repeats=3)
    for progress in session.run(launch, budget=3600.0):
        print(progress)

Everything that is known is in the records, whose ids follow from what is measured. So a killed run
continues where it ended: launches with a record are done, others are not.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from scalewise.catalog import knows, load_cluster
from scalewise.errors import InputError, ScalewiseError
from scalewise.measure.idle import idle_checked, journal_of, read_journal
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.machine import idle_warnings
from scalewise.measure.sweeps import SweepSpec
from scalewise.records.files import Record, read_records
from scalewise.records.job import TrainJob
from scalewise.records.links import ShapedLinks
from scalewise.software import choose_stack
from scalewise.step.estimate import estimate
from scalewise.study.files import Study
from scalewise.study.jobs import Machine, MeasuredPoint, distinct, points_to_measure
from scalewise.study.order import Clock, Launch, launches_of, next_launch
from scalewise.study.plan import THIS_MACHINE

LOCK = "launches.lock"
"""Name of the lock, beside the records: one run measures into a folder at a time."""

POLL_SECONDS = 0.5
"""Interval between attempts to take the lock, seconds."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State before a launch."""

    launch: Launch
    """The launch that begins."""
    done: int
    """Launches with records."""
    total: int
    """All launches."""
    left: tuple[float, float] | None
    """Range of the remaining time, seconds; None before the first launch ends."""


@dataclass(kw_only=True)
class Session:
    """A study, its launches, and what is known about them."""

    study: Study
    """The study."""
    machine: Machine
    """Where it is measured."""
    train: Path
    """File for records of training."""
    collective: Path
    """File for records of collectives."""
    repeats: int
    """Repeats of each launch."""
    threads: int | None = None
    """Threads of each rank on CPUs, the same at all points; None leaves it to PyTorch."""
    clock: Clock = field(default_factory=Clock)
    """Durations."""
    rates: dict[str, float] = field(default_factory=dict)
    """Tokens/s by launch key."""
    failures: list[str] = field(default_factory=list)
    """One sentence for each failed launch."""
    left_out: list[Launch] = field(default_factory=list)
    """Launches that the budget leaves out."""

    def __post_init__(self) -> None:
        self.points = points_to_measure(self.study, self.machine)
        self.launched = distinct(self.points)
        self.launches = launches_of(self.study, self.points, self.launched, self.repeats)
        for point in self.launched:
            if (
                point.job is not None
                and (step := predicted_step(point.job, point.links)) is not None
            ):
                self.clock.predicted[point.key] = step
                self.rates[point.key] = point.job.tokens_per_step / step

    def id_of(self, launch: Launch) -> str:
        """Return the id of the record of a launch."""
        return launch.point.id(launch.repeat, self.machine.host)

    def waiting(self) -> list[Launch]:
        """Return the launches without records, and learn from those that have one."""
        notes = read_journal(journal_of(self.train))
        records = {each.id: each for file in (self.train, self.collective)
                   if file.is_file() for each in read_records(file).records}  # fmt: skip
        found = []
        for launch in self.launches:
            record = records.get(self.id_of(launch))
            if record is None:
                found.append(launch)
            elif record.id in notes:
                self._learn(launch.point, record, notes[record.id].seconds)
        return found

    def spec(self, launch: Launch, warnings: Sequence[str] = ()) -> LaunchSpec:
        """Return the specification of a launch."""
        point, id = launch.point, self.id_of(launch)
        where = {
            "device": self.machine.device,
            "accelerator": self.machine.accelerator,
            "threads": self.threads,
            "links": point.links,
        }
        if point.job is not None:
            planned = PlannedJob(
                job=point.job, id=id, launch=launch.repeat, warnings=list(warnings)
            )
            return LaunchSpec(planned=[planned], records=str(self.train), **where)  # type: ignore[arg-type]
        return SweepSpec(
            what="collective", plan=msgspec.to_builtins(point.sweep), processes=point.ranks, id=id,
            records=str(self.collective), warnings=list(warnings), **where,  # type: ignore[arg-type]
        )  # fmt: skip

    def run(
        self, start: Callable[[LaunchSpec], None], budget: float | None = None
    ) -> Iterator[Progress]:
        """Measure launch after launch; yield before each.

        Args:
            start: Runs a launch, and returns when its record is written.
            budget: Seconds after which no launch may still run, as far as predicted; None for all.
        """
        began = time.monotonic()
        waiting = self.waiting()
        while waiting:
            launch = next_launch(waiting, self.points, self.rates)
            waiting.remove(launch)
            expected = self.clock.seconds(launch.point) or 0.0
            if budget is not None and time.monotonic() - began + expected > budget:
                self.left_out.append(launch)
                continue
            yield Progress(
                launch=launch, done=len(self.launches) - len(waiting) - len(self.left_out) - 1,
                total=len(self.launches),
                left=self.clock.left(each.point for each in [launch, *waiting]),
            )  # fmt: skip
            self._measure(launch, start)

    def _measure(self, launch: Launch, start: Callable[[LaunchSpec], None]) -> None:
        """Run one launch between two idle checks, and note both."""
        spec, id = self.spec(launch, idle_warnings()), self.id_of(launch)
        try:
            with idle_checked(self.train, id):
                start(spec)
        except ScalewiseError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.failures.append(f"{label(launch)}: {error}{hint}")
            return
        seconds = read_journal(journal_of(self.train))[id].seconds
        record = next((r for r in read_records(spec.records).records if r.id == id), None)
        if record is not None:
            self._learn(launch.point, record, seconds)

    def _learn(self, point: MeasuredPoint, record: Record, seconds: float) -> None:
        step = None
        if point.job is not None:
            step = statistics.median(record.results["step_seconds"][point.job.warmup :])
            self.rates[point.key] = point.job.tokens_per_step / step
        self.clock.add(point, seconds, step)


def label(launch: Launch) -> str:
    """Return the name of a launch in messages."""
    point = launch.point
    job = point.job
    what = (
        f"collectives on {point.ranks} ranks"
        if job is None
        else f"{job.model.name} {job.strategy}, seq {job.seq_len}"
    )
    where = f", {point.links.text}" if point.links else ""
    return f"{what}{where}, repeat {launch.repeat}"


def predicted_step(job: TrainJob, links: ShapedLinks | None = None) -> float | None:
    """Return the predicted seconds of a step on this machine; None without a calibration."""
    if not knows("clusters", THIS_MACHINE):
        return None
    try:
        cluster = load_cluster(THIS_MACHINE, accelerators=job.ranks)
        if links is not None:
            cluster = links.of(cluster)
        stack = choose_stack(THIS_MACHINE if knows("stacks", THIS_MACHINE) else None, cluster).stack
        e = estimate(job.model, cluster, job.workload(), job.strategy, stack=stack)
        return float(e.step_seconds)
    except InputError:
        return None


@contextlib.contextmanager
def locked(folder: Path, say: Callable[[str], None], patience: float) -> Iterator[int | None]:
    """Hold the lock of a folder of records; yield its descriptor, which launches inherit.

    A killed run leaves its last ranks behind, and they still hold the lock. The next run waits for
    them: their record counts, and two launches at a time would disturb each other.

    Args:
        folder: The folder.
        say: Gets a message if there is something to wait for.
        patience: Seconds to wait.

    Raises:
        ScalewiseError: If the lock is not free by then.
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        began, waits = time.monotonic(), False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not waits:
                    say(f"another run measures into {folder}, or its last ranks: waiting for it")
                waits = True
                if time.monotonic() - began > patience:
                    raise ScalewiseError(
                        f"another run has measured into {folder} for {patience:g} s",
                        hint="end it, or name another folder with -o",
                    ) from error
                time.sleep(POLL_SECONDS)
        yield handle
    finally:
        os.close(handle)
