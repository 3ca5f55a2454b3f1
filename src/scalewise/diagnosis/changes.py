"""What each cause changes of a step: columns of a `Case`, or arithmetic on its terms.

A function of columns takes the estimate of a run, values of the parameter and variants, and returns
columns as long as the values. A function of terms changes `Rows` that are computed already, where
no column reaches: waiting for data, padding, a slow node, a rank order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.catalog import load_fabric
from scalewise.diagnosis.parts import PLACE
from scalewise.numeric import Array, scalar
from scalewise.physics.links import Links
from scalewise.stack import load_stack
from scalewise.step.recompute import FULL

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

Columns = dict[str, Any]

TENSOR = ("tensor_parallel", "context_parallel")
"""Terms of the groups that a wrong rank order spreads over nodes."""

TF32, FP32 = 1.0, 2.0
"""Variants of 32-bit compute."""

FP32_RATE, TF32_RATE = 19.5 / 312.0, 156.0 / 312.0
"""FLOP/s of 32-bit units and of TF32 over those of bf16 where the catalog does not state them
(NVIDIA A100 datasheet)."""


@dataclass(kw_only=True)
class Rows:
    """Hypotheses about one run: what a step takes and is spent on, arrays over them."""

    seconds: Array
    """Time of a step."""
    parts: Array
    """Seconds by part (`parts.PARTS`), a column each."""
    tokens: Array
    """Counted tokens of a step over those of the question."""
    terms: Mapping[str, Array]
    """Seconds by term."""
    micro: float
    """Micro-batches of the question per step."""
    once: Array
    """Exposed data-parallel communication once per step, seconds."""
    healthy: Rows | None = None
    """The one row of the step as predicted."""

    def of(self, rows: slice) -> Rows:
        """Return some rows."""
        return Rows(
            seconds=self.seconds[rows], parts=self.parts[rows], tokens=self.tokens[rows],
            micro=self.micro, terms={name: seconds[rows] for name, seconds in self.terms.items()},
            once=self.once[rows], healthy=self.healthy,
        )  # fmt: skip

    def add(self, part: str, seconds: Array) -> None:
        """Add seconds to a step, in one part of it."""
        parts = np.array(self.parts)
        parts[:, PLACE[part]] += seconds
        self.seconds, self.parts = self.seconds + seconds, parts

    def start_again(self, part: str, seconds: Array) -> None:
        """Take the step as predicted, and add seconds in one part of it."""
        assert self.healthy is not None
        self.seconds = self.healthy.seconds + 0.0 * seconds
        self.parts = np.repeat(self.healthy.parts, len(seconds), axis=0)
        self.add(part, seconds)


def value_of(e: Estimate, column: str) -> float:
    """Return a column of the step as predicted."""
    return scalar(e.many.case.columns()[column])


def node_rate(e: Estimate) -> float:
    """Return what the network of one node sustains, bytes/s."""
    ranks = min(value_of(e, "domain"), value_of(e, "gpus"))
    return float(value_of(e, "scale_out") * ranks ** value_of(e, "rail_scaling"))


def sockets(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of TCP sockets that sustain so many bytes/s per node."""
    del variant
    fabric, links = load_fabric("tcp"), {each.name for each in fields(Links)}
    known = {name: getattr(fabric, name) for name in fabric.__struct_fields__ if name in links}
    columns = {name: np.full_like(values, float(value)) for name, value in known.items()}
    ranks = min(value_of(e, "domain"), value_of(e, "gpus"))
    rate = np.minimum(values, node_rate(e)) / ranks
    return columns | {"scale_out": rate, "rail_scaling": np.ones_like(values)}


