"""Capture of a job of `scalewise measure train`: our own decoder and trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.pipelining import PipelineStage

from scalewise.errors import InputError
from scalewise.measure import pipeline
from scalewise.measure.expert_parallel import RowExchange
from scalewise.measure.parallel import build
from scalewise.program.capture.patches import replaced
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.capture.steps import WARMUP, Steps
from scalewise.program.capture.tracer import Tracer, pretend_world
from scalewise.records.job import TrainJob


def run_decoder(spec: CaptureSpec) -> tuple[Tracer, Steps]:
    """Build the job's trainer on a pretended rank and take two steps.

    Raises:
        InputError: If the spec has no job.
    """
    if spec.job is None:
        raise InputError("the capture has no job", hint="give a model and a strategy")
    job = spec.job
    tracer = Tracer()
    steps = Steps(tracer)
    with pretend_world(spec.world, spec.rank), tracer, _declared_stages(job), _real_routes():
        trainer = build(job, torch.device("cpu"))
        rows = job.strategy.micro_batch * job.num_microbatches
        tokens = torch.zeros(rows, job.seq_len, dtype=torch.long)
        for _ in range(WARMUP + 1):
            steps.modules = list(trainer.modules)
            steps.begin()
            trainer.step(tokens, tokens.clone())
            steps.done += 1
    return tracer, steps


@contextmanager
def _declared_stages(job: TrainJob) -> Iterator[None]:
    """Tell pipeline stages what they receive and send; they cannot ask stages that do not exist."""
    s = job.strategy
    rows, seq_len = s.micro_batch, job.seq_len // s.cp
    kind = torch.bfloat16 if job.precision == "bf16" else torch.float32
    split = s.tp if s.sequence_parallel else 1

    def stage(module: Any, index: int, total: int, device: Any, **options: Any) -> Any:
        hidden = torch.empty(
            rows, seq_len // split, job.model.hidden, dtype=kind, requires_grad=True
        )
        tokens = torch.zeros(rows, seq_len, dtype=torch.long)
        logits = torch.empty(rows, seq_len, job.model.vocab, dtype=kind, requires_grad=True)
        return PipelineStage(
            module, index, total, device, **options,
            input_args=(tokens if index == 0 else hidden,),
            output_args=(logits if index == total - 1 else hidden,),
        )  # fmt: skip

    with replaced(pipeline, PipelineStage=stage):
        yield


@contextmanager
def _real_routes() -> Iterator[None]:
    """Keep the ways of balanced rows real: they are numbers of the host, and sizes of tensors."""
    plain = RowExchange._route

    def route(exchange: RowExchange, counts: list[int], device: torch.device) -> Any:
        if not exchange.balanced:
            return plain(exchange, counts, device)
        with unset_fake_temporarily():
            return plain(exchange, counts, device)

    with replaced(RowExchange, _route=route):
        yield
