"""Metrics of a measured job: throughput, MFU, communication, power, memory.

    summary = summarize(records)                # repeats of one job
    summary.tokens_per_second_per_device, summary.step_seconds.median, summary.mfu

Warm-up is dropped here and nowhere else: records keep it. Repeats are pooled, and the median of
each is kept, because repeats vary more than steps do. What was not measured, or needs an unknown
peak, is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from scalewise.catalog import load_accelerator
from scalewise.errors import ScalewiseError
from scalewise.model import Convention, Model
from scalewise.physics.memory import op_fraction
from scalewise.recompute import recomputed_blocks
from scalewise.records.files import Record
from scalewise.records.job import TrainJob, job_of
from scalewise.strategy import Recompute
from scalewise.tuning import parse_tuning, training_flops

CONVENTION: Convention = "causal"
"""How FLOPs are counted: what the causal mask leaves (`Model.training_flops`)."""

LOW, HIGH = 0.05, 0.95


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sample, in three numbers."""

    median: float
    """Half of them are below."""
    p5: float
    """One in twenty is below."""
    p95: float
    """One in twenty is above."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value; between samples it is interpolated."""
        ordered = sorted(values)
        return cls(
            median=quantile(ordered, 0.5), p5=quantile(ordered, LOW), p95=quantile(ordered, HIGH)
        )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies, interpolated linearly."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All launches of one job on one machine."""

    model: str
    """Its name."""
    strategy: str
    """In its one spelling."""
    seq_len: int
    """Tokens per sequence."""
    global_batch: int
    """Sequences per step."""
    precision: str
    """Of the matrix products."""
    optimizer: str
    """Its name in the catalog."""
    tuning: str
    """What was trained: "full", or adapters."""
    compiled: bool
    """Whether blocks went through torch.compile."""
    device: str
    """What it ran on, as the driver calls it."""
    accelerator: str | None
    """The catalog's name for it, or None."""
    ranks: int
    """Processes, one per device."""
    launches: int
    """How many."""
    steps: int
    """Steps that count, over all launches."""
    dropped: int
    """Warm-up steps that do not, over all launches."""
    step_seconds: Spread
    """Of one optimizer step, all launches pooled, seconds."""
    launch_medians: list[float]
    """Median step of each launch, seconds."""
    tokens_per_second: float
    """Of all devices, at the median step."""
    tokens_per_second_per_device: float
    """Of one."""
    tflops_per_device: float
    """Useful FLOP/s of one device, in 1e12; FLOPs as CONVENTION counts them."""
    mfu: float | None
    """Fraction of the device's peak that was useful; None without a known peak."""
    hfu: float | None
    """The same with what was recomputed; None without a known peak."""
    watts_per_device: float | None
    """Mean over the steps that count (on CPUs, of the whole host over its ranks)."""
    joules_per_token: float | None
    """Energy per trained token; None where nothing counts energy."""
    peak_memory_bytes: float | None
    """Of the worst rank, bytes."""
    memory_basis: str
    """What that is: "allocator" or "rss"."""
    communication_seconds: float | None
    """Collectives of one traced step, mean over the traced ranks; None without a trace."""
    exposed_seconds: float | None
    """The exposed part of them."""
    routing: str | None
    """Experts of a token: "balanced" or "topk"; None for a dense model."""
    ep_imbalance: float | None
    """Rows of the busiest expert-parallel rank over the mean, mean of the launches; None without
    expert parallelism."""
    loss_first: float
    """Of the first step, nats per token."""
    loss_last: float
    """Of the last step."""
    warnings: list[str]
    """Of all launches, each once."""
    records: list[str]
    """Their ids."""

    @property
    def label(self) -> str:
        """The strategy, and what differs from AdamW on all parameters."""
        words = [self.strategy]
        words += [self.tuning] * (self.tuning != "full")
        words += [self.optimizer] * (self.optimizer != "adamw")
        return " ".join(words)


def by_job(records: Iterable[Record]) -> list[list[Record]]:
    """Group records of training into launches of the same job on the same machine."""
    groups: dict[bytes, list[Record]] = {}
    for record in records:
        if record.kind == "train":
            where = record.environment
            if where.nodes:
                # A cluster is one machine, whichever of its equal nodes Slurm gave.
                where = msgspec.structs.replace(where, host="", nodes=[])
            key = msgspec.json.encode([record.inputs, where], order="sorted")
            groups.setdefault(key, []).append(record)
    return list(groups.values())


