"""Data parallelism: DDP, ZeRO-1, FSDP2, HSDP, and replicas of sharded models.

    shard = Sharder(job, mesh, device)
    shard.block(block); shard.root(decoder)       # FSDP2 and replicas: module by module
    decoder = shard.wrap(decoder)                 # DDP: the whole model at once

Plain replicas use DDP. Replicas of tensor-parallel, expert-parallel or pipelined models use the
replicating variant of FSDP2, because DDP supports neither DTensors, nor split backward passes, nor
experts that other ranks replicate than dense weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

from scalewise.errors import InputError
from scalewise.measure.decoder import Decoder, MoeMlp
from scalewise.records.job import TrainJob

Kind = Literal["none", "ddp", "replicate", "fully_shard"]

ONE_BUCKET_MB = 1 << 20
"""Size of a DDP bucket that takes every gradient, so that none is reduced before backward ends."""


def kind_of(job: TrainJob) -> Kind:
    """Which of PyTorch's wrappers a job needs."""
    s = job.strategy
    split = s.ep * job.etp
    inner = s.tp > 1 or s.pp > 1 or split > 1
    if s.sharding == "zero3" and s.data_parallel * s.cp > 1:
        return "fully_shard"
    if s.data_parallel * s.cp > 1:
        return "replicate" if inner else "ddp"
    if job.model.moe is not None and s.tp > split:
        # Tensor-parallel ranks hold the same experts, but see different tokens.
        return "fully_shard" if s.sharding == "zero3" else "replicate"
    # A group of one: FSDP2 is then only what keeps master weights in fp32 and computes in bf16,
    # which autocast cannot do for DTensors and pipeline stages.
    return "fully_shard" if inner and job.precision == "bf16" else "none"


