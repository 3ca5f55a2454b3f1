"""Software stack of a run: constants of frameworks, kernels and overlap.

    stack = load_stack("megatron")
    stack_for("nanotron")            # by framework name; unknown ones get a generic stack

A chip has constants of its own (`Calibration` in chip.py). Everything that differs between
frameworks on the same chip is here, as a few physical parameters. `scalewise calibrate` writes the
files under `catalog/stacks`, with what they were fitted on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from scalewise.errors import InputError


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named constants of a software stack. Times in seconds, sizes in bytes."""

    name: str
    """Name."""

    frameworks: tuple[str, ...] = ()
    """Framework names (as in the runs table) that this stack covers."""

    since: str = ""
    """First software date it covers, YYYY-MM; empty for any."""

    until: str = ""
    """First software date it no longer covers, YYYY-MM; empty for any."""

    constants_from: str | None = None
    """Another stack whose fitted constants it shares: the same code, another setting."""

    devices: Literal["gpu", "tpu", "other", "any"] = "any"
    """Kind of accelerator it runs on; XLA on a TPU is not XLA on a GPU."""

    compiled: bool = False
    """Whether kernels are fused and launched from a graph by default."""

    attention_kernel: Literal["flash1", "flash2", "cudnn", "splash", "unfused"] = "flash2"
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

    reduce_every_micro_step: bool = True
    """FSDP: reduce-scatter in every micro-batch (True), or once after gradient accumulation."""

    fits: tuple[str, ...] = ()
    """Optional constants that a calibration fits for this stack."""

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
    """Fraction of ZeRO-1/2's reduce-scatter and all-gather that can overlap compute."""

    gradient_bytes: float
    """Bytes moved per unsharded parameter and micro-batch to flatten, cast and add gradients."""

    logit_bytes: float
    """Bytes moved per logit by loss and softmax, forward and backward."""

    optimizer_bytes: float
    """Bytes moved per local parameter by the optimizer step."""

    overhead_seconds: float
    """Constant per step: loader, clipping, logging."""

    selective_share: float = 0.0
    """Fraction of forward GEMMs that selective recompute repeats (attention is always repeated)."""

    reduce_bytes: float = 4.0
    """Bytes per communicated gradient element."""

    bucket_bytes: float = 25e6
    """Size of one gradient bucket, bytes; one collective per bucket."""

    bucket_bytes_per_rank: float = 0.0
    """Growth of the bucket with data-parallel ranks, bytes, for frameworks that have it."""

    cast_bytes: float = 4.0
    """Bytes moved per GEMM input element to quantize it below 16 bits."""

    pipeline_host_seconds: float = 0.0
    """Host time per layer that pipelines over several domains add, times tp^1.25, seconds."""

    straggler: float
    """Fraction of the step lost per doubling of scale-up domains: slowest of N, and jitter."""

    gradient_memory: float = 4.0
    """Bytes kept per local gradient element, buffers included."""

    activation_factor: float = 1.0
    """Activation bytes kept, relative to the minimum that backward needs."""

    selective_memory: float = 1.0
    """Fraction of activation bytes that selective recompute keeps on the device (fused attention
    keeps no scores; XLA policies drop or offload most)."""

    logit_memory: float = 8.0
    """Bytes kept per logit at the peak."""

    workspace_bytes: float = 1.2e9
    """Context, NCCL buffers, cuBLAS workspaces, bytes."""

    fragmentation: float = 0.03
    """Fraction of memory lost to fragmentation."""

    memory_interval: tuple[float, float] = (0.85, 1.15)
    """80% prediction interval of memory, as factors on the prediction."""

    interval: tuple[float, float] = (0.8, 1.25)
    """80% prediction interval of tokens per second, as factors on the prediction."""

    largest_run: int = 0
    """Accelerators of the largest run it was fitted on; above, the interval widens. 0: none."""

    fitted_on: str = "not fitted"
    """Runs it was fitted on: sources, rows, error."""

    undetermined: tuple[str, ...] = ()
    """Constants that the data did not determine: on a bound, or at their prior."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, float) and not 0.0 <= value < float("inf"):
                raise InputError(
                    f"stack {self.name}: {field} = {value} must be finite and not negative",
                    hint="run `scalewise calibrate` again, or edit the stack file",
                )


def load_stack(name: str) -> Stack:
    """Load a stack by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("stacks", name, Stack)


@lru_cache(maxsize=1024)
def stack_for(
    framework: str | None, *, date: str = "", device: str = "gpu", compiled: bool | None = None
) -> Stack:
    """Return the stack of a framework.

    Args:
        framework: Name given by the user, or None.
        date: Software date, YYYY-MM or longer; empty takes the newest stack, or the last one.
        device: Kind of accelerator: "gpu", "tpu" or "other".
        compiled: Whether the run was compiled, if stated: selects one of the generic stacks.

    Returns:
        A stack of the catalog with this framework, date and device; else the generic eager or
        compiled one, whose interval is wider.
    """
    from scalewise.catalog import names

    wanted = (framework or "").lower()
    speaking = [
        stack
        for stack in map(load_stack, names("stacks"))
        if wanted in stack.frameworks and stack.devices in (device, "any")
    ]
    for stack in speaking:
        if (stack.since and date and date < stack.since) or (
            stack.until and (not date or date >= stack.until)
        ):
            continue
        return stack
    if speaking and not date:
        # No stack is that new: the last one of the framework.
        return speaking[-1]
    fused = compiled if compiled is not None else device != "gpu"
    return load_stack("generic-compiled" if fused else "generic-eager")
