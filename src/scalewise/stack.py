"""Software stack of a run: constants of frameworks, kernels and overlap.

    stack = load_stack("megatron")
    stack_for("nanotron")            # by framework name; unknown ones get the nearest family

A chip has constants of its own (`Calibration` in chip.py). Everything that differs between
frameworks on the same chip is here, as a few physical parameters. `scalewise calibrate` writes the
files under `catalog/stacks`, with what they were fitted on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from scalewise.errors import InputError
from scalewise.experts import CudaGraphs, Dispatcher
from scalewise.loss import Loss

AttentionKernel = Literal["flash1", "flash2", "cudnn", "splash", "splash-512", "unfused"]


MAX_CONSTANT = 1e15
"""Limit of a constant: far beyond the largest, bytes of buffers, and no product overflows."""


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named constants of a software stack. Times in seconds, sizes in bytes."""

    name: str
    """Name."""

    family: str
    """What its code descends from: "pytorch" (fully sharded), "megatron" (tensor and pipeline
    parallel), "xla", "neuron". Software of one family resembles itself more than others."""

    frameworks: tuple[str, ...] = ()
    """Framework names (as in the runs table) that this stack covers."""

    since: str = ""
    """First software date it covers, YYYY-MM; empty for any."""

    until: str = ""
    """First software date it no longer covers, YYYY-MM; empty for any."""

    constants_from: str | None = None
    """Another stack whose fitted constants it shares: the same code, another setting."""

    base: str | None = None
    """Another stack with which it shares single constants."""

    shares: tuple[str, ...] = ()
    """Those constants: the file of `base` has the numbers, and runs of both determine them."""

    devices: Literal["gpu", "tpu", "other", "any"] = "any"
    """Kind of accelerator it runs on; XLA on a TPU is not XLA on a GPU."""

    vendor: str = ""
    """Vendor of the accelerators it runs on; empty for any."""

    compiled: bool = False
    """Whether kernels are fused and launched from a graph by default."""

    attention_kernel: AttentionKernel = "flash2"
    """Generation of the attention kernel, a key into the chip's table."""

    partition: Literal["even", "flops"] = "even"
    """Split of layers over pipeline stages: even, or in order by FLOPs."""

    schedules: tuple[Literal["gpipe", "1f1b", "interleaved", "zbh1", "zbv"], ...] = (
        "gpipe", "1f1b", "interleaved", "zbh1", "zbv",
    )  # fmt: skip
    """Pipeline schedules that the software has; the default of a search."""

    keeps_sp_all_gather: bool = False
    """Whether inputs all-gathered by sequence parallelism stay in memory until backward."""

    recompute_skips_last: bool = True
    """Whether full recompute stops before the last GEMM of the block, whose output backward does
    not need (as in PyTorch's non-reentrant checkpoint)."""

    selective: Literal["attention", "op", "policy"] = "attention"
    """What its selective recompute repeats: the attention core (Megatron-LM), every other matmul
    (torchtitan), or `selective_share` of a layer (XLA's policies)."""

    keeps_quantized: bool = True
    """Whether GEMM inputs are kept for backward as quantized (Transformer Engine), not in 16 bits
    (torchao saves them in high precision and casts again)."""

    reduce_every_micro_step: bool = True
    """FSDP: reduce-scatter in every micro-batch (True), or once after gradient accumulation."""

    zero2_every_micro_step: bool = False
    """ZeRO-2: reduce-scatter in every micro-batch, or once after gradient accumulation (False)."""

    ddp_pipeline_reduces_each: bool = False
    """Whether DDP all-reduces gradients after every micro-batch in a pipeline, and once per step
    without one. True of nanotron by its runs, not by its code: 21 runs with pipeline, DDP and
    accumulation are predicted 21% too fast if it does not and 4% if it does (100 without a
    pipeline: 3% as they are, 8% with it)."""

    pipeline_gathers_once: bool = False
    """FSDP in a pipeline: parameters of a stage are all-gathered once per step and its gradients
    reduced once, as torch.distributed.pipelining does; both stay unsharded in between."""

    gathers_ends_again: bool = False
    """FSDP: whether the second all-gathers of the embedding and of the last layer are priced, which
    PyTorch issues for backward. On GPUs they overlap the backward of the head and of the first
    layer. Gloo lets little overlap."""

    balanced_ring: bool = True
    """Whether ring context parallelism gives every rank an equal part of the causal triangle."""

    frees_gradients: bool = False
    """Whether gradients exist from the backward of their layer to the update alone, as
    zero_grad(set_to_none=True) leaves them, PyTorch's default since 2.0; frameworks with gradient
    buffers (Megatron-LM, nanotron, DDP's buckets) keep them all the time."""

    limits_all_gathers: bool = True
    """Whether FSDP waits with an all-gather until an earlier one is freed (limit_all_gathers,
    default since PyTorch 2.1, pytorch/pytorch#104900). Without it the host runs ahead, and blocks
    of all layers are allocated: 38.6 instead of 7.2 GB in pytorch/pytorch#98354."""

    upcast_scores: bool = False
    """Whether unfused attention computes its softmax in fp32 and keeps it and a 16-bit copy, as
    `LlamaAttention` of transformers does; else scores, probabilities and a mask of dropout."""

    composed_kernels: bool = False
    """Whether RMS norms, rotary embedding and gated activations run as one kernel per operation,
    as in eager PyTorch, where layer norm and GELU are single kernels."""

    experts: str = "megatron"
    """Constants of its expert layers: name in the catalog."""

    dispatcher: Dispatcher = "nccl"
    """What moves tokens to their experts."""

    cuda_graphs: CudaGraphs = "none"
    """Part of a step with experts that replays from CUDA graphs."""

    overlaps_all_to_all: bool = False
    """Whether the all-to-all of one micro-batch overlaps the compute of another."""

    fused_experts: bool = False
    """Whether experts run in one fused kernel: permutation, activation and casts included."""

    loss: Loss = "full"
    """How it computes the loss by default."""

    host_speed: float = 1.0
    """Speed of the host that launches expert layers, relative to that of their constants."""

    fits: tuple[str, ...] = ()
    """Optional constants that a calibration fits for this stack."""

    declares: tuple[str, ...] = ()
    """Constants that are properties of the code, read from it or its documentation: a calibration
    leaves them as they are."""

    memory_traffic: float
    """Bytes moved by norms, activations, rotary and casts, relative to the minimum."""

    host_layer_seconds: float
    """Host time to launch forward and backward of one layer, seconds."""

    attention_forward: float
    """Forward attention rate relative to the kernel table of the chip."""

    attention_backward: float
    """Backward attention rate relative to the kernel table of the chip."""

    gemm: float = 1.0
    """GEMM rate relative to the sustained rate of the chip: library, layouts, fused epilogues."""

    contention: float
    """Slow-down of compute per second of overlapped communication."""

    tp_overlap: float
    """Fraction of tensor-parallel communication overlapped with compute."""

    dp_overlap: float
    """Fraction of DDP's gradient all-reduce that can overlap the last backward."""

    shard_overlap: float
    """Fraction of ZeRO-1's reduce-scatter that can overlap the last backward."""

    update_gather_overlap: float = 0.0
    """Fraction of ZeRO-1/2's all-gather of updated parameters that can overlap the next forward."""

    gradient_bytes: float
    """Bytes moved per unsharded parameter and micro-batch to flatten, cast and add gradients."""

    logit_bytes: float
    """Bytes moved per logit by loss and softmax, forward and backward."""

    optimizer_bytes: float
    """Bytes moved per local parameter by the optimizer step."""

    overhead_seconds: float
    """Constant per step: loader, clipping, logging."""

    selective_share: float = 0.0
    """Fraction of a layer's forward that a selective policy repeats (attention is always repeated).
    """

    reduce_bytes: float = 4.0
    """Bytes per communicated gradient element."""

    bucket_bytes: float = 25e6
    """Size of one gradient bucket, bytes; one collective per bucket."""

    bucket_bytes_per_rank: float = 0.0
    """Growth of the bucket with data-parallel ranks, bytes, for frameworks that have it."""

    cast_bytes: float = 4.0
    """Bytes moved per GEMM input element to quantize it below 16 bits."""

    scan_bytes: float = 0.0
    """Those of them that find the largest value of a tensor for its scale: 2 where scales are of
    the tensor itself (torchao), 0 where they are of the step before (delayed scaling)."""

    pipeline_host_seconds: float = 0.0
    """Host time per layer that pipelines over several domains add, times tp^1.25, seconds."""

    fsdp_host_seconds: float = 0.0
    """Time per layer and micro-batch that FSDP takes on a host that is the device itself (CPUs):
    hooks and dispatch, seconds."""

    fsdp_copy_bytes: float = 0.0
    """Bytes per unsharded parameter and micro-batch that FSDP copies into and out of its
    collectives there."""

    fsdp_step_seconds: float = 0.0
    """The same hooks for what no layer holds, seconds per step."""

    tp_host_seconds: float = 0.0
    """Time per layer and micro-batch that DTensor takes on such a host under tensor parallelism,
    seconds."""

    tp_step_seconds: float = 0.0
    """The same for what no layer holds, seconds per step."""

    cpu_update_rate: float = 0.0
    """Most bytes/s that the update of one rank moves on the CPUs, with the threads it is given; 0
    for what memory and cores of the host allow."""

    straggler: float
    """Fraction of the step lost per doubling of scale-up domains: slowest of N, and jitter."""

    gradient_memory: float = 4.0
    """Bytes kept per local gradient element, buffers included."""

    activation_factor: float = 1.0
    """Activation bytes kept, relative to the minimum that backward needs."""

    selective_memory: float = 0.5
    """Fraction of activation bytes that a selective policy keeps on the device; XLA's drop or
    offload most."""

    logit_memory: float = 8.0
    """Bytes kept per logit at the peak."""

    workspace_bytes: float = 1.2e9
    """Context, NCCL buffers, cuBLAS workspaces, bytes."""

    fragmentation: float = 0.03
    """Fraction of memory lost to fragmentation."""

    memory_interval: tuple[float, float] = (0.85, 1.15)
    """80% prediction interval of memory, as factors on the prediction."""

    runs: int = 0
    """Published runs behind its constants. Few leave them close to those of its family."""

    largest_run: int = 0
    """Accelerators of the largest run it was fitted on; above, the interval widens. 0: none."""

    stands_in: bool = False
    """Whether it stands for software that no run has shown, with the interval of unknown
    software."""

    own_runs: int = 0
    """Runs of the user's own that it was fitted on; they narrow the interval."""

    own_noise: float = 0.0
    """Standard deviation (log) of these runs around the fit."""

    fitted_on: str = "not fitted"
    """Runs it was fitted on: sources, rows, error."""

    undetermined: tuple[str, ...] = ()
    """Constants that the data did not determine: on a bound, or at their prior."""

    def owner(self, field: str) -> str:
        """Name of the stack whose runs determine a constant."""
        if self.base and field in self.shares:
            return self.base
        return self.constants_from or self.name

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, float) and not 0.0 <= value <= MAX_CONSTANT:
                raise InputError(
                    f"stack {self.name}: {field} = {value:g} must be between 0 and "
                    f"{MAX_CONSTANT:g}",
                    hint="run `scalewise calibrate` again, or edit the stack file",
                )