def fewer_nics(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of a network at a fraction of its rate."""
    del variant
    return {"scale_out": value_of(e, "scale_out") * values}


def pcie(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of GPUs that exchange over PCIe, at so many bytes/s."""
    del variant
    return {
        "scale_up": np.minimum(values, value_of(e, "scale_up")),
        "nvls": np.zeros_like(values),
    }


def no_overlap(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of data-parallel communication that overlaps nothing."""
    del e, variant
    return {"overlap_dp": np.zeros(len(values), dtype=bool)}


def eager_ratio() -> dict[str, float]:
    """Return constants of eager PyTorch over those of compiled PyTorch (both fitted)."""
    eager, compiled = load_stack("pytorch"), load_stack("pytorch-compiled")
    names = ("memory_traffic", "host_layer_seconds", "logit_bytes")
    return {name: getattr(eager, name) / getattr(compiled, name) for name in names}


def eager(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of eager kernels: the usual ratio to compiled ones, to the power of a value."""
    del variant
    return {name: value_of(e, name) * ratio**values for name, ratio in eager_ratio().items()}


def unfused_attention(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of attention that stores its scores."""
    del variant
    kernels, now = e.many.chip.attention, e.stack.attention_kernel
    rates = [value_of(e, "attention_forward"), value_of(e, "attention_backward")]
    if "unfused" in kernels and now in kernels:
        pairs = zip(rates, kernels["unfused"], kernels[now], strict=True)
        rates = [rate * slow / usual for rate, slow, usual in pairs]
    return {
        "unfused_attention": np.ones(len(values), dtype=bool),
        "attention_forward": np.full_like(values, rates[0]),
        "attention_backward": np.full_like(values, rates[1]),
    }


def full_recompute(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of recompute of every block."""
    del e, variant
    ones = np.ones_like(values)
    return {"recompute": FULL * ones, "recompute_blocks": ones}


def wide_rates(e: Estimate) -> dict[float, float]:
    """Return GEMM rates of TF32 and FP32 over those of the question."""
    peaks = e.cluster.accelerator.peak_flops
    bf16 = peaks.get("bf16") or peaks.get("fp16") or e.peak_flops
    rates = {TF32: peaks.get("tf32", bf16 * TF32_RATE), FP32: peaks.get("fp32", bf16 * FP32_RATE)}
    return {kind: rate / e.peak_flops for kind, rate in rates.items()}


def wide(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of 32-bit compute: rates, operands, memory traffic and gathered parameters."""
    del values
    rates = wide_rates(e)
    slower = np.where(variant == TF32, rates[TF32], rates[FP32])
    wide16 = slower * e.peak_flops / (e.cluster.accelerator.peak_flops.get("bf16") or e.peak_flops)
    four = np.full_like(slower, 4.0)
    return {
        "gemm": value_of(e, "gemm") * slower,
        "gemm16": value_of(e, "gemm16") * wide16,
        "attention_forward": value_of(e, "attention_forward") * wide16,
        "attention_backward": value_of(e, "attention_backward") * wide16,
        "matmul_bytes": four,
        "gather_bytes": four,
        "reduce_bytes": four,
        "memory_traffic": 2.0 * value_of(e, "memory_traffic") + 0.0 * slower,
        "quantize_bytes": 0.0 * slower,
    }


_RATES = ("gemm", "gemm16", "attention_forward", "attention_backward")


def slower_clock(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of GEMM and attention rates at a fraction; `variant` 1 leaves the run as it is."""
    factor = np.where(variant == 1.0, 1.0, values)
    return {name: value_of(e, name) * factor for name in _RATES}


def slow_node(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of one node that computes slower by a factor, for which all others wait."""
    return slower_clock(e, 1.0 / values, variant)


def launches(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of a host that launches kernels slower by a factor."""
    del variant
    names = ("host_layer_seconds", "host_attention", "host_routing", "host_expert")
    return {name: value_of(e, name) * values for name in names}


def every_micro_step(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of gradients that are reduced after each micro-batch, where they are sharded."""
    del e, variant
    yes = np.ones(len(values), dtype=bool)
    return {"reduce_every_micro_step": yes, "zero2_every_micro_step": yes}


def fewer_micro_batches(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of a step with micro-batches fewer by a factor."""
    del variant
    return {
        "num_microbatches": value_of(e, "num_microbatches") / values,
        "global_batch": value_of(e, "global_batch") / values,
    }


def spread_groups(e: Estimate, values: Array, variant: Array) -> Columns:
    """Columns of groups of which no two ranks share a node."""
    del variant
    return {"domain": np.ones_like(values), "domains": value_of(e, "gpus") + 0.0 * values}


# Arithmetic on the terms.


def wait_for_data(rows: Rows, values: Array) -> None:
    """Add seconds per step in which nothing runs."""
    rows.add("idle", values)


def useful_tokens(rows: Rows, values: Array) -> None:
    """Count a fraction of the tokens."""
    rows.tokens = rows.tokens * values


def fewer_tokens(rows: Rows, values: Array) -> None:
    """Count fewer tokens, as there are fewer micro-batches."""
    rows.tokens = rows.tokens / values


def wait_for_slow_node(rows: Rows, values: Array) -> None:
    """Count what the slow node needs more as waiting: a profiled rank is probably another one."""
    del values
    assert rows.healthy is not None
    rows.start_again("straggler", rows.seconds - rows.healthy.seconds)


def reduce_each_time(rows: Rows, values: Array) -> None:
    """Repeat what is exposed of the reduction once per step for every further micro-batch.

    Where gradients are sharded, columns have changed it already, and nothing is left to repeat.
    """
    del values
    assert rows.healthy is not None
    unchanged = rows.seconds == rows.healthy.seconds
    more = np.where(unchanged, (rows.micro - 1.0) * rows.healthy.once, 0.0)
    rows.add("dp", more)


def longer_tensor_groups(rows: Rows, values: Array) -> None:
    """Multiply the time that tensor parallelism exposes."""
    assert rows.healthy is not None
    exposed = rows.healthy.terms["tensor_parallel"]
    rows.start_again("tp", (values - 1.0) * exposed)


def only_tensor_groups(rows: Rows, values: Array) -> None:
    """Keep all terms as predicted but for tensor and context parallelism.

    An approximation: the other groups would then sit closer together, and gain a little.
    """
    del values
    assert rows.healthy is not None
    usual = rows.healthy
    more = sum(
        (np.maximum(rows.terms[name] - usual.terms[name], 0.0) for name in TENSOR),
        np.zeros_like(rows.seconds),
    )
    rows.start_again("tp", more)
