"""Public statements on memory and fine-tuning against predictions, none of which were fitted.

    python benchmarks/public_memory.py                      # statements, half of the tuning rows
    python benchmarks/public_memory.py --set-aside          # and the half that was set aside
    python benchmarks/public_memory.py --all --match qwen   # every row, with its parts of memory

`public/fits.csv` has statements "fits" and "out of memory" with their sources, and peaks where they
are stated; `public/tuning.csv` has published memory and throughput of LoRA, QLoRA and offload. Each
row is asked as a user would: through `Question`. A statement is contradicted if the predicted
chance to fit says the opposite with more than 90% certainty. A row with a word that this version
does not know, or that lacks a fact it needs (column `lacks`), is listed with the reason and not
counted.

Every second configuration of the tuning table, in the order of the SHA-256 of its name, is set
aside: its predictions are printed with `--set-aside` only, apart from the others. Constants are
fitted on neither table.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scalewise.ask.question import Question, question_from
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError
from scalewise.stack import stack_for
from scalewise.step.result import Estimate
from scalewise.units import GIB

FOLDER = Path(__file__).resolve().parent / "public"
FITS, TUNING = FOLDER / "fits.csv", FOLDER / "tuning.csv"

ASKED = (
    "id", "source", "date", "model", "accelerator", "gpus", "node", "software", "strategy",
    "seq_len", "global_batch", "precision", "weights", "optimizer", "loss", "tuning", "sets",
)  # fmt: skip
"""Columns of both tables: what is asked, and where it was read."""

FITS_COLUMNS = (*ASKED, "outcome", "peak_gb", "counted", "lacks", "note")
TUNING_COLUMNS = (
    "id", "run", *ASKED[1:], "quantity", "value", "unit", "counted", "set_aside", "lacks", "note",
)  # fmt: skip

UNITS = {"GB": 1e9, "GiB": GIB, "tokens/s": 1.0, "s": 1.0}
"""SI value of a printed unit."""

COUNTED = ("allocated", "active", "reserved", "device", "unknown")
"""What a published peak counts: tensors, blocks in use, blocks with the cache of the allocator, or
all that the driver reports (context and libraries too). Predicted is the last."""

CERTAIN = 0.9
"""Certainty above which a prediction contradicts a statement."""

SHOWN = 0.1
"""Relative error above which a row is printed without `--all`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table and what is predicted for it."""

    cells: dict[str, str]
    estimate: Estimate | None
    """None where it cannot be asked."""
    reason: str
    """Why it cannot be asked."""

    @property
    def stated(self) -> float | None:
        """The published value, SI; None where only an outcome is stated."""
        if "quantity" in self.cells:
            return float(self.cells["value"]) * UNITS[self.cells["unit"]]
        return float(self.cells["peak_gb"]) * 1e9 if self.cells["peak_gb"] else None

    @property
    def predicted(self) -> float:
        """The same quantity, predicted."""
        assert self.estimate is not None
        return _QUANTITIES[self.cells.get("quantity", "peak memory")](self.estimate)

    @property
    def error(self) -> float | None:
        """Predicted over published value, minus one."""
        if self.estimate is None or self.stated is None:
            return None
        return self.predicted / self.stated - 1.0

    @property
    def contradicts(self) -> bool:
        """Whether the prediction denies the outcome with more than 90% certainty."""
        outcome = self.cells.get("outcome")
        if self.estimate is None or outcome is None:
            return False
        chance = chance_to_fit(self.estimate)
        return chance < 1.0 - CERTAIN if outcome == "fits" else chance > CERTAIN


_QUANTITIES = {
    "peak memory": lambda e: e.memory_bytes,
    "tokens/s per GPU": lambda e: e.tokens_per_second_per_accelerator,
    "step": lambda e: e.step_seconds,
}
"""Quantities of the tuning table, and where they are in an estimate."""


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def set_aside(runs: Iterable[str]) -> set[str]:
    """Return every second configuration, in the order of the SHA-256 of its name."""
    ordered = sorted(set(runs), key=lambda run: hashlib.sha256(run.encode()).hexdigest())
    return set(ordered[1::2])


def software_of(cells: dict[str, str]) -> str:
    """Return the software of a row; of the stack of its date, where its framework has several."""
    name, date = cells["software"], cells["date"]
    eras = {stack_for(name, date=each).name for each in (date, "")}
    return name if len(eras) == 1 else stack_for(name, date=date).name


def question_of(cells: dict[str, str]) -> Question:
    """Return the question of a row.

    Raises:
        InputError: If this version does not know one of its words.
    """
    asked: dict[str, Any] = {
        "model": cells["model"],
        "on": cells["accelerator"],
        "gpus": int(cells["gpus"]),
        "node": int(cells["node"]) if cells["node"] else None,
        "strategy": cells["strategy"],
        "seq": int(cells["seq_len"]),
        "batch": int(cells["global_batch"]),
        "precision": cells["precision"],
        "weights": cells["weights"],
        "optimizer": cells["optimizer"],
        "loss": cells["loss"],
        "stack": software_of(cells),
        "sets": tuple(cells["sets"].split()),
    }
    if cells["tuning"] != "full":
        asked["tuning"] = cells["tuning"]
    return question_from(asked)


def chance_to_fit(e: Estimate) -> float:
    """Return the chance to fit on the device; 0 where the host has too little memory."""
    host = e.infeasible is not None and e.infeasible.startswith("host memory")
    return 0.0 if host else e.fit


def ask(cells: dict[str, str]) -> Row:
    """Predict one row, or say why it cannot be asked."""
    if cells["lacks"]:
        return Row(cells=cells, estimate=None, reason=f"lacks: {cells['lacks']}")
    try:
        e = resolve(question_of(cells)).estimate()
    except InputError as error:
        return Row(cells=cells, estimate=None, reason=str(error).partition("\n")[0])
    if e.infeasible is not None and "memory" not in e.infeasible.partition(":")[0]:
        return Row(cells=cells, estimate=None, reason=e.infeasible)
    return Row(cells=cells, estimate=e, reason="")


def parts(e: Estimate, count: int = 4) -> str:
    """Return the largest parts of memory, GB."""
    largest = sorted(e.memory.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {size / 1e9:.1f}" for name, size in largest)


def line(row: Row) -> str:
    """Return a row as a line: chance to fit, predicted and published value, error, parts."""
    e, cells = row.estimate, row.cells
    assert e is not None
    scale = 1e9 if cells.get("quantity", "peak memory") == "peak memory" else 1.0
    stated = "" if row.stated is None else f"{row.stated / scale:,.1f}"
    error = "" if row.error is None else f"{row.error:+.0%}"
    outcome = cells.get("outcome") or cells["quantity"]
    mark = "CONTRADICTED" if row.contradicts else ""
    text = (
        f"{cells['id']:42s} {outcome:16s} {chance_to_fit(e):5.0%} {row.predicted / scale:9,.1f} "
        f"{stated:>9s} {error:>6s}  {mark}"
    )
    return f"{text.rstrip()}\n    of {e.memory_capacity / 1e9:.1f} GB: {parts(e)}"


def tensors_only(row: Row) -> float | None:
    """Return the error of a peak without workspace and fragmentation, which are no tensors."""
    e, stated = row.estimate, row.stated
    if e is None or stated is None:
        return None
    return (e.memory_bytes - e.memory["workspace"] - e.memory["fragmentation"]) / stated - 1.0


def summary(rows: Sequence[Row]) -> str:
    """Return the median and largest error of rows, and the share inside the 80% interval."""
    errors = [row.error for row in rows if row.error is not None]
    if not errors:
        return "none can be asked"
    sizes = sorted(abs(error) for error in errors)
    text = f"{len(sizes)} rows, median error {median(sizes):.1%}, largest {sizes[-1]:.0%}"
    text += f", bias {median(errors):+.1%}"
    memory = [row for row in rows if row.error is not None and row.estimate is not None]
    if all(row.cells.get("quantity", "peak memory") == "peak memory" for row in memory):
        inside = [
            row.estimate.memory_low <= (row.stated or 0.0) <= row.estimate.memory_high
            for row in memory
            if row.estimate is not None
        ]
        text += f", {sum(inside) / len(inside):.0%} inside the 80% interval"
    return text


def show_rows(rows: Sequence[Row], *, everything: bool) -> None:
    """Print the rows that say something: contradicted, or off by more than 10%."""
    for row in sorted(rows, key=lambda each: (not each.contradicts, -abs(each.error or 0.0))):
        if row.estimate is None:
            continue
        off = row.error is not None and abs(row.error) > SHOWN
        if everything or row.contradicts or off:
            print(line(row))


def show_fits(rows: Sequence[Row], *, everything: bool) -> None:
    """Print the table of statements."""
    asked = [row for row in rows if row.estimate is not None]
    contradicted = [row for row in asked if row.contradicts]
    print(
        f"\n{'statement':42s} {'outcome':16s} {'fit':>5s} {'predicted':>9s} {'stated':>9s}  error"
    )
    show_rows(asked, everything=everything)
    agree = 0
    for row in asked:
        assert row.estimate is not None
        agree += (chance_to_fit(row.estimate) > 0.5) == (row.cells["outcome"] == "fits")
    print(f"\n{len(rows)} statements, {len(asked)} asked: {agree} as predicted, ", end="")
    print(f"{len(contradicted)} contradicted with more than {CERTAIN:.0%} certainty")
    print(f"stated peaks: {summary(asked)}")
    for counted in COUNTED:
        of = [row for row in asked if row.cells["counted"] == counted]
        if of:
            print(f"  {counted}: {summary(of)}")
    bare = [
        abs(error)
        for row in asked
        if row.cells["counted"] in ("allocated", "active")
        and (error := tensors_only(row)) is not None
    ]
    if bare:
        print(f"  allocated and active, without workspace: median error {median(bare):.1%}")


def show_tuning(rows: Sequence[Row], title: str, *, everything: bool) -> None:
    """Print one half of the table of tuning and offload."""
    asked = [row for row in rows if row.estimate is not None]
    print(f"\n{title}: {len(rows)} rows, {len(asked)} asked")
    show_rows(asked, everything=everything)
    for quantity in _QUANTITIES:
        of = [row for row in asked if row.cells["quantity"] == quantity]
        if of:
            print(f"{quantity}: {summary(of)}")


def show_unasked(rows: Sequence[Row]) -> None:
    """Print what cannot be asked, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.estimate is None:
            reasons.setdefault(row.reason, []).append(row.cells["id"])
    if reasons:
        print(f"\n{sum(map(len, reasons.values()))} rows cannot be asked:")
    for reason, ids in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"  {reason}\n    {', '.join(ids)}")


def main() -> None:
    """Read, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set-aside", action="store_true", help="the half that was set aside, too")
    parser.add_argument("--all", action="store_true", help="print all rows")
    parser.add_argument("--match", default="", help="rows whose name contains this")
    options = parser.parse_args()

    def chosen(path: Path) -> list[dict[str, str]]:
        return [cells for cells in read_table(path) if options.match in cells["id"]]

    fits = [ask(cells) for cells in chosen(FITS)]
    show_fits(fits, everything=options.all)
    tuning, aside = [], []
    for cells in chosen(TUNING):
        if cells["set_aside"] == "false":
            tuning.append(ask(cells))
        elif options.set_aside:
            aside.append(ask(cells))
    show_tuning(tuning, "LoRA, QLoRA and offload", everything=options.all)
    if options.set_aside:
        show_tuning(aside, "The same, set aside", everything=options.all)
    show_unasked([*fits, *tuning, *aside])


if __name__ == "__main__":
    main()