def load_stack(name: str) -> Stack:
    """Load a stack by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("stacks", name, Stack)


@lru_cache(maxsize=1024)
def stack_for(
    framework: str | None,
    *,
    date: str = "",
    device: str = "gpu",
    compiled: bool | None = None,
    fully_sharded: bool = False,
) -> Stack:
    """Return the stack of a framework, or the nearest one to a name that no stack covers.

    Args:
        framework: Name given by the user, or None.
        date: Software date, YYYY-MM or longer; empty takes the newest stack, or the last one.
        device: Kind of accelerator: "gpu", "tpu" or "other".
        compiled: Whether the run was compiled, if stated.
        fully_sharded: Whether it shards parameters: what unknown software is recognized by.

    Returns:
        A stack of the catalog with this framework, date and device, compiled or eager as stated
        where there are both; else the family that people use for such a strategy.
    """
    speaking = [
        stack
        for stack in _stacks()
        if (framework or "").lower() in stack.frameworks and stack.devices in (device, "any")
    ]
    if not speaking:
        return load_stack(nearest(device, compiled=compiled, fully_sharded=fully_sharded))
    dated = [stack for stack in speaking if _covers(stack, date)] or speaking[-1:]
    # Of an era before of any.
    dated.sort(key=lambda stack: not (stack.since or stack.until))
    alike = [stack for stack in dated if stack.compiled == bool(compiled)]
    return dated[0] if compiled is None or not alike else alike[0]


def nearest(device: str, *, compiled: bool | None, fully_sharded: bool) -> str:
    """Return the name of the stack that stands for software nobody has measured.

    Args:
        device: Kind of accelerator.
        compiled: Whether the code is compiled, if stated.
        fully_sharded: Whether parameters are sharded.
    """
    if device in USUAL:
        return USUAL[device]
    if fully_sharded:
        return "pytorch-compiled" if compiled else "pytorch"
    return "nanotron" if compiled is False else "megatron-lm"


USUAL = {"tpu": "maxtext-tpu", "other": "neuronx"}
"""Stacks assumed on devices that are no GPUs: the only ones with published runs."""


def _covers(stack: Stack, date: str) -> bool:
    """Whether a stack is of that date; without a date, whether it is current."""
    early = bool(stack.since and date and date < stack.since)
    return not early and not (stack.until and (not date or date >= stack.until))


def _stacks() -> list[Stack]:
    """Every stack of the catalog."""
    from scalewise.catalog import names

    return [load_stack(name) for name in names("stacks")]
