"""Constants that a calibration fits, each with a prior from physics or microbenchmarks.

A parameter belongs to a chip architecture, a software stack, or a fabric; there is none per row
and none per source. Priors are log-normal: `spread` is the standard deviation of the logarithm.
A fit can trade most overheads against each other, so the priors keep constants physical; their
sources are in the comments. Priors of one architecture are in the files of its accelerators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["chip", "stack", "fabric"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One constant: its owner, its prior and its hard limits."""

    name: str
    """The field of Calibration, Stack or Fabric that it sets."""
    scope: Scope
    """What it is a property of."""
    prior: float
    """Belief before the fit."""
    eager: float | None = None
    """Belief for eager stacks, if it differs."""
    xla: float | None = None
    """Belief for stacks of XLA, if it differs."""
    spread: float = 0.3
    """Standard deviation of the prior's logarithm."""
    low: float
    """Hard lower limit."""
    high: float
    """Hard upper limit."""

    def belief(self, family: str, *, compiled: bool) -> float:
        """Belief for stacks of a family."""
        if family == "xla" and self.xla is not None:
            return self.xla
        return self.prior if compiled or self.eager is None else self.eager


CHIP = (
    Parameter(name="gemm.bf16", scope="chip", prior=0.70, spread=0.12, low=0.3, high=0.97),
    # Relative to the 16-bit share: what limits a chip (power, feeding) limits every precision.
    Parameter(name="gemm.fp8", scope="chip", prior=0.95, spread=0.08, low=0.5, high=1.3),
    Parameter(name="gemm.fp4", scope="chip", prior=0.75, spread=0.15, low=0.3, high=1.3),
)

STACK = (
    # Libraries, layouts and fused epilogues differ by a few per cent on one chip.
    Parameter(name="gemm", scope="stack", prior=1.0, spread=0.06, low=0.6, high=1.25),
    # Fused kernels stay near the minimum; eager code makes a pass per operation and casts.
    Parameter(
        name="memory_traffic", scope="stack", prior=1.5, eager=3.0, spread=0.4, low=0.7, high=9.0
    ),
    # Assumed: some 100 (fused) to 300 (eager) launches per layer and micro-batch at about 10 us.
    Parameter(
        name="host_layer_seconds",
        scope="stack",
        prior=1.0e-3,
        eager=3.0e-3,
        spread=0.5,
        low=5e-5,
        high=8e-3,
    ),
    # Relative to the isolated kernel: 1 if the stack uses that kernel as it is.
    Parameter(name="attention_forward", scope="stack", prior=0.9, spread=0.25, low=0.2, high=1.5),
    Parameter(name="attention_backward", scope="stack", prior=0.9, spread=0.25, low=0.2, high=1.5),
    # NCCL holds 16 to 32 of 132 SMs (0.12-0.24); FSDP and pipelines on A100, H100 and MI250 slow
    # compute by 0.19 on average and 0.40 at most (arXiv 2507.03114).
    Parameter(name="contention", scope="stack", prior=0.25, spread=0.3, low=0.02, high=1.0),
    Parameter(
        name="tp_exposed", scope="stack", prior=0.4, eager=0.8, spread=0.5, low=0.02, high=1.0
    ),
    # Eager code here wraps models in PyTorch's DDP, which reduces buckets of 25 MB during backward:
    # all but the last one. Lowered from 0.7 with the layouts of nanotron in view.
    Parameter(
        name="dp_exposed", scope="stack", prior=0.4, eager=0.1, spread=0.4, low=0.05, high=1.0
    ),
    Parameter(
        name="shard_exposed", scope="stack", prior=0.4, eager=0.7, spread=0.4, low=0.05, high=1.0
    ),
    # Fused: add into an fp32 buffer (read and write 4 bytes, read 2). FSDP1 with fp32 reduction, by
    # count: concatenate views 4, cast 6, pre-divide 8, read 4 = 22; with bf16 reduction about 10.
    Parameter(
        name="gradient_bytes", scope="stack", prior=4.0, eager=14.0, spread=0.4, low=0.5, high=40.0
    ),
    # An unfused fp32 softmax loss moves about 32 bytes per logit, a fused one 8 to 12. XLA fuses
    # passes, not the loss: fp32 logits are written, read for maximum, sum and gradient, and the
    # gradient is written, 4 bytes each.
    Parameter(
        name="logit_bytes",
        scope="stack",
        prior=14.0,
        eager=30.0,
        xla=20.0,
        spread=0.4,
        low=4.0,
        high=90.0,
    ),
    # AdamW reads and writes 12 bytes of state, reads the gradient, writes the weight: 30.
    Parameter(name="optimizer_bytes", scope="stack", prior=36.0, spread=0.25, low=20.0, high=120.0),
    Parameter(
        name="overhead_seconds", scope="stack", prior=1.0e-2, spread=0.7, low=1e-4, high=8e-2
    ),
    # 0.4-1.7 % of the step per doubling of nodes in published weak scaling.
    Parameter(name="straggler", scope="stack", prior=0.006, spread=0.6, low=2e-4, high=0.02),
)

# Only for stacks whose file lists them under `fits`.
OPTIONAL = (
    # Recipes that overlap the all-gather of updated parameters with the next forward.
    Parameter(name="update_exposed", scope="stack", prior=0.4, spread=0.4, low=0.05, high=1.0),
    Parameter(name="selective_share", scope="stack", prior=0.6, spread=0.3, low=0.05, high=1.0),
    Parameter(
        name="pipeline_host_seconds", scope="stack", prior=1.3e-3, spread=0.5, low=1e-5, high=5e-3
    ),
    # Gradients of a sweep whose bucket is not documented. The runs leave 0.3 to 2 GB open; the
    # prior was narrowed with the ranking of that sweep in view.
    Parameter(name="bucket_bytes", scope="stack", prior=1.2e9, spread=0.2, low=2e7, high=2e10),
)

# Constants that are stored as their complement.
COMPLEMENT = {
    "tp_exposed": "tp_overlap",
    "dp_exposed": "dp_overlap",
    "shard_exposed": "shard_overlap",
    "update_exposed": "update_gather_overlap",
}

# By family of fabrics. What one call costs (NIC latency, launch, efficiency) is learned from
# microbenchmarks; what a thousand ranks do to each other only shows in training runs.
FABRIC = (
    # No published ring timing of such a fabric: a guess between NCCL's 2 us and what tensor
    # parallelism over two nodes costs there.
    Parameter(
        name="ring_step_seconds", scope="fabric", prior=3e-5, spread=0.6, low=1e-6, high=2e-4
    ),
    # Reduce-scatter of H100s from 4 to 128 nodes loses 2-3 % of its rate per doubling beyond NCCL's
    # latencies (NVIDIA/nccl issue 1229).
    Parameter(name="congestion", scope="fabric", prior=0.04, spread=0.8, low=1e-3, high=0.8),
    # All NICs of a node add up in nccl-tests (381 of 400 GB/s on four EFA nodes).
    Parameter(name="rail_scaling", scope="fabric", prior=1.0, spread=0.15, low=0.2, high=1.0),
)
