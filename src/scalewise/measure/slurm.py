"""Measurements on a Slurm cluster: one job that runs all launches of a plan.

    plan = Plan.of(specs, asked)
    done = measured(plan, asked, say=print)
    done.launches, done.left, done.problem        # problem: None, or what to raise

A plan is kept in a folder beside the records until all of its records are there. The same command
again, after a node died, the time limit, a preemption or Ctrl-C, runs exactly the launches that are
missing; while the job is still running, it waits for that job.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.measure.launch import LaunchError
from scalewise.measure.launch_spec import LaunchSpec
from scalewise.measure.missing_launches import (
    Launch,
    ending,
    launches_of,
    missing,
    read_plan,
    sentence,
)
from scalewise.measure.slurm_script import Allocation, sbatch_script
from scalewise.slurm.jobs import Job, JobRun
from scalewise.slurm.queue import (
    ENDED,
    Entry,
    ending_of,
    log_tail,
    poll_sleep,
    require_slurm,
)
from scalewise.writing import write_atomically

NO_SLURM = "run it where you run sbatch, or leave --slurm out"
AGAIN = "run the same command again: it runs only what is missing"

SETTLE_SECONDS = 10.0
"""Longest time from the end of a job until its records can be read, seconds."""

POLL_SECONDS = 5.0
"""Longest time between two polls, seconds."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Launches that belong together."""

    folder: Path
    """Keeps their specs until all are in the records."""
    launches: list[Launch]
    """In the order in which they run."""

    @classmethod
    def of(cls, specs: Sequence[LaunchSpec], asked: Allocation) -> Plan:
        """Plan launches, or find the plan of an earlier run with the same ones.

        Args:
            specs: The launches; ids are kept from the earlier run, if there is one.
            asked: Resources.

        Raises:
            InputError: If a launch does not fit.
        """
        contents = [_content(spec) for spec in specs]
        shape = [contents, asked.nodes, asked.ranks_per_node]
        name = hashlib.sha256(msgspec.json.encode(shape, order="sorted")).hexdigest()[:12]
        folder = Path(specs[0].records).parent / "slurm" / name
        old = read_plan(folder)
        kept = [
            old[number] if number in old and _content(old[number]) == contents[number - 1] else new
            for number, new in enumerate(specs, start=1)
        ]
        plan = cls(folder=folder, launches=launches_of(kept))
        asked.check(plan.launches)
        return plan

    def write(self) -> None:
        """Write the specs to the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for launch in self.launches:
            file = self.folder / f"{launch.number}.json"
            write_atomically(file, msgspec.json.encode(launch.spec))


def _content(spec: LaunchSpec) -> dict[str, Any]:
    """Return a spec without what differs between runs."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    for one in [plain, *plain["planned"]]:
        one.pop("id", None)
        one.pop("warnings", None)
    return plain


@dataclass(frozen=True, kw_only=True)
class Done:
    """The state of a plan after a run."""

    launches: list[Launch]
    """All of it."""
    left: list[Launch]
    """Missing launches."""
    failures: list[str]
    """One sentence for each missing launch."""
    problem: ScalewiseError | None
    """What is missing, why, and how to continue; None if nothing is."""


def script_of(plan: Plan, asked: Allocation) -> str:
    """Return a script that sbatch runs as it is; nothing is written or submitted."""
    return sbatch_script(plan.launches, plan.folder, asked)


def measured(plan: Plan, asked: Allocation, say: Callable[[str], None]) -> Done:
    """Run a plan on the cluster, and wait for it.

    Args:
        plan: What to run.
        asked: Resources.
        say: Called with messages for the user.

    Raises:
        InputError: If there is no Slurm, or the plan cannot be written.
        ScalewiseError: If sbatch refuses the job.
    """
    require_slurm(NO_SLURM)
    left = missing(plan.launches)
    if plan.folder.exists() and len(left) < len(plan.launches):
        say(f"resumed: {sentence(plan.launches, left)}")
    run = PlanRun(plan, asked, say)
    for finished in run.results():
        for launch in finished:
            done = len(plan.launches) - len(run.wanted)
            say(f"{done} of {len(plan.launches)}: {launch.label} is done")
    return _done(plan, run.number)


