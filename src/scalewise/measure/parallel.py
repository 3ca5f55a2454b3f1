"""Model construction for a job: the order in which parallelization techniques are applied.

    trainer = build(job, device)
    loss = trainer.step(tokens, targets)        # forward, backward, optimizer; None without a loss

Blocks are built one at a time, so that no rank ever holds the whole model: draw the weights, split
them (expert and tensor parallel), mark recompute, compile, shard (data parallel). Pipelines wrap
the finished stages. Tensor-parallel ranks are innermost, as the costs of `Strategy` assume.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from scalewise.measure.adapters import add_adapters, freeze
from scalewise.measure.check import stage_bounds
from scalewise.measure.data_parallel import Sharder, reducing
from scalewise.measure.decoder import Decoder, MoeMlp, loss_of, materialize
from scalewise.measure.expert_parallel import (
    expert_mesh_of,
    scale_expert_grads,
    split_experts,
)
from scalewise.measure.optimizers import optimizer_of
from scalewise.measure.pipeline import Pipeline, plain_loss, stages_of
from scalewise.measure.recompute import with_recompute
from scalewise.measure.tensor_parallel import split_block, split_edges
from scalewise.records.job import TrainJob
from scalewise.tuning import parse_tuning


@dataclass(kw_only=True)
class Trainer:
    """A model on its ranks, ready to take steps."""

    job: TrainJob
    modules: list[nn.Module]
    """What this rank holds: one model, or its pipeline stages."""
    optimizer: Any
    pipeline: Pipeline | None
    mesh: Any
    expert_mesh: Any
    """Of the experts; None where they are spread like dense weights."""
    device: torch.device
    data_rank: int
    """Place among the ranks that read different data."""
    autocast: bool
    """Whether bf16 comes from autocast, because no wrapper keeps master weights."""

    def own_parameters(self, *, trained: bool = False) -> int:
        """Weights that this rank keeps between steps: all, or those that it updates."""
        weights = [p for module in self.modules for p in module.parameters()]
        return sum(
            (p.to_local() if isinstance(p, DTensor) else p).numel()
            for p in weights
            if p.requires_grad or not trained
        )

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Take one optimizer step.

        Args:
            inputs: Tokens of this rank, (micro-batch x micro-batches, sequence).
            targets: The next tokens.

        Returns:
            The mean loss over this rank's tokens; None on ranks without the last stage.
        """
        loss = self.gradients(inputs, targets)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Compute the gradients of one step, as its optimizer sees them; see `step`."""
        loss = self._forward_backward(inputs, targets)
        all_reduce_partial_grads(self.modules)
        if self.expert_mesh is not None:
            scale_expert_grads(self.modules, self.job, self.expert_mesh)
        return loss

    def _forward_backward(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Forward and backward of all micro-batches."""
        with self._contexts():
            if self.pipeline is not None:
                return self.pipeline(inputs, targets)
            (module,) = self.modules
            count = self.job.num_microbatches
            total: Tensor | None = None
            pieces = zip(inputs.chunk(count), targets.chunk(count), strict=True)
            for i, (tokens, wanted) in enumerate(pieces):
                if self.job.strategy.cp > 1:
                    # They are cut in place, which views of one tensor do not bear.
                    tokens, wanted = tokens.clone(), wanted.clone()
                with reducing(module, last=i == count - 1), self._split_context(tokens, wanted):
                    loss = loss_of(module(tokens), wanted) / count
                    loss.backward()
                total = plain_loss(loss) if total is None else total + plain_loss(loss)
            return total

    def _contexts(self) -> ExitStack:
        stack = ExitStack()
        if self.job.strategy.tp > 1:
            stack.enter_context(loss_parallel())
        if self.autocast:
            stack.enter_context(torch.autocast(self.device.type, dtype=torch.bfloat16))
        return stack

    @contextmanager
    def _split_context(self, tokens: Tensor, targets: Tensor) -> Iterator[None]:
        """Split one micro-batch over the context-parallel ranks (GPUs only)."""
        if self.job.strategy.cp == 1:
            yield
            return
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method

        set_rotate_method("alltoall" if self.job.strategy.cp_method == "ring" else "allgather")
        decoder = next(m for m in self.modules[0].modules() if isinstance(m, Decoder))
        buffers = [tokens, targets, *decoder.angles(self.device)]
        with context_parallel(
            self.mesh["cp"],
            buffers=buffers,
            buffer_seq_dims=[1, 1, 0, 0],
            no_restore_buffers={tokens, targets},
        ):
            yield