class Sharder:
    """Applies a job's data parallelism to the parts of a model, in the order they are built."""

    def __init__(self, job: TrainJob, mesh: Any, device: torch.device, experts: Any = None) -> None:
        self.job, self.device = job, device
        self.kind = kind_of(job)
        s = job.strategy
        reduce_dtype = torch.bfloat16 if s.reduce_precision == "bf16" else torch.float32
        self.policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if job.precision == "bf16" else None,
            reduce_dtype=reduce_dtype,
            # Activations are in the right precision already; rotary angles must stay in fp32.
            cast_forward_inputs=False,
        )
        self.mesh = self._mesh(mesh)
        self.expert_mesh = self._expert_mesh(experts)
        # A group of one has nothing to free, and split backwards would lose gradients by it.
        self.reshard_after_forward = s.reshard_after_forward and s.data_parallel * s.cp > 1

    def _mesh(self, mesh: Any) -> Any:
        """The ranks over which weights are sharded or replicated."""
        s = self.job.strategy
        if self.kind == "replicate":
            return mesh["dp_replicate"]
        if s.cp > 1:
            # Context-parallel ranks hold the same weights, so sharding spans them too.
            return mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
        return mesh["dp_replicate", "dp_shard"] if s.dp_replicate > 1 else mesh["dp_shard"]

    def _expert_mesh(self, mesh: Any) -> Any:
        """The same for experts; None where those are the same ranks."""
        if mesh is None or self.kind == "replicate":
            return mesh and mesh["edp_replicate"]
        hybrid = mesh["edp_replicate"].size() > 1
        return mesh["edp_replicate", "edp_shard"] if hybrid else mesh["edp_shard"]

    def block(self, block: Any) -> None:
        """Shard or replicate one layer."""
        reshard = self.reshard_after_forward
        if self.expert_mesh is not None and isinstance(block.mlp, MoeMlp):
            self._apply(block.mlp.experts, reshard_after_forward=reshard, mesh=self.expert_mesh)
        self._apply(block, reshard_after_forward=reshard)

    def root(self, decoder: Decoder) -> None:
        """Shard or replicate what no block holds: embedding, last norm, head."""
        if self.kind not in ("fully_shard", "replicate"):
            return
        if not decoder.model.tied:
            if decoder.embedding is not None:
                self._apply(decoder.embedding, reshard_after_forward=self.reshard_after_forward)
            if decoder.norm is not None:
                # Backward needs them at once, so freeing them would only cost a gather.
                self._apply([decoder.norm, decoder.head], reshard_after_forward=False)
        self._apply(decoder, reshard_after_forward=self.reshard_after_forward)
        if self.kind == "fully_shard":
            self._prefetch(decoder)

    def _apply(
        self, module: Any, *, reshard_after_forward: bool, mesh: DeviceMesh | None = None
    ) -> None:
        mesh = mesh or self.mesh
        if self.kind == "fully_shard":
            fully_shard(
                module,
                mesh=mesh,
                mp_policy=self.policy,
                reshard_after_forward=reshard_after_forward,
                shard_placement_fn=partial(sharded_dim, ranks=mesh.size(-1)),
            )
        elif self.kind == "replicate":
            replicate = _replicate()
            for each in module if isinstance(module, list) else [module]:
                replicate(each, mesh=mesh, mp_policy=self.policy)

    def _prefetch(self, decoder: Decoder) -> None:
        """Gather ahead as many blocks as the strategy says.

        On GPUs one block ahead is FSDP2's own habit (by streams). CPUs have no streams: there a
        gather overlaps only if it is asynchronous and asked for ahead of time.
        """
        s = self.job.strategy
        ahead = s.prefetch if s.overlap_dp else 0
        on_cpu = self.device.type == "cpu"
        if ahead == 0 or (ahead == 1 and not on_cpu) or self.job.ranks == 1:
            return
        if on_cpu and hasattr(decoder, "_set_unshard_async_op"):
            decoder._set_unshard_async_op(True)
        blocks: list[Any] = list(decoder.layers.values())
        for i, block in enumerate(blocks):
            if following := blocks[i + 1 : i + 1 + ahead]:
                block.set_modules_to_forward_prefetch(self._sharded_parts(following))
            if preceding := blocks[max(0, i - ahead) : i][::-1]:
                block.set_modules_to_backward_prefetch(self._sharded_parts(preceding))

    def _sharded_parts(self, blocks: list[Any]) -> list[Any]:
        """Blocks, each followed by its experts where those are sharded over other ranks."""
        if self.expert_mesh is None:
            return blocks
        return [
            part
            for block in blocks
            for part in (block, *([block.mlp.experts] if isinstance(block.mlp, MoeMlp) else []))
        ]

    def wrap(self, decoder: nn.Module) -> nn.Module:
        """Wrap the finished model in DDP over all ranks, if that is the job's kind."""
        if self.kind != "ddp":
            return decoder
        s = self.job.strategy
        wrapped = DistributedDataParallel(
            decoder,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            bucket_cap_mb=None if s.overlap_dp else ONE_BUCKET_MB,
            gradient_as_bucket_view=True,
        )
        if s.reduce_precision == "bf16":
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            wrapped.register_comm_hook(None, bf16_compress_hook)
        return wrapped


def sharded_dim(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """The dimension by which FSDP2 shards a parameter; None for its first.

    Stacked experts are sharded by their second if there are too few to give each rank the same:
    FSDP2 would pad them, to several times their size on many ranks.
    """
    uneven = parameter.dim() > 2 and parameter.shape[0] % ranks
    return Shard(1) if uneven and parameter.shape[1] % ranks == 0 else None


def _replicate() -> Any:
    """FSDP2's replicating twin, whose place in PyTorch is not settled yet."""
    try:
        from torch.distributed._composable.replicate_with_fsdp import replicate
    except ImportError as error:
        raise InputError(
            f"PyTorch {torch.__version__} cannot replicate tensor-parallel or pipelined models",
            hint="use fsdp or hsdp instead of ddp, or PyTorch 2.10 or newer",
        ) from error
    return replicate


@contextmanager
def reducing(module: nn.Module, *, last: bool) -> Iterator[None]:
    """Reduce gradients in this micro-batch's backward only if it is the last one."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
        yield
    elif isinstance(module, DistributedDataParallel) and not last:
        with module.no_sync():
            yield
    else:
        yield
