"""How do many machines measure? As one job of Slurm that outlives, and tells of, what goes wrong.

    plan = Plan.of(orders, asked)
    done = measured(plan, asked, say=print)
    done.launches, done.left, done.problem        # problem: None, or what to tell the user

A plan is remembered in a folder beside the records until all of its records are there. Who runs
the same command again, after a node died, the time was up, somebody else was given the nodes, or
Ctrl-C, gets exactly the launches that are missing; who runs it while the job is still under way
waits for that job.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.measure.launch import LaunchError
from scalewise.measure.left import Launch, ending, launches_of, missing, read_plan, sentence
from scalewise.measure.order import Order
from scalewise.measure.slurm_script import Allocation, sbatch_script, steps_script, wishes
from scalewise.sweep.submit import (
    ENDED,
    Entry,
    Queue,
    cancel,
    executor_of,
    last_words,
    pause,
    refused,
    require_slurm,
    state_of,
)

NO_SLURM = "run it where you run sbatch, or leave --slurm out"
REFUSED = "check --partition, --nodes and --time; nodes without GPUs need --device cpu"
AGAIN = "run the same command again: it runs only what is missing"

SETTLE_SECONDS = 10.0
"""How long after the end of a job its records may take to show up; network file systems cache."""

POLL_SECONDS = 5.0
"""How often to look at most."""

FATES = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "ran into its time limit",
    "PREEMPTED": "was preempted",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "BOOT_FAIL": "got a node that did not start",
}
"""How jobs end, in Slurm's words and in ours."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Launches that belong together."""

    folder: Path
    """Remembers them until all are in the records."""
    launches: list[Launch]
    """In the order in which they run."""

    @classmethod
    def of(cls, orders: Sequence[Order], asked: Allocation) -> Plan:
        """Plan orders, or find the plan of an earlier run that asked for the same.

        Args:
            orders: What to run; ids are kept from the earlier run, if there is one.
            asked: What to ask of the cluster.

        Raises:
            InputError: If something does not fit.
        """
        contents = [_content(order) for order in orders]
        shape = [contents, asked.nodes, asked.ranks_per_node]
        name = hashlib.sha256(msgspec.json.encode(shape, order="sorted")).hexdigest()[:12]
        folder = Path(orders[0].records).parent / "slurm" / name
        old = read_plan(folder)
        kept = [
            old[number] if number in old and _content(old[number]) == contents[number - 1] else new
            for number, new in enumerate(orders, start=1)
        ]
        plan = cls(folder=folder, launches=launches_of(kept))
        asked.check(plan.launches)
        return plan

    @property
    def job_file(self) -> Path:
        """Holds the number of the job that is under way."""
        return self.folder / "job"

    def write(self) -> None:
        """Remember it.

        Raises:
            InputError: If that is not possible.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for launch in self.launches:
                file = self.folder / f"{launch.number}.json"
                file.write_bytes(msgspec.json.encode(launch.order))
        except OSError as error:
            raise InputError(
                f"the plan cannot be written to {self.folder}: {error.strerror or error}",
                hint="give a folder that all nodes share with -o",
            ) from error


def _content(order: Order) -> dict[str, Any]:
    """An order without what differs each time it is given."""
    plain: dict[str, Any] = msgspec.to_builtins(order)
    for one in [plain, *plain["planned"]]:
        one.pop("id", None)
        one.pop("warnings", None)
    return plain


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of a plan."""

    launches: list[Launch]
    """All of it."""
    left: list[Launch]
    """What is missing."""
    failures: list[str]
    """A sentence for each launch that is missing."""
    problem: ScalewiseError | None
    """What is missing, why, and how to go on; None if all is there."""


def script_of(plan: Plan, asked: Allocation) -> str:
    """The script that sbatch runs as it is; nothing is written or submitted."""
    return sbatch_script(plan.launches, plan.folder, asked)


