"""Launches of a plan that have no record yet, and the reason.

    python -m scalewise.measure.missing_launches records/slurm/3f2a    # exit code 1 if some
    python -m scalewise.measure.missing_launches records/slurm/3f2a/2.json   # ... of one launch

A plan is a folder with one spec per launch, 1.json, 2.json and so on, with the logs of its ranks,
1-0.log, 1-1.log, and of srun, 1.err. Only the records decide what is done, whatever happened to the
processes that wrote them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.measure.launch import error_in
from scalewise.measure.launch_spec import LaunchSpec
from scalewise.measure.sweeps import SweepSpec
from scalewise.records.files import read_records

AGAIN = "submit the same again: it runs only what is missing"

MAX_NAMED = 8
"""Missing launches that a message names; the others are counted."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a plan."""

    number: int
    """Its place in the plan, from 1."""
    spec: LaunchSpec
    """What its ranks do; a `SweepSpec` for sweeps."""
    label: str
    """Its name in messages."""


def launches_of(specs: Iterable[LaunchSpec]) -> list[Launch]:
    """Number and label specs; labels that would be equal get more details."""
    listed = list(specs)
    short = [_label(spec) for spec in listed]
    return [
        Launch(
            number=number,
            spec=spec,
            label=_label(spec, long=short.count(_label(spec)) > 1),
        )
        for number, spec in enumerate(listed, start=1)
    ]


def _label(spec: LaunchSpec, *, long: bool = False) -> str:
    if isinstance(spec, SweepSpec):
        return f"{spec.what}s on {spec.ranks} ranks"
    (planned,) = spec.planned
    job = planned.job
    more = ""
    if long:
        more = f", seq {job.seq_len}, batch {job.global_batch}, {job.precision}"
        more += ", compiled" if job.compile else ""
        more += f", {job.routing} routing" if job.model.moe is not None else ""
    return f"{job.model.name} {job.strategy}{more}, launch {planned.launch}"


def read_spec(file: Path) -> LaunchSpec | None:
    """Read a spec of either kind; None if it cannot be read."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    for kind in (LaunchSpec, SweepSpec):
        try:
            return msgspec.json.decode(content, type=kind)
        except (ValueError, ScalewiseError):
            # Not JSON, not text, or not of this kind.
            continue
    return None


def read_plan(folder: Path) -> dict[int, LaunchSpec]:
    """Return the readable specs of a plan by number."""
    files = [file for file in folder.glob("*.json") if file.stem.isdigit()]
    found = {int(file.stem): read_spec(file) for file in files}
    return {number: spec for number, spec in sorted(found.items()) if spec is not None}


def written(file: str | Path) -> set[str]:
    """Return the ids of the records of a file; none if there is no such file."""
    return {r.id for r in read_records(file).records} if Path(file).is_file() else set()


def missing(launches: Iterable[Launch]) -> list[Launch]:
    """Return the launches without records."""
    have: dict[str, set[str]] = {}
    found = []
    for launch in launches:
        file = launch.spec.records
        if file not in have:
            have[file] = written(file)
        if not have[file].issuperset(launch.spec.ids):
            found.append(launch)
    return found


def sentence(launches: Sequence[Launch], left: Sequence[Launch]) -> str:
    """Return how many launches are done, and which are missing, for a message.

    Args:
        launches: All that were planned, at least one.
        left: Those of them that are missing.
    """
    there = len(launches) - len(left)
    text = f"{there} of {len(launches)} launches are in {launches[0].spec.records}"
    if left:
        named = "; ".join(launch.label for launch in left[:MAX_NAMED])
        more = f"; and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
        text += f"; missing: {named}{more}"
    return text


def ending(folder: Path, launch: Launch) -> str:
    """Return how a missing launch ended, by the logs of its ranks.

    Args:
        folder: Of the plan.
        launch: One that is missing.
    """
    # The rank that failed first stopped writing first: its neighbors notice later.
    logs = sorted(folder.glob(f"{launch.number}-*.log"), key=lambda log: log.stat().st_mtime)
    if not logs:
        return "it did not start"
    for log in logs:
        if why := error_in(log):
            return f"rank {log.stem.partition('-')[2]} failed: {why} (the full log is {log})"
    if killed := _killed(folder / f"{launch.number}.err"):
        return f"rank {killed} was killed (the system may have run out of memory)"
    return f"it was ended before it was done (its logs are in {folder})"


def _killed(said: Path) -> str | None:
    """Return the rank that was killed, by the output of srun; not those that srun ended."""
    try:
        found = re.search(r"\btasks? ([\d,-]+): Killed", said.read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def main() -> int:
    """Print what is missing; return the exit code."""
    place = Path(sys.argv[1])
    if place.is_file():
        spec = read_spec(place)
        return 0 if spec is not None and not missing(launches_of([spec])) else 1
    launches = launches_of(read_plan(place).values())
    if not launches:
        print(f"{place} holds no plan", file=sys.stderr)
        return 1
    left = missing(launches)
    print(sentence(launches, left) + (f" ({AGAIN})" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