def build(job: TrainJob, device: torch.device) -> Trainer:
    """Spread a job's model over the ranks of the process group.

    Args:
        job: Already checked; its ranks are those of the process group.
        device: This rank's.
    """
    mesh = mesh_of(job, device)
    s = job.strategy
    expert_mesh = expert_mesh_of(job, device)
    sharder = Sharder(job, mesh, device, expert_mesh)
    total = s.pp * job.chunks
    bounds = stage_bounds(job.model.layers, total, s.first_stage_layers, s.last_stage_layers)
    pp_rank = mesh["pp"].get_local_rank()
    chosen = [0]
    if s.pp > 1:
        chosen = stages_of(pp_rank, pp=s.pp, chunks=job.chunks, schedule=s.schedule)
    stages = {
        index: build_stage(
            job, mesh, expert_mesh, device, sharder, bounds[index],
            first=index == 0, last=index == total - 1,
        )
        for index in chosen
    }  # fmt: skip
    data_rank = mesh.get_local_rank("dp_replicate") * s.dp_shard + mesh.get_local_rank("dp_shard")
    modules = list(stages.values())
    return Trainer(
        job=job,
        modules=modules,
        optimizer=optimizer_of(job, modules),
        pipeline=Pipeline(job, stages, mesh["pp"], device) if s.pp > 1 else None,
        mesh=mesh,
        expert_mesh=expert_mesh,
        device=device,
        data_rank=data_rank,
        autocast=job.precision == "bf16" and sharder.kind in ("none", "ddp"),
    )


def mesh_of(job: TrainJob, device: torch.device) -> Any:
    """The ranks as a grid, that of this rank's copy of the job."""
    s = job.strategy
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    mesh = init_device_mesh(
        device.type,
        (dist.get_world_size() // job.ranks, s.pp, s.dp_replicate, s.dp_shard, s.cp, s.tp),
        mesh_dim_names=("copies", *names),
    )
    return mesh[names]


def build_stage(
    job: TrainJob,
    mesh: Any,
    expert_mesh: Any,
    device: torch.device,
    sharder: Sharder,
    layers: range,
    *,
    first: bool,
    last: bool,
) -> nn.Module:
    """Build the layers of one stage, with embedding and head where they belong."""
    s = job.strategy
    with torch.device("meta"):
        decoder = Decoder(job.model, seq_len=job.seq_len, layers=layers, first=first, last=last)
        tuning = parse_tuning(job.tuning)
        if tuning.frozen:
            freeze(decoder, dtype=torch.bfloat16 if job.precision == "bf16" else torch.float32)
            for block in decoder.layers.values():
                add_adapters(block, tuning)
    for index, block in list(decoder.layers.items()):
        materialize(block, f"layers.{index}.", device=device, seed=job.seed)
        if isinstance(block.mlp, MoeMlp):
            block.mlp.balanced = job.routing == "balanced"
            if expert_mesh is not None:
                split_experts(block.mlp, expert_mesh)
        if s.tp > 1:
            split_block(block, mesh["tp"], sequence_parallel=s.sequence_parallel)
        block = with_recompute(block, s.recompute, layer=int(index))
        if job.compile:
            block.compile()
        decoder.layers[index] = block
        sharder.block(block)
    for name in ("embedding", "positions", "embedding_norm", "norm", "head"):
        if (edge := getattr(decoder, name)) is not None:
            materialize(edge, f"{name}.", device=device, seed=job.seed)
    decoder.tie()
    if s.tp > 1:
        split_edges(decoder, mesh["tp"], sequence_parallel=s.sequence_parallel)
    sharder.root(decoder)
    return sharder.wrap(decoder)


def all_reduce_partial_grads(modules: list[nn.Module]) -> None:
    """Sum gradients that tensor-parallel ranks hold in parts: norms under sequence parallelism.

    An optimizer would do so at every use of such a gradient, three times for AdamW.
    """
    for module in modules:
        for parameter in module.parameters():
            grad = parameter.grad
            if isinstance(grad, DTensor) and any(p.is_partial() for p in grad.placements):
                parameter.grad = grad.redistribute(placements=parameter.placements)
