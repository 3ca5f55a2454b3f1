"""Table of the causes of a slow run: how likely, what they change, how to check and mend them.

    CAUSES["tcp"].label, CAUSES["tcp"].prior
    CAUSES["tcp"].grid(e)            # bytes/s per node, each with its prior weight

Priors: networks and links are about half of the public cases, the rest is judgement. They count
among the causes on the list; `HEALTHY` and `OTHER` are what stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from scalewise.diagnosis import changes
from scalewise.diagnosis.changes import Columns, Rows, node_rate, value_of
from scalewise.numeric import Array
from scalewise.ranges import family_of
from scalewise.units import format_percent, format_rate, format_seconds, grouped

if TYPE_CHECKING:
    from scalewise.model import Convention
    from scalewise.step.result import Estimate

HEALTHY, OTHER = 0.25, 0.10
"""Prior probability of a run that is as predicted, and of a cause that is not on the list."""

COUNTS_FROM = 0.05
"""Loss below which a change is no cause."""

TCP_LINE_RATES = (10.0, 25.0, 50.0, 100.0, 200.0)
"""Line rates of a node whose NICs carry sockets, Gbit/s."""

TCP_PAYLOAD, TCP_SPREAD = 0.64, 0.30
"""Fraction of a line rate that sockets carry (NVIDIA/nccl issue 209, fabric `tcp`), and its spread
(log): 1.4 to 5.2 GB/s were seen on one 100 Gbit/s NIC (NVIDIA/nccl issue 450)."""

PCIE = 8e9, 60e9
"""Rates of PCIe between GPUs, bytes/s: generation 3 through the host to generation 5 x16."""

WITHOUT_GPUDIRECT = 0.33, 0.83
"""Rate of RDMA through host memory over that of GPUDirect: 0.36 (NVIDIA/nccl issue 1412), a half
(issue 465), 0.83 where the link to the CPU is fast (issue 1579). Traffic that leaves its rail is
taken for as slow."""

STAGED, OF_STAGED = -1.0, 0.3
"""Variant of a network at a fraction of its rate with all NICs, and its prior among them."""

TENSOR_TIMES = 1.5, 8.0
"""Exposed time of tensor parallelism over that of fused, overlapped collectives: judgement."""

CONVENTIONS: tuple[Convention, ...] = ("causal", "palm", "megatron", "6n")

SPARSE = 2.0
"""Peak with structured sparsity over the dense one, in NVIDIA's datasheets."""

POINTS = 24
"""Points of a grid."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Values of a parameter with their prior weights, which add up to 1."""

    values: Array
    weights: Array
    variant: Array
    """Kind of each value, where there are several."""


def grid(values: Array, weights: Array | None = None, variant: Array | None = None) -> Grid:
    """Return a grid; flat, and of one kind, where nothing is said."""
    chosen = np.ones_like(values) if weights is None else weights
    kinds = np.zeros_like(values) if variant is None else variant
    total = chosen.sum() if len(chosen) else 1.0
    return Grid(values=values, weights=chosen / total, variant=kinds)


NONE = grid(np.zeros(0))
ONE = grid(np.ones(1))
"""Grids of a cause that cannot be here, and of one without a parameter."""


