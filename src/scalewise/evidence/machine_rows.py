"""Records of one machine, selected and checked for a calibration.

    data = gather(read_records("records/").records, nccl_rows=[])
    data.kernels, data.collectives, data.steps

A calibration is for one kind of device in one precision. Two kinds of devices, too few timings, and
the same thing timed twice with different results are errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from scalewise.errors import InputError
from scalewise.measure.host_plan import HostPlan
from scalewise.records.environment import Environment
from scalewise.records.files import Record
from scalewise.records.job import TrainJob
from scalewise.records.metrics import by_job, quantile, summarize
from scalewise.records.rows import rows_of

FEWEST_GEMMS, FEWEST_COLLECTIVES = 3, 4
"""Timings below which a rate, or a rate and a latency, cannot be separated from noise."""

WIDEST = 8.0
"""Smallest ratio of message sizes that separates latency from bandwidth."""

CONTRADICTION = 2.0
"""Factor by which medians of the same thing, timed twice, may differ; launches differ by 10 %."""


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured training job on one device."""

    job: TrainJob
    """What ran."""
    seconds: float
    """Median step, seconds."""
    launches: list[float]
    """Median step of every launch, seconds."""


class MachineData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was measured on one kind of device."""

    device: str
    """As the driver calls it."""
    kind: str
    """"cuda" or "cpu"."""
    accelerator: str | None
    """Its name in the catalog, if it has one."""
    dtype: str
    """Precision of kernels and steps: "bf16" or "fp32"."""
    ranks_per_node: int
    """Devices of one machine."""
    ranks: int
    """Devices of the largest launch."""
    memory_bytes: float | None
    """Of one device where it is a share of the host's memory; None for GPUs."""
    kernels: list[dict[str, Any]] = []
    """Rows of kernel sweeps."""
    collectives: list[dict[str, Any]] = []
    """Rows of collective sweeps, and of nccl-tests."""
    beside: list[dict[str, float]] = []
    """What a reduction beside compute cost."""
    host: list[dict[str, Any]] = []
    """Rows of the last sweep of host time."""
    host_plan: HostPlan = HostPlan()
    """Its decoders."""
    steps: list[Step] = []
    """Training steps on one device."""
    records: list[str] = []
    """Ids of the records that were used."""
    dates: tuple[str, str] = ("", "")
    """First and last day of measuring."""
    software: str = ""
    """Versions."""
    notes: list[str] = []
    """What a reader should know: busy machine, records left out."""


def gather(
    records: Sequence[Record], nccl_rows: Sequence[dict[str, Any]] = (), dtype: str | None = None
) -> MachineData:
    """Sort records into what a calibration reads.

    Args:
        records: Of any kind.
        nccl_rows: Rows imported from nccl-tests, see `measure.nccl_tests`.
        dtype: Precision to calibrate; by default that of the kernel timings.

    Raises:
        InputError: If they are too few, of several machines, or contradict each other.
    """
    notes: list[str] = []
    records = _of_one_network(records, notes)
    sweeps = [record for record in records if record.kind in ("kernel", "collective")]
    where = _one_machine(sweeps, records)
    device = (
        where.device_name if where else str(nccl_rows[0]["hardware_stated"]) if nccl_rows else ""
    )
    if not sweeps and not nccl_rows:
        raise InputError(
            "there is no timing of kernels or collectives to calibrate on",
            hint="run `scalewise measure kernels` and `scalewise measure collectives` first",
        )
    kernel_records = [record for record in sweeps if record.kind == "kernel"]
    dtype = dtype or (str(kernel_records[0].inputs["dtype"]) if kernel_records else "bf16")
    kernels = [row for row in rows_of(kernel_records) if row.get("dtype") == dtype]
    links = [record for record in sweeps if record.kind == "collective"]
    collectives = [*rows_of(links), *nccl_rows]
    # Two ranks have more threads than one on every core; dispatch uses one of them.
    wrapped = [r for r in records if r.kind == "host" and r.environment.device_name == device][-1:]
    steps = _steps(records, where, dtype, notes)
    busy = Counter(w for record in sweeps for w in record.warnings if "not idle" in w)
    if busy:
        notes.append(f"{busy.total()} of {len(sweeps)} sweeps ran on a machine that was not idle")
    _check_kernels(kernels)
    _check_collectives(collectives, needed=where is not None and where.accelerator is None)
    used = [*sweeps, *wrapped, *(record for record in records if record.kind == "train")]
    days = sorted(record.started[:10] for record in used)
    per_node = max((record.environment.ranks_per_node for record in sweeps), default=1)
    per_node = max([per_node, *(int(row["scaleup_domain"]) for row in nccl_rows)])
    memory = where.memory_bytes if where else None
    return MachineData(
        device=device,
        kind=where.device if where else "cuda",
        accelerator=where.accelerator if where else _stated(nccl_rows),
        dtype=dtype,
        ranks_per_node=per_node,
        ranks=max([per_node, *(int(row["accelerators"]) for row in collectives)]),
        memory_bytes=memory / per_node if memory and where and where.device == "cpu" else None,
        kernels=kernels,
        collectives=collectives,
        beside=[beside for record in links if (beside := record.results.get("beside"))],
        host=list(rows_of(wrapped)),
        host_plan=msgspec.convert(wrapped[0].inputs, HostPlan) if wrapped else HostPlan(),
        steps=steps,
        records=[record.id for record in used],
        dates=(days[0], days[-1]) if days else ("", ""),
        software=_software(where),
        notes=notes,
    )


