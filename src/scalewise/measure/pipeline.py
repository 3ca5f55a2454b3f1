"""Pipeline parallelism: the stages of a rank, and the schedule of micro-batches.

    stages_of(rank=1, pp=4, chunks=2, schedule="zbv")      # [1, 6]: ZB-V goes down and up again
    pipeline = Pipeline(job, decoders, mesh["pp"], device)
    loss = pipeline(tokens, targets)

Schedules are those of torch.distributed.pipelining; gradients are averaged over micro-batches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from scalewise.measure.decoder import loss_of
from scalewise.records.job import TrainJob
from scalewise.strategy import Schedule

SCHEDULES: dict[Schedule, Any] = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zbh1": schedules.ScheduleInterleavedZeroBubble,
    "zbv": schedules.ScheduleZBVZeroBubble,
}

ONE_STAGE = ("gpipe", "1f1b")
"""Schedules that take a single stage instead of a list."""


def stages_of(rank: int, *, pp: int, chunks: int, schedule: Schedule) -> list[int]:
    """Stages that a pipeline rank holds, out of pp x chunks."""
    if schedule == "zbv":
        return [rank, 2 * pp - 1 - rank]
    return [rank + pp * chunk for chunk in range(chunks)]


class Pipeline:
    """Forward and backward of one optimizer step through this rank's stages."""

    def __init__(
        self, job: TrainJob, decoders: dict[int, nn.Module], mesh: Any, device: torch.device
    ) -> None:
        total = job.strategy.pp * job.chunks
        group = mesh.get_group()
        stages = [
            PipelineStage(decoder, index, total, device, group=group)
            for index, decoder in decoders.items()
        ]
        kind = job.strategy.schedule
        self.holds_first = 0 in decoders
        self.holds_last = total - 1 in decoders
        self.schedule = SCHEDULES[kind](
            stages[0] if kind in ONE_STAGE else stages,
            n_microbatches=job.num_microbatches,
            loss_fn=loss_of,
        )

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Run all micro-batches.

        Args:
            inputs: Tokens of this data-parallel rank, all micro-batches; used by the first stage.
            targets: The next tokens; used by the last stage.

        Returns:
            The mean loss where the last stage is, else None.
        """
        given = (inputs,) if self.holds_first else ()
        losses: list[Tensor] = []
        wanted = {"target": targets, "losses": losses} if self.holds_last else {}
        self.schedule.step(*given, **wanted, return_outputs=False)
        if not self.holds_last:
            return None
        return torch.stack([plain_loss(loss) for loss in losses]).mean()


def plain_loss(loss: Tensor) -> Tensor:
    """The plain value of a loss that every tensor-parallel rank knows."""
    from torch.distributed.tensor import DTensor

    loss = loss.detach()
    return loss.to_local() if isinstance(loss, DTensor) else loss
