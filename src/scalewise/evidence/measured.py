"""Records as runs: the columns of published measurements for a user's own ones.

    records = read_records("records/").records
    rows = run_rows(records)             # dicts with the columns of the shipped runs.csv
    runs = runs_of(records)              # evidence.runs.Run objects
    write_csv(records, "mine.csv")       # scalewise validate mine.csv

Repeats of the same inputs on the same machine become one row. A CPU has no name in the catalog
unless it was given one: its rows say "cpu", and can be read but not predicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scalewise.evidence.runs import SHIPPED, Run
from scalewise.model import Model
from scalewise.reading import read_csv
from scalewise.records.files import Record
from scalewise.records.job import TrainJob, job_of
from scalewise.records.metrics import CONVENTION, Summary, by_job, summarize
from scalewise.strategy import Strategy
from scalewise.workload import Workload
from scalewise.writing import csv_text, write_atomically

SOURCE = "measured"
"""What the column `source` says of the user's own rows."""

FRAMEWORK = "pytorch"


def columns() -> list[str]:
    """The columns of the shipped table, in its order."""
    return read_csv(SHIPPED).columns


def run_rows(records: Iterable[Record]) -> list[dict[str, str]]:
    """One row for each job that was measured, blank cells left out."""
    rows = []
    for launches in by_job(records):
        job, first = job_of(launches[0].inputs), launches[0]
        cells = _inputs(job) | _machine(first, job) | _measured(summarize(launches), launches)
        rows.append({name: cell(value) for name, value in cells.items() if value is not None})
    return rows


def runs_of(records: Iterable[Record]) -> list[Run]:
    """The same as runs, numbered from 1."""
    return [Run(row, line) for line, row in enumerate(run_rows(records), start=1)]


def write_csv(records: Iterable[Record], path: str | Path) -> None:
    """Write the rows as a table that `scalewise validate` reads."""
    write_atomically(path, csv_text(run_rows(records), columns()))


def cell(value: Any) -> str:
    """Return a value as a cell."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _machine(record: Record, job: TrainJob) -> dict[str, Any]:
    where = record.environment
    return {
        "date": record.started[:10],
        "accelerator": where.accelerator or ("cpu" if where.device == "cpu" else where.device_name),
        "accelerators": job.ranks,
        "scaleup_domain": where.ranks_per_node,
        "framework": FRAMEWORK,
        "software_date": record.started[:7],
    }


def noun_cells(m: Model, s: Strategy, workload: Workload) -> dict[str, Any]:
    """Return the columns of a model, a strategy and a workload; None where there is nothing."""
    moe = m.moe
    return {
        "model": m.name,
        "params_total": m.parameters,
        "params_active": m.active_parameters,
        "layers": m.layers,
        "hidden": m.hidden,
        "ffn_hidden": m.ffn or None,
        "heads": m.heads,
        "kv_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "attention": "full",
        "vocab": m.vocab,
        "gated_mlp": m.gated,
        "tied_embeddings": m.tied,
        "experts": moe and moe.experts,
        "experts_per_token": moe and moe.experts_per_token,
        "moe_ffn_hidden": moe and moe.ffn,
        "shared_experts": moe and moe.shared_experts,
        "moe_layers": moe and moe.layers,
        "seq_len": workload.seq_len,
        "global_batch": workload.global_batch,
        "micro_batch": s.micro_batch,
        "grad_accum": workload.global_batch // (s.data_parallel * s.micro_batch) or None,
        "dp_replicate": s.dp_replicate,
        "dp_shard": s.dp_shard,
        # FSDP that keeps its parameters after forward is tabled as ZeRO-2 by others, with the
        # framework saying that FSDP is meant; here the strategy in the notes says it.
        "sharding": s.sharding,
        "tp": s.tp,
        "sequence_parallel": s.sequence_parallel,
        "pp": s.pp,
        "virtual_stages": s.virtual_stages if s.pp > 1 else None,
        "pp_schedule": s.schedule if s.pp > 1 else None,
        "cp": s.cp,
        "ep": s.ep,
        "precision": workload.precision,
        "recompute": s.recompute,
        "notes": f"strategy {s}",
    }


def _inputs(job: TrainJob) -> dict[str, Any]:
    workload = Workload(seq_len=job.seq_len, global_batch=job.global_batch, precision=job.precision)
    notes = [f"strategy {job.strategy}"]
    notes += [f"{job.routing} routing"] * (job.model.moe is not None)
    notes += [f"optimizer {job.optimizer}"] * (job.optimizer != "adamw")
    notes += [f"tuning {job.tuning}"] * (job.tuning != "full")
    return noun_cells(job.model, job.strategy, workload) | {
        "grad_accum": job.num_microbatches,
        "virtual_stages": job.chunks,
        "compiled": job.compile,
        "attention_kernel": "sdpa",
        "notes": ", ".join(notes),
    }


def _measured(summary: Summary, launches: list[Record]) -> dict[str, Any]:
    of_device = summary.memory_basis == "allocator"
    memory = summary.peak_memory_bytes if of_device else None
    known = {
        "id": f"measured-{launches[0].id}",
        "source": SOURCE,
        "source_ref": "records " + " ".join(summary.records),
        "tokens_per_second_per_accelerator": summary.tokens_per_second_per_device,
        "step_seconds": summary.step_seconds.median,
        "tflops_per_accelerator": summary.tflops_per_device,
        "mfu_pct": None if summary.mfu is None else 100.0 * summary.mfu,
        "hfu_pct": None if summary.hfu is None else 100.0 * summary.hfu,
        "tflops_basis": f"model-{CONVENTION}",
        "watts_per_accelerator": summary.watts_per_device,
        "memory_gb": None if memory is None else memory / 1e9,
        "quality": "ok",
    }
    return known