def measured(plan: Plan, asked: Allocation, say: Callable[[str], None]) -> Done:
    """Run a plan on the cluster, and wait for it.

    Args:
        plan: What to run.
        asked: What to ask of the cluster.
        say: Told what people should know.

    Raises:
        MissingExtraError: If submitit is not installed.
        InputError: If there is no Slurm, or the plan cannot be written.
        ScalewiseError: If Slurm refuses the job.
    """
    require_slurm(NO_SLURM)
    queue = Queue()
    left = missing(plan.launches)
    job = _under_way(plan, queue)
    if plan.folder.exists() and len(left) < len(plan.launches):
        say(f"going on with an earlier run: {sentence(plan.launches, left)}")
    if left and job is None:
        plan.write()
        job = _submit(plan, asked)
        count = f"{len(left)} launches" if len(left) > 1 else "1 launch"
        say(f"submitted {count} as Slurm job {job}")
    if job is not None:
        try:
            _wait(job, plan.launches, queue, say)
        except KeyboardInterrupt:
            cancel([job])
            left = missing(plan.launches)
            say(f"Slurm job {job} was cancelled; {sentence(plan.launches, left)}; {AGAIN}")
            raise
    return _done(plan, job)


def _under_way(plan: Plan, queue: Queue) -> str | None:
    """The job that an earlier run of the same plan submitted, if it lives."""
    try:
        job = plan.job_file.read_text().strip()
    except OSError:
        return None
    start = time.monotonic()
    while (jobs := queue.look()) is None:
        # Not to know is no reason to submit it twice.
        pause(start, POLL_SECONDS)
    entry = jobs.get(job)
    return job if entry is not None and entry.state != ENDED else None


def run_steps(file: str) -> None:
    """What submitit runs inside of the job: the lines that launch.

    Raises:
        LaunchError: If some are missing at the end, so that Slurm, too, calls the job failed.
    """
    if subprocess.run(["bash", file], check=False).returncode:
        raise LaunchError("some launches are missing")


def _submit(plan: Plan, asked: Allocation) -> str:
    """Submit the launches; the number of the job."""
    file = plan.folder / "steps.sh"
    file.write_text(steps_script(plan.launches, plan.folder, asked), encoding="utf-8")
    given = wishes(asked) | {
        # The steps are ours; submitit starts only the script that starts them.
        "use_srun": False,
        # It has Slurm warn all steps before the time is up, by a signal that would end them.
        "additional_parameters": {"signal": "CONT@60"},
    }
    try:
        executor = executor_of(plan.folder, given, NO_SLURM)
        job: str = executor.submit(run_steps, str(file)).job_id
    except ScalewiseError:
        raise
    except Exception as error:
        raise refused(error, "measurement", REFUSED) from error
    plan.job_file.write_text(job)
    return job


def _wait(job: str, launches: Sequence[Launch], queue: Queue, say: Callable[[str], None]) -> None:
    """Wait until a job has left the queue, telling what happens."""
    start = time.monotonic()
    ended: float | None = None
    told: str | None = None
    seen = -1
    open_ = missing(launches)
    while True:
        if (size := _size(launches[0].order.records)) != seen:
            seen = size
            left = missing(launches)
            for launch in (one for one in open_ if one not in left):
                say(f"{len(launches) - len(left)} of {len(launches)}: {launch.label} is done")
            open_ = left
        jobs = queue.look()
        entry = None if jobs is None else jobs.get(job)
        if entry is not None and entry.state != ENDED:
            ended = None
            if (now := _told(job, entry)) != told:
                told = now
                say(now)
        elif jobs is not None:
            ended = ended or time.monotonic()
            if not open_ or time.monotonic() - ended > SETTLE_SECONDS:
                return
        pause(start, POLL_SECONDS)


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0


def _told(job: str, entry: Entry) -> str:
    if entry.state == "PENDING":
        why = "" if entry.reason == "None" else f" ({entry.reason})"
        return f"Slurm job {job} waits{why}"
    return f"Slurm job {job} is {entry.state.lower()} on {entry.nodes}"


def _done(plan: Plan, job: str | None) -> Done:
    """Judge what a plan has come to; forget it if all of it is there."""
    left = missing(plan.launches)
    if not left:
        shutil.rmtree(plan.folder, ignore_errors=True)
        return Done(launches=plan.launches, left=[], failures=[], problem=None)
    fate = FATES.get(state_of(job) or "", "") if job else ""
    failures = [f"{launch.label}: {ending(plan.folder, launch)}" for launch in left]
    why = f"Slurm job {job} {fate}" if fate else failures[0].partition(": ")[2]
    if not fate and job and all(not any(plan.folder.glob(f"{x.number}-*")) for x in left):
        log = plan.folder / f"{job}_0_log.err"
        why = f"Slurm job {job} ended without starting them, {last_words(log)}"
    problem = LaunchError(f"{sentence(plan.launches, left)}: {why}", hint=AGAIN)
    return Done(launches=plan.launches, left=left, failures=failures, problem=problem)
