"""Files of runs as those of one's own that `remember` keeps: tables, records, logs.

    runs = read_own("records/") + read_own("train.log", {"on": "dgx-h100", "gpus": "32"})

The files are those of `table.read_user_runs`, with names of the catalog. A run is kept as columns
of the shipped table: one that needs more words than these is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.catalog import knows, load_cluster
from scalewise.cluster import Cluster
from scalewise.diagnosis.table import TableRun, read_user_runs
from scalewise.errors import InputError
from scalewise.evidence.own_runs import OwnRun, own_run, row_of
from scalewise.evidence.runs import Run, UnsupportedError

ALIKE = 0.01
"""Relative difference of the prediction up to which the columns of a run say what it was."""


def read_own(path: str | Path, words: Mapping[str, Any] | None = None) -> tuple[OwnRun, ...]:
    """Read runs from records, tables or logs.

    Args:
        path: What `read_user_runs` reads.
        words: Fields of a question that are given: all of the run of a log; of records and tables,
            the cluster alone.

    Raises:
        InputError: If it cannot be read, or a run lacks what a prediction needs.
    """
    given = dict(words or {})
    runs = read_user_runs(str(path), given, exact=True)
    cluster = load_cluster(str(given["on"])) if "on" in given else None
    found = []
    for run in runs:
        if isinstance(run, TableRun):
            found.append(_of_words(run, path))
        elif run.tokens_per_second:
            found.append(_of_columns(run, cluster, path))
    if not found:
        raise InputError(
            f"{path} holds no training run with a throughput",
            hint="a table, a log, or records of `scalewise measure train`",
        )
    return tuple(found)


def _of_columns(run: Run, cluster: Cluster | None, path: str | Path) -> OwnRun:
    """A record, or a row with the columns of the shipped table."""
    try:
        return own_run(run, cluster)
    except UnsupportedError as error:
        raise InputError(f"{path}: {error}", hint="name the cluster with --on") from error


def _of_words(run: TableRun, path: str | Path) -> OwnRun:
    """A row of words, or the run of a log.

    Raises:
        InputError: If it is not resolved, is not measured, or columns cannot keep it.
    """
    if run.asked is None:
        said = run.reason.removeprefix(f"line {run.line}: ")
        raise InputError(f"{path}: line {run.line}: {said}")
    rate = run.tokens_per_second
    if rate is None:
        raise InputError(
            f"{path}: line {run.line}: no throughput is stated", hint="step_s, tokens_s or mfu"
        )
    asked, stack = run.asked, run.asked.software.stack
    name = asked.cluster.name
    named = any(knows(folder, name) for folder in ("clusters", "accelerators"))
    own = OwnRun(
        model=asked.model, cluster=asked.cluster, workload=asked.workload,
        strategy=asked.strategy, rate=rate, on=name if named else "",
        framework=run.text("framework"), stack=stack,
    )  # fmt: skip
    kept = own_run(Run(row_of(own, ""), 1)).estimate(stack).tokens_per_second_per_accelerator
    usual = own.estimate(stack).tokens_per_second_per_accelerator
    if abs(kept / usual - 1.0) > ALIKE:
        raise InputError(
            f"{path}: {own.label} cannot be remembered: its columns predict {kept:,.0f} tok/s/GPU, "
            f"its words {usual:,.0f}",
            hint="describe its cluster in a file (scalewise clusters new), and leave out words "
            "that are neither model, cluster, strategy, sequence, batch nor precision",
        )
    return own