def logarithmic(low: float, high: float, points: int = POINTS) -> Grid:
    """Return a grid that is flat in the logarithm."""
    return grid(np.geomspace(low, high, points))


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One named cause."""

    key: str
    label: str
    """In tables and sentences."""
    group: str
    """Key in `GROUPS`: causes that look alike, and are mended in one place."""
    prior: float
    """Probability among the causes of the list, up to a factor."""
    grid: Callable[[Estimate], Grid]
    """Values of its parameter; none where it cannot be."""
    check: str
    """Command or test that decides, and the number it shows."""
    mend: str
    """What to change."""
    columns: Callable[[Estimate, Array, Array], Columns] | None = None
    """Columns of a step that it changes."""
    terms: Callable[[Rows, Array], None] | None = None
    """Arithmetic on the terms, after the columns."""
    flops: bool = False
    """Whether it changes an MFU only, which is FLOPs over a peak."""
    words: Callable[[float, float], str] | None = None
    """A value (and its variant) as text; None without a parameter."""
    healthy: Callable[[Estimate], str] | None = None
    """The healthy value as text."""
    shows: Callable[[Estimate, float, float], str] | None = None
    """The number that decides, for a value and its variant."""


GROUPS = {
    "network": "the network between nodes",
    "links": "links inside a node",
    "overlap": "process groups and overlap",
    "software": "software of the step",
    "hardware": "slow GPUs or nodes",
    "input": "data and batch",
    "counting": "how it was counted",
}
"""Groups of causes by key, with labels."""


def _crosses(e: Estimate) -> bool:
    return e.cluster.nodes > 1


def _tcp(e: Estimate) -> Grid:
    if not _crosses(e) or e.cluster.accelerator.kind != "gpu" or e.cluster.fabric.name == "tcp":
        return NONE
    lines = np.array(TCP_LINE_RATES) * 1e9 / 8.0 * TCP_PAYLOAD
    reach = np.exp(2.0 * TCP_SPREAD)
    values = np.geomspace(lines[0] / reach, lines[-1] * reach, POINTS)
    away = np.log(values[:, None] / lines) / TCP_SPREAD
    return grid(values, np.exp(-0.5 * away**2).sum(axis=1))


def _nics(e: Estimate) -> Grid:
    if not _crosses(e) or e.cluster.accelerator.kind != "gpu":
        return NONE
    nics = min(e.cluster.scale_up_domain, 8)
    used = {8: (0.5, 0.2, 0.3), 4: (0.6, 0.4), 2: (1.0,)}.get(nics, ())
    if not used:
        return NONE
    fractions = np.array([2.0**k / nics for k in range(len(used))])
    spread = np.array([1.0 / 1.1, 1.0, 1.1])
    values = (fractions[:, None] * spread).ravel()
    weights = (np.array(used)[:, None] * np.array([0.25, 0.5, 0.25])).ravel()
    staged = np.geomspace(*WITHOUT_GPUDIRECT, POINTS // 3)
    return grid(
        np.concatenate([values, staged]),
        np.concatenate(
            [(1.0 - OF_STAGED) * weights, np.full(len(staged), OF_STAGED / len(staged))]
        ),
        np.concatenate([np.repeat(fractions, 3), np.full(len(staged), STAGED)]),
    )


def _pcie(e: Estimate) -> Grid:
    inside = min(e.cluster.scale_up_domain, e.cluster.accelerators)
    if inside < 2 or e.cluster.accelerator.kind != "gpu" or value_of(e, "scale_up") < PCIE[1]:
        return NONE
    return logarithmic(*PCIE)


def _rank_order(e: Estimate) -> Grid:
    spread = e.strategy.tp * e.strategy.cp > 1 and _crosses(e)
    return ONE if spread else NONE


def _overlap(e: Estimate) -> Grid:
    return ONE if e.strategy.data_parallel > 1 and value_of(e, "overlap_dp") else NONE


def _eager(e: Estimate) -> Grid:
    return grid(np.linspace(0.7, 1.4, 8)) if e.stack.compiled else NONE


def _unfused(e: Estimate) -> Grid:
    return NONE if value_of(e, "unfused_attention") else ONE


def _recompute(e: Estimate) -> Grid:
    return NONE if value_of(e, "recompute_blocks") >= 1.0 else ONE


def _wide(e: Estimate) -> Grid:
    del e
    return grid(np.ones(2), variant=np.array([changes.TF32, changes.FP32]))


def _throttled(e: Estimate) -> Grid:
    del e
    return grid(np.linspace(0.35, 0.95, POINTS))


def _slow_node(e: Estimate) -> Grid:
    if not _crosses(e):
        return NONE
    values = np.geomspace(1.06, 3.0, POINTS // 2)
    # Variant 1: the slow node is not among those of the smaller runs.
    return grid(np.tile(values, 2), variant=np.repeat([0.0, 1.0], len(values)))


def _stall(e: Estimate) -> Grid:
    return logarithmic(0.05 * e.step_seconds, 3.0 * e.step_seconds)


def _launches(e: Estimate) -> Grid:
    del e
    return logarithmic(2.0, 12.0, POINTS // 2)


def _padding(e: Estimate) -> Grid:
    del e
    return grid(np.linspace(0.3, 0.95, POINTS))


def _each_step(e: Estimate) -> Grid:
    split = e.strategy
    once = e.num_microbatches > 1 and split.data_parallel > 1
    if split.fully_sharded and value_of(e, "reduce_every_micro_step"):
        once = False
    return ONE if once else NONE


def _fewer(e: Estimate) -> Grid:
    n = e.num_microbatches
    found = [float(k) for k in (2, 4, 8, 16, 32) if n % k == 0]
    return grid(np.array(found)) if found else NONE


def _counting(e: Estimate) -> Grid:
    flops = {name: e.model.training_flops(e.workload.seq_len, name) for name in CONVENTIONS}
    fewer = [flops[name] / flops[e.convention] for name in CONVENTIONS]
    values = [1.0 / SPARSE, *(ratio for ratio in fewer if ratio < 1.0 - COUNTS_FROM)]
    weights = np.array([2.0, *[1.0] * (len(values) - 1)])
    return grid(np.array(values), weights)


def _eager_tp(e: Estimate) -> Grid:
    eager = e.strategy.tp > 1 and family_of(e.stack) == "pytorch"
    return logarithmic(*TENSOR_TIMES, POINTS // 2) if eager else NONE


def _per_node(value: float, variant: float) -> str:
    del variant
    return f"{format_rate(value)} per node"


def _of_nics(value: float, variant: float) -> str:
    if variant == STAGED:
        return f"{_of_rate(value, 0.0)} (no GPUDirect, other rails)"
    used = Fraction(variant).limit_denominator(8)
    return f"{used.numerator} of every {used.denominator} NICs"


def _seconds(value: float, variant: float) -> str:
    del variant
    return f"{format_seconds(value)} per step"


def _times(value: float, variant: float) -> str:
    del variant
    return f"{grouped(value, 2)} times"


def _of_rate(value: float, variant: float) -> str:
    del variant
    return f"{format_percent(value, decimals=0)} of the usual rate"


def _nics_show(e: Estimate, value: float, variant: float) -> str:
    return _nccl_shows(e, (value if variant == STAGED else variant) * node_rate(e), 0.0)


def _nccl_shows(e: Estimate, value: float, variant: float) -> str:
    del variant
    rate = value
    return (
        f"nccl-tests between two nodes shows about {format_rate(rate)}, "
        f"healthy is {format_rate(node_rate(e))}"
    )


def _step_shows(e: Estimate, value: float, variant: float) -> str:
    del value, variant
    return f"the step then takes {format_seconds(e.step_seconds)}"


def _inside_shows(e: Estimate, value: float, variant: float) -> str:
    del variant
    usual = format_rate(value_of(e, "scale_up"))
    return f"nccl-tests inside a node shows about {format_rate(value)}, healthy is {usual} or more"


_TABLE = (
    Cause(
        key="tcp", label="NCCL over TCP sockets instead of RDMA", group="network", prior=0.25,
        grid=_tcp, columns=changes.sockets, words=_per_node,
        healthy=lambda e: format_rate(node_rate(e)), shows=_nccl_shows,
        check="NCCL_DEBUG=INFO prints NET/Socket instead of NET/IB or the vendor's plugin",
        mend="load the RDMA plugin of the network (NCCL_NET, NCCL_IB_HCA) and GPUDirect",
    ),
    Cause(
        key="nics", label="a part of the NICs in use, or no GPUDirect", group="network",
        prior=0.18, grid=_nics, columns=changes.fewer_nics, words=_of_nics,
        healthy=lambda e: format_rate(node_rate(e)), shows=_nics_show,
        check="NCCL_DEBUG=INFO lists the NICs under NET/IB, one per GPU, each with GDRDMA and on "
        "the rail of its GPU",
        mend="name all NICs in NCCL_IB_HCA, pass them into the container, load nvidia-peermem",
    ),
    Cause(
        key="pcie", label="PCIe instead of NVLink inside a node", group="links", prior=0.06,
        grid=_pcie, columns=changes.pcie, words=lambda value, _: f"{format_rate(value)} per GPU",
        healthy=lambda e: format_rate(value_of(e, "scale_up")), shows=_inside_shows,
        check="nvidia-smi topo -m shows NV# between all GPUs of a node, not PHB, PIX or SYS",
        mend="start the fabric manager; leave NCCL_P2P_DISABLE unset",
    ),
    Cause(
        key="rank_order", label="tensor parallelism spread over nodes",
        group="overlap", prior=0.02, grid=_rank_order, columns=changes.spread_groups,
        terms=changes.only_tensor_groups,
        check="print the ranks of a tensor-parallel group: they must be neighbors on one node",
        mend="make tensor parallelism the innermost axis of the mesh",
    ),
    Cause(
        key="overlap", label="no overlap of data-parallel communication",
        group="overlap", prior=0.05, grid=_overlap, columns=changes.no_overlap,
        check="a profile shows collectives without kernels beside them",
        mend="turn on prefetch (FSDP) or overlap of reductions and all-gathers",
    ),
    Cause(
        key="eager", label="eager code, not compiled or fused", group="software", prior=0.06,
        grid=_eager, columns=changes.eager, words=lambda value, _: f"{value:.1f} times the usual",
        check="compile every block", shows=_step_shows,
        mend="torch.compile per block, or fused kernels",
    ),
    Cause(
        key="unfused", label="attention without a fused kernel", group="software", prior=0.04,
        grid=_unfused, columns=changes.unfused_attention,
        check="a profile names flash or cudnn kernels; softmax kernels mean unfused",
        mend="select FlashAttention or the cuDNN backend",
    ),
    Cause(
        key="recompute", label="full recompute is on", group="software", prior=0.05,
        grid=_recompute, columns=changes.full_recompute,
        check="gradient_checkpointing or recompute_granularity in the printed configuration",
        mend="recompute less, if memory allows",
    ),
    Cause(
        key="wide", label="32-bit compute", group="software", prior=0.04, grid=_wide,
        columns=changes.wide, words=lambda _, kind: "TF32" if kind == changes.TF32 else "FP32",
        healthy=lambda e: e.workload.precision,
        check="a profile names GEMM kernels with bf16, not s884tf32 or sgemm; dtype of the weights",
        mend="set mixed precision to bf16 (param_dtype)",
    ),
    Cause(
        key="launches", label="a slow host launches kernels late", group="software", prior=0.04,
        grid=_launches, columns=changes.launches, words=_times,
        check="a profile shows gaps between kernels; py-spy shows what the host does",
        mend="bind processes to cores, remove synchronization, use CUDA graphs",
    ),
    Cause(
        key="throttled", label="throttled GPUs", group="hardware", prior=0.06, grid=_throttled,
        columns=changes.slower_clock, words=_of_rate,
        check="nvidia-smi -q -d PERFORMANCE,CLOCK under load on all nodes",
        shows=lambda e, value, _: f"a matmul runs at {_of_rate(value, 0.0)}",
        mend="raise the power cap, mend the cooling",
    ),
    Cause(
        key="slow_node", label="one slow node", group="hardware", prior=0.05, grid=_slow_node,
        columns=changes.slow_node, terms=changes.wait_for_slow_node,
        words=lambda value, _: f"{value:.2f} times slower",
        check="a matmul on all GPUs, or profiles of all ranks: one node waits least",
        shows=lambda e, value, _: f"its matmul takes {value:.2f} times as long",
        mend="exclude the node",
    ),
    Cause(
        key="stall", label="waiting for data", group="input", prior=0.06, grid=_stall,
        terms=changes.wait_for_data, words=_seconds,
        check="run with synthetic data", shows=_step_shows,
        mend="more loader workers, prefetch, local or packed data",
    ),
    Cause(
        key="padding", label="padding, or stalls of checkpoints and evaluation", group="input",
        prior=0.05, grid=_padding, terms=changes.useful_tokens,
        words=lambda value, _: f"{format_percent(value, decimals=0)} useful tokens or time",
        check="count the tokens with labels in one batch, over batch x sequence length; compare "
        "the median step with the mean",
        mend="pack sequences, save checkpoints asynchronously",
    ),
    Cause(
        key="counting", label="an MFU counted otherwise than stated", group="counting",
        prior=0.06, grid=_counting, terms=changes.useful_tokens, flops=True,
        words=lambda value, _: f"{1.0 / value:.2f} times the peak or fewer FLOPs",
        check="read the peak in the formula of the MFU: NVIDIA's datasheets print twice the dense "
        "one, with sparsity; state the FLOPs with --convention",
        mend="count over the dense peak",
    ),
    Cause(
        key="eager_tp", label="slow tensor parallelism, eager or not fused", group="software",
        prior=0.03, grid=_eager_tp, terms=changes.longer_tensor_groups,
        words=lambda value, _: f"{value:.1f} times as long",
        check="a profile shows gaps and small collectives of the tensor-parallel group",
        mend="compile the blocks, async tensor parallelism, or a smaller degree",
    ),
    Cause(
        key="every_step", label="gradients reduced in every micro-batch", group="overlap",
        prior=0.03, grid=_each_step, columns=changes.every_micro_step,
        terms=changes.reduce_each_time,
        check="a profile shows a reduction per micro-batch",
        mend="no_sync() or set_requires_gradient_sync(False) but for the last micro-batch",
    ),
    Cause(
        key="fewer", label="fewer micro-batches per step than stated", group="input", prior=0.04,
        grid=_fewer, columns=changes.fewer_micro_batches, terms=changes.fewer_tokens,
        words=lambda value, _: f"{value:g} times fewer",
        check="print the global batch and the gradient accumulation steps",
        mend="raise the global batch",
    ),
)  # fmt: skip

CAUSES: dict[str, Cause] = {cause.key: cause for cause in _TABLE}
"""All causes by key."""
