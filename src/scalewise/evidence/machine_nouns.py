"""Catalog entries of a user's machine: accelerator, chip, fabric, cluster, stack.

    accelerator, chip = accelerator_of(learned)
    fabric, cluster = cluster_of(learned, accelerator)
    stack = stack_of(learned)

A device of the catalog keeps its datasheet, and measured rates become fractions of it. A CPU gets a
file of its own, whose peak is the fastest GEMM that was measured. What was not measured keeps the
catalog's value and is listed in the notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from scalewise.catalog import load_accelerator, load_fabric
from scalewise.chip import UNCALIBRATED, Calibration, load_chip
from scalewise.cluster import Accelerator, Cluster, Fabric
from scalewise.evidence.machine_kernels import predict_row
from scalewise.evidence.machine_rows import MachineData
from scalewise.stack import Stack, load_stack

ATTENTION = "flash2"
"""Kernel generation under which measured attention is stored."""

ELEMENT_BYTES = {"fp32": 4.0, "bf16": 2.0}
COUNTED_BYTES = 2.0
"""Bytes per weight and activation that estimates count."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What the fits found, before it has a shape."""

    name: str
    """Of the machine."""
    data: MachineData
    """What it was found from."""
    rates: dict[str, float]
    """Of kernels; empty if none was timed."""
    links: dict[str, float]
    """Of links; empty if no collective was timed."""
    overlap: float | None
    """Share of communication that compute hides; None if not measured."""
    units: float
    """Compute units."""
    fitted_on: str
    """In words."""

    @property
    def width(self) -> float:
        """Bytes that an element really has over what estimates count."""
        return ELEMENT_BYTES[self.data.dtype] / COUNTED_BYTES


def accelerator_of(learned: Learned) -> tuple[Accelerator, Calibration]:
    """The device, and what it sustains."""
    rates, data = learned.rates, learned.data
    if data.accelerator is not None:
        known = load_accelerator(data.accelerator)
        return known, _shares(learned, known)
    fastest = max(float(row["tflops"]) for row in data.kernels if row["kernel"] == "gemm") * 1e12
    # Constants can exceed the fastest row where estimates charge for what the device has not.
    peak = max(fastest, rates["gemm_flops"])
    assert data.memory_bytes is not None, "a CPU's memory is the host's, shared out"
    streamed = max(float(row["gb_per_s"]) for row in data.kernels if "gb_per_s" in row) * 1e9
    made = Accelerator(
        name=learned.name,
        vendor="measured",
        architecture=learned.name,
        kind="other",
        # Estimates price head and attention by the 16-bit column whatever the precision.
        peak_flops={"bf16": peak, **({"fp32": peak} if data.dtype == "fp32" else {})},
        memory_bytes=data.memory_bytes,
        memory_bandwidth=max(streamed, rates["memory_rate"]),
        scale_up_name="none",
        scale_up_domain=1,
        scale_up_bandwidth=max(_wire(learned, "scale_up_rate"), _wire(learned, "scale_out_rate")),
        scale_out_bandwidth=_wire(learned, "scale_out_rate") or None,
        compute_units=1,
        notes=f"Peak and bandwidth are the most that was seen, measured in {data.dtype}"
        + (
            ": ask for estimates without a precision. Rates of links are halved, because estimates "
            "count 2 bytes per element."
            if learned.width > 1.0
            else "."
        ),
        source=learned.fitted_on,
    )
    return made, _shares(learned, made)


def _shares(learned: Learned, accelerator: Accelerator) -> Calibration:
    """What was measured as shares of the datasheet, or of the most that was seen."""
    rates = learned.rates
    base = load_chip(accelerator.architecture)
    if not rates:
        return base
    peak, peak16 = accelerator.peak_flops.get("bf16"), accelerator.peak_flops.get("fp16")
    peak = peak or peak16 or next(iter(accelerator.peak_flops.values()))
    changes: dict[str, Any] = {
        "gemm": {**base.gemm, "bf16": min(rates["gemm_flops"] / peak, 1.0)},
        "memory_efficiency": min(rates["memory_rate"] / accelerator.memory_bandwidth, 1.0),
        "calibrated": True,
        "gemm_fill": rates.get("gemm_fill", base.gemm_fill),
        "gemm_shapes": tuple(
            (*(float(row[side]) for side in "mnk"), _ratio(learned, row))
            for row in learned.data.kernels
            if row["kernel"] == "gemm"
        ),
        "fitted_on": learned.fitted_on,
        "fitted_watts": accelerator.tdp_watts,
        "fitted_peak": peak,
    }
    if "attention_forward_flops" in rates:
        pair = (
            rates["attention_forward_flops"] / peak,
            rates.get("attention_backward_flops", rates["attention_forward_flops"]) / peak,
        )
        changes["attention"] = {**UNCALIBRATED.attention, **base.attention, ATTENTION: pair}
    if "scale_up_rate" in learned.links and accelerator.scale_up_bandwidth:
        share = learned.links["scale_up_rate"] / accelerator.scale_up_bandwidth
        changes["link_efficiency"] = min(share, 1.0)
    return msgspec.structs.replace(base, **changes)