def summarize(records: Sequence[Record]) -> Summary:
    """Put launches of one job together.

    Args:
        records: At least one, all of the same inputs and environment.
    """
    job = job_of(records[0].inputs)
    where = records[0].environment
    kept = [list(r.results["step_seconds"])[job.warmup :] for r in records]
    spread = Spread.of([seconds for launch in kept for seconds in launch])
    per_device = job.tokens_per_step / spread.median / job.ranks
    flops = training_flops(job.model, parse_tuning(job.tuning), job.seq_len, CONVENTION)
    peak = peak_of(where.accelerator, job.precision)
    again = recomputed_flops(job.model, job.seq_len, job.strategy.recompute)
    watts, joules = _power(records, job)
    last = records[-1].results
    return Summary(
        model=job.model.name,
        strategy=str(job.strategy),
        seq_len=job.seq_len,
        global_batch=job.global_batch,
        precision=job.precision,
        optimizer=job.optimizer,
        tuning=job.tuning,
        compiled=job.compile,
        device=where.device_name,
        accelerator=where.accelerator,
        ranks=job.ranks,
        launches=len(records),
        steps=sum(len(launch) for launch in kept),
        dropped=job.warmup * len(records),
        step_seconds=spread,
        launch_medians=[quantile(sorted(launch), 0.5) for launch in kept],
        tokens_per_second=per_device * job.ranks,
        tokens_per_second_per_device=per_device,
        tflops_per_device=per_device * flops / 1e12,
        mfu=None if peak is None else per_device * flops / peak,
        hfu=None if peak is None else per_device * (flops + again) / peak,
        watts_per_device=watts,
        joules_per_token=joules,
        peak_memory_bytes=_greatest(r.results.get("peak_memory_bytes") for r in records),
        memory_basis=str(last["memory_basis"]),
        communication_seconds=_mean_of(records, "communication_seconds"),
        exposed_seconds=_mean_of(records, "exposed_seconds"),
        routing=None if job.model.moe is None else job.routing,
        ep_imbalance=_mean([r.results.get("ep_imbalance") for r in records]),
        loss_first=last["losses"][0],
        loss_last=last["losses"][-1],
        warnings=list(dict.fromkeys(w for r in records for w in r.warnings)),
        records=[r.id for r in records],
    )


def peak_of(accelerator: str | None, precision: str) -> float | None:
    """The peak of a device, FLOP/s; None where it is not known."""
    if accelerator is None:
        return None
    try:
        return load_accelerator(accelerator).peak(precision)
    except ScalewiseError:
        return None


def recomputed_flops(model: Model, seq_len: int, kind: Recompute) -> float:
    """FLOPs per token that backward repeats of forward.

    PyTorch's checkpoint stops as soon as it has what backward needs: of a whole block, everything
    but the last product. Routed experts repeat theirs too, because their weights need it.
    """
    parts = model.forward_flops_parts(seq_len)
    if kind in ("selective", "attention"):
        return parts["attention"]
    products = parts["qkv"] + parts["attention_out"] + parts["mlp"]
    products += parts["router"] + parts["experts"] + parts["shared_experts"]
    if kind == "op":
        query, key_value = model.heads * model.head_dim, model.kv_heads * model.head_dim
        return float(op_fraction(query, key_value, model.ffn, gated=model.gated) * products)
    blocks = recomputed_blocks(kind)
    if blocks is None:
        return 0.0
    last = 2.0 * model.dense_layers * model.hidden * model.ffn
    if model.moe is not None and not model.moe.shared_gate:
        last += parts["shared_experts"] / model.mlp_matrices
    return blocks[0] / blocks[1] * (products + parts["attention"] - last)


def _power(records: Sequence[Record], job: TrainJob) -> tuple[float | None, float | None]:
    """Watts per device and joules per token; None if one launch did not count."""
    joules = seconds = 0.0
    for record in records:
        energy = record.results.get("energy_joules")
        length = record.results.get("energy_seconds")
        if energy is None or not length:
            return None, None
        joules += energy
        seconds += length
    tokens = job.tokens_per_step * (job.steps - job.warmup) * len(records)
    return joules / seconds / job.ranks, joules / tokens


def _greatest(values: Iterable[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return max(known) if known else None


def _mean_of(records: Sequence[Record], field: str) -> float | None:
    """Mean of a number that traces gave, over the launches that have it."""
    return _mean([(r.results.get("trace") or {}).get(field) for r in records])


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