class PlanRun(JobRun[Launch]):
    """The job of one plan; its pieces are launches.

    Args:
        plan: What to run.
        asked: Resources.
        say: Called with messages for the user.
    """

    what, attempts, array_size, cancels = "measurement", 1, 1, True
    hint = "check --partition, --nodes and --time; nodes without GPUs need --device cpu"

    def __init__(self, plan: Plan, asked: Allocation, say: Callable[[str], None]) -> None:
        self.plan, self.asked = plan, asked
        self.state = ""
        self.size = -1
        self.number: str | None = None
        super().__init__(
            [str(launch.number) for launch in missing(plan.launches)],
            plan.folder,
            say,
            poll_seconds=POLL_SECONDS,
            settle_seconds=SETTLE_SECONDS,
        )

    @property
    def waiting(self) -> bool:
        """See `JobRun`; the job uses the folder of the plan until its end."""
        return bool(self.jobs)

    def attach(self) -> None:
        """See `JobRun`; a job that ended is forgotten, because its records speak for it."""
        super().attach()
        start = time.monotonic()
        alive = self.queue.look() if self.jobs else {}
        while alive is None:
            # Submitting it twice would be worse than waiting for an answer.
            poll_sleep(start, self.poll_seconds)
            alive = self.queue.look()
        for job in list(self.jobs.values()):
            if job.number not in alive or alive[job.number].state == ENDED:
                self.forget(job)

    def _split(self, keys: list[str]) -> list[list[str]]:
        return [keys]

    def _script(self, jobs: list[Job]) -> str:
        del jobs
        self.plan.write()
        return sbatch_script(self.plan.launches, self.folder, self.asked, alone=False)

    def _collect(self, job: Job) -> tuple[list[Launch], bool]:
        if self.number != job.number:
            self.number = job.number
            count = f"{len(job.keys)} launches" if len(job.keys) > 1 else "1 launch"
            self.say(f"{count} in Slurm job {job.number}")
        if (size := _size(self.plan.launches[0].spec.records)) == self.size:
            return [], False
        self.size = size
        left = {str(launch.number) for launch in missing(self.plan.launches)}
        found = [key for key in self.wanted if key not in left]
        for key in found:
            del self.wanted[key]
        return [self.plan.launches[int(key) - 1] for key in found], False

    def _watch(self, job: Job, entry: Entry) -> None:
        state = f"is {entry.state.lower()} on {entry.nodes}"
        if entry.state == "PENDING":
            state = "is pending" + ("" if entry.reason == "None" else f" ({entry.reason})")
        if state != self.state:
            self.state = state
            self.say(f"Slurm job {job.number} {state}")

    def _give_up(self, job: Job, left: list[str]) -> None:
        """See `JobRun`; `_done` explains what is missing."""

    def _summary(self) -> str:
        return f"{sentence(self.plan.launches, missing(self.plan.launches))}; {AGAIN}"


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0


def _done(plan: Plan, job: str | None) -> Done:
    """Return the state of a plan; its folder is removed if nothing is missing."""
    left = missing(plan.launches)
    if not left:
        shutil.rmtree(plan.folder, ignore_errors=True)
        return Done(launches=plan.launches, left=[], failures=[], problem=None)
    state = ending_of(job) if job else None
    failures = [f"{launch.label}: {ending(plan.folder, launch)}" for launch in left]
    why = f"Slurm job {job} {state}" if state else failures[0].partition(": ")[2]
    if not state and job and all(not any(plan.folder.glob(f"{x.number}-*")) for x in left):
        log = plan.folder / f"{job}.err"
        why = f"Slurm job {job} ended without starting them, {log_tail(log)}"
    problem = LaunchError(f"{sentence(plan.launches, left)}: {why}", hint=AGAIN)
    return Done(launches=plan.launches, left=left, failures=failures, problem=problem)