def _ratio(learned: Learned, row: Mapping[str, Any]) -> float:
    """Measured over predicted time of a kernel."""
    predicted = predict_row(row, learned.rates, learned.units)
    return round(float(row["time_us"]) * 1e-6 / predicted, 4)


def _wire(learned: Learned, name: str) -> float:
    """A rate of a link in the bytes that estimates count."""
    return learned.links.get(name, 0.0) / learned.width


def cluster_of(learned: Learned, accelerator: Accelerator) -> tuple[Fabric, Cluster]:
    """The network, and the machines on it."""
    data, links = learned.data, learned.links
    on_cpu = data.kind == "cpu"
    base = load_fabric("unknown")
    changes: dict[str, Any] = {"name": base.name}
    if "scale_out_rate" in links:
        changes = {
            "name": learned.name,
            "family": "" if on_cpu else base.family,
            "hop_seconds": links.get("hop_seconds", 0.0),
            "call_seconds": links.get("call_seconds", 0.0),
            "efficiency": 1.0,
            "scatter_factor": links.get("scatter_factor", 1.0),
            "all_reduce_factor": links.get("all_reduce_factor", 1.0),
            "congestion": 0.0 if on_cpu else base.congestion,
            "rail_scaling": 1.0,
            "latency_factor": 1.0,
            "description": f"what joins {data.device}, as measured",
            "notes": "Hop and call latency are separated only if groups of several sizes were "
            "timed. Congestion beyond 16 domains was not measured.",
            "source": learned.fitted_on,
        }
    fabric = msgspec.structs.replace(base, **changes)
    domain = (
        accelerator.scale_up_domain if accelerator.name == learned.name else data.ranks_per_node
    )
    assumptions = [] if links else ["no collective was timed: links are the datasheet's"]
    scale_out = _wire(learned, "scale_out_rate") or accelerator.scale_out_bandwidth
    scale_up = accelerator.scale_up_bandwidth or scale_out
    assert scale_up is not None, "checked by gather: a device without links needs collectives"
    return fabric, Cluster(
        name=learned.name,
        accelerator=accelerator,
        accelerators=data.ranks,
        scale_up_domain=domain,
        scale_up_bandwidth=scale_up,
        scale_out_bandwidth=scale_out or scale_up,
        fabric=fabric,
        host_watts=0.0,
        network_watts=0.0,
        algorithm="ring" if on_cpu else "auto",
        protocol="simple" if on_cpu else "auto",
        assumptions=tuple(assumptions),
        notes="Watts of host and network were not measured and count as 0.",
        source=learned.fitted_on,
    )


def stack_of(learned: Learned) -> Stack:
    """The software: eager PyTorch, as `scalewise measure train` runs it."""
    rates, data = learned.rates, learned.data
    base = load_stack("pytorch")
    if not rates:
        return msgspec.structs.replace(
            base, name=learned.name, fitted_on="constants of eager PyTorch"
        )
    hidden = learned.overlap if learned.overlap is not None else 0.0
    on_cpu = data.kind == "cpu"
    changes: dict[str, Any] = {
        "name": learned.name,
        "devices": "any",
        "attention_kernel": ATTENTION,
        # The decoder reduces gradients once, after the last micro-batch.
        "reduce_every_micro_step": False,
        "attention_forward": 1.0,
        "attention_backward": 1.0,
        "gemm": 1.0,
        "dp_overlap": hidden,
        "shard_overlap": hidden,
        "update_gather_overlap": hidden,
        "contention": 1.0 - hidden,
        "tp_overlap": 0.0,
        "gradient_bytes": 0.0,
        "overhead_seconds": 0.0,
        "straggler": 0.0,
        "reduce_bytes": 4.0 / learned.width,
        # On a CPU the host is the device: its launches are in the kernels' times.
        "host_layer_seconds": 0.0 if on_cpu else base.host_layer_seconds,
        "gathers_ends_again": on_cpu,
        "largest_run": data.ranks,
        "fitted_on": learned.fitted_on,
        "undetermined": (),
    }
    for name in ("memory_traffic", "logit_bytes", "optimizer_bytes"):
        if name in rates:
            changes[name] = rates[name]
    if "memory_traffic" in rates:
        # Its kernels were timed as they are, with every pass.
        changes["composed_kernels"] = False
    return msgspec.structs.replace(base, **changes)
