"""Which of the launches that were planned are not in the records, and why?

    python -m scalewise.measure.left records/slurm/3f2a          # a sentence; exit code 1 if some
    python -m scalewise.measure.left records/slurm/3f2a/2.json   # ... of one launch

A plan is a folder with one order per launch, 1.json, 2.json and so on, and beside each the logs of
its ranks, 1-0.log, 1-1.log, and of srun, 1.err. What is finished is asked of the records alone, so
the answer is right whatever happened to the processes that made them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.measure.launch import error_in
from scalewise.measure.order import Order
from scalewise.measure.records import read_records
from scalewise.measure.sweeps import SweepOrder

AGAIN = "submit the same again: it runs only what is missing"

TOLD = 8
"""Missing launches that are named; of more, only how many."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a plan."""

    number: int
    """Its place in the plan, from 1."""
    order: Order
    """What its ranks do; a `SweepOrder` for sweeps."""
    label: str
    """What people call it."""


def launches_of(orders: Iterable[Order]) -> list[Launch]:
    """Number and name orders; names say more than strategy and launch only where they must."""
    listed = list(orders)
    short = [_label(order) for order in listed]
    return [
        Launch(
            number=number,
            order=order,
            label=_label(order, long=short.count(_label(order)) > 1),
        )
        for number, order in enumerate(listed, start=1)
    ]


def _label(order: Order, *, long: bool = False) -> str:
    if isinstance(order, SweepOrder):
        return f"{order.what}s on {order.ranks} ranks"
    (planned,) = order.planned
    job = planned.job
    more = ""
    if long:
        more = f", seq {job.sequence}, batch {job.global_batch}, {job.precision}"
        more += ", compiled" if job.compile else ""
    return f"{job.model.name} {job.strategy}{more}, launch {planned.launch}"


def read_order(file: Path) -> Order | None:
    """Read an order of either kind; None if it cannot be read."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    for kind in (Order, SweepOrder):
        try:
            return msgspec.json.decode(content, type=kind)
        except (ValueError, ScalewiseError):
            # Not JSON, not text, or not of this kind.
            continue
    return None


def read_plan(folder: Path) -> dict[int, Order]:
    """The orders of a plan that can be read, by their number."""
    files = [file for file in folder.glob("*.json") if file.stem.isdigit()]
    found = {int(file.stem): read_order(file) for file in files}
    return {number: order for number, order in sorted(found.items()) if order is not None}


def written(file: str | Path) -> set[str]:
    """Ids of the records of a file; none where there is no such file."""
    return {r.id for r in read_records(file).records} if Path(file).is_file() else set()


def missing(launches: Iterable[Launch]) -> list[Launch]:
    """Those whose records are not there."""
    have: dict[str, set[str]] = {}
    found = []
    for launch in launches:
        file = launch.order.records
        if file not in have:
            have[file] = written(file)
        if not have[file].issuperset(launch.order.ids):
            found.append(launch)
    return found


def sentence(launches: Sequence[Launch], left: Sequence[Launch]) -> str:
    """How much is there, and what is not.

    Args:
        launches: All that were planned, at least one.
        left: Those of them that are missing.
    """
    there = len(launches) - len(left)
    text = f"{there} of {len(launches)} launches are in {launches[0].order.records}"
    if left:
        named = "; ".join(launch.label for launch in left[:TOLD])
        more = f"; and {len(left) - TOLD} more" if len(left) > TOLD else ""
        text += f"; missing: {named}{more}"
    return text


def ending(folder: Path, launch: Launch) -> str:
    """How a launch that is missing came to its end, by the logs of its ranks.

    Args:
        folder: Of the plan.
        launch: One that is missing.
    """
    # Who failed first wrote last first: neighbours notice, and complain, later.
    logs = sorted(folder.glob(f"{launch.number}-*.log"), key=lambda log: log.stat().st_mtime)
    if not logs:
        return "it did not start"
    for log in logs:
        if why := error_in(log):
            return f"rank {log.stem.partition('-')[2]} failed: {why} (the whole story is in {log})"
    if killed := _killed(folder / f"{launch.number}.err"):
        return f"rank {killed} was killed (the system may have run out of memory)"
    return f"it was ended before it was done (its logs are in {folder})"


def _killed(said: Path) -> str | None:
    """The rank that was killed, by what srun said; those that srun itself ends are no news."""
    try:
        found = re.search(r"\btasks? ([\d,-]+): Killed", said.read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def main() -> int:
    """Say what is missing; return the exit code."""
    place = Path(sys.argv[1])
    if place.is_file():
        order = read_order(place)
        return 0 if order is not None and not missing(launches_of([order])) else 1
    launches = launches_of(read_plan(place).values())
    if not launches:
        print(f"{place} holds no plan", file=sys.stderr)
        return 1
    left = missing(launches)
    print(sentence(launches, left) + (f" ({AGAIN})" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