def _of_one_network(records: Sequence[Record], notes: list[str]) -> list[Record]:
    """Leave out launches on limited links, unless all collectives were timed on the same ones."""
    networks = {r.environment.links for r in records if r.kind == "collective"}
    if len(networks) == 1 and None not in networks:
        return list(records)
    kept = [record for record in records if record.environment.links is None]
    if left_out := len(records) - len(kept):
        notes.append(f"{left_out} launches on limited links between pretend nodes were left out")
    return kept


def _one_machine(sweeps: Sequence[Record], records: Sequence[Record]) -> Environment | None:
    """The environment that all sweeps share, as far as a calibration cares."""
    of = [*sweeps] or [record for record in records if record.kind == "train"]
    kinds = Counter(
        (r.environment.device_name, r.environment.accelerator, r.environment.threads) for r in of
    )
    if len(kinds) > 1:
        text = " and ".join(
            f"{name}" + (f" with {threads} threads" if threads else "")
            for name, _, threads in kinds
        )
        raise InputError(
            f"the sweeps are of {len(kinds)} kinds of devices: {text}",
            hint="calibrate each from a folder of its own; on CPUs use the same --ranks throughout",
        )
    return of[0].environment if of else None


def _stated(rows: Sequence[dict[str, Any]]) -> str | None:
    return rows[0].get("accelerator") if rows else None


def _steps(
    records: Sequence[Record], where: Environment | None, dtype: str, notes: list[str]
) -> list[Step]:
    """Training on one device like that of the sweeps; what else there is becomes a note."""
    found: list[Step] = []
    left_out = 0
    for launches in by_job([record for record in records if record.kind == "train"]):
        at, summary = launches[0].environment, summarize(launches)
        same = where is None or (at.device_name, at.threads) == (where.device_name, where.threads)
        if summary.ranks != 1:
            continue
        if not same or summary.precision != dtype or summary.compiled:
            left_out += 1
            continue
        from scalewise.records.job import job_of

        found.append(
            Step(
                job=job_of(launches[0].inputs),
                seconds=quantile(sorted(summary.launch_medians), 0.5),
                launches=summary.launch_medians,
            )
        )
    if left_out:
        notes.append(
            f"{left_out} single-device jobs were left out: compiled, or of another precision or "
            "number of threads"
        )
    return found


def _check_kernels(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    gemms = [row for row in rows if row["kernel"] == "gemm"]
    streams = [row for row in rows if row["kernel"] == "hbm_stream_copy"]
    if len(gemms) < FEWEST_GEMMS or not streams:
        raise InputError(
            f"{len(gemms)} timings of matrix products and {len(streams)} of memory are too few "
            f"(at least {FEWEST_GEMMS} and 1)",
            hint="run `scalewise measure kernels` for the model you train",
        )
    keys = ("kernel", "m", "n", "k", "batch", "heads", "seq_len", "head_dim", "direction")
    _check_repeats(rows, keys)


def _check_collectives(rows: Sequence[dict[str, Any]], *, needed: bool) -> None:
    if not rows:
        if needed:
            raise InputError(
                "no collective was timed, so the links of this machine are unknown",
                hint="run `scalewise measure collectives`",
            )
        return
    sizes = [float(row["message_bytes"]) for row in rows]
    if len(rows) < FEWEST_COLLECTIVES or max(sizes) / min(sizes) < WIDEST:
        raise InputError(
            f"{len(rows)} timings of collectives from {min(sizes):g} to {max(sizes):g} bytes are "
            "too few to separate latency from bandwidth",
            hint=f"time at least {FEWEST_COLLECTIVES}, over sizes that differ by {WIDEST:g} x",
        )
    _check_repeats(rows, ("op", "accelerators", "nodes", "placement", "message_bytes", "in_place"))


def _check_repeats(rows: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> None:
    """Refuse the same thing timed twice with very different results."""
    seen: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        seen.setdefault(tuple(row.get(key) for key in keys), []).append(float(row["time_us"]))
    worst = max(seen.items(), key=lambda item: max(item[1]) / min(item[1]))
    low, high = min(worst[1]), max(worst[1])
    off = [times for times in seen.values() if max(times) / min(times) > CONTRADICTION]
    # One hiccup among many repeats is noise; the loss forgives it.
    if len(off) > max(1, len([times for times in seen.values() if len(times) > 1]) // 4):
        name = " ".join(str(value) for value in worst[0] if value is not None)
        raise InputError(
            f"the timings contradict each other: {name} took {low:.4g} us once and {high:.4g} us "
            "another time",
            hint="measure again on an idle machine, into a new folder",
        )


def _software(where: Environment | None) -> str:
    if where is None:
        return ""
    libraries = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    return f"{libraries}, Python {where.python}, scalewise {where.scalewise}"
