"""Ranks that compute the gradients of models with experts, compared with those of one process.

    seen = on_ranks(2, [Case("fsdp2-ep2-mb4"), Case("ddp2-ep2-mb4", routing="topk")])
    seen[0].error, seen[0].all_to_all

Every rank also computes the whole batch with the whole model, and compares its part.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from measure_jobs import MOE, job
from scalewise.measure.check import check_job
from scalewise.measure.data import Synthetic, batch
from scalewise.measure.decoder import Decoder, MoeMlp, loss_of, materialize
from scalewise.measure.parallel import build
from scalewise.measure.train import _batches
from scalewise.records.job import TrainJob
from waiting import PATIENCE
from warm import CONTEXT

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """One step of a strategy."""

    strategy: str
    routing: str = "balanced"
    etp: int = 1
    model: object = MOE


@dataclass(frozen=True)
class Seen:
    """What the ranks found, the worst of them."""

    error: float
    """Largest difference of a gradient, relative to the largest entry of its parameter's."""
    names: frozenset[str]
    """Parameters that were compared, on any rank."""
    all_to_all: list[int] = field(default_factory=list)
    """Bytes of each all-to-all of rank 0."""


def on_ranks(ranks: int, cases: list[Case]) -> list[Seen]:
    """Run the cases on new processes; one answer per case."""
    answers = CONTEXT.Queue()
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        processes = [
            CONTEXT.Process(target=_rank, args=(rank, ranks, store, cases, answers))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = {}
        try:
            for _ in range(ranks):
                rank, seen = answers.get(timeout=PATIENCE)
                assert not isinstance(seen, str), seen
                found[rank] = seen
            for process in processes:
                process.join(timeout=PATIENCE)
        finally:
            for process in processes:
                process.kill()
    return [
        Seen(
            error=max(one.error for one in seen),
            names=frozenset().union(*(one.names for one in seen)),
            all_to_all=seen[0].all_to_all,
        )
        for seen in zip(*(found[rank] for rank in range(ranks)), strict=True)
    ]


def _rank(rank, ranks, store, cases, answers):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    try:
        answers.put((rank, [_compare(case) for case in cases]))
    except Exception:
        answers.put((rank, traceback.format_exc()))
        raise
    dist.barrier()
    dist.destroy_process_group()


def _compare(case: Case) -> Seen:
    TrainJob.etp = property(lambda self: case.etp)
    one = job(case.strategy, model=case.model, routing=case.routing, steps=2)
    check_job(one, "cpu")
    wanted = _gradients_of_one(one)
    trainer = build(one, CPU)
    calls = []
    original = dist.all_to_all_single

    def noted(out, rows, *args, **options):
        calls.append(rows.nbytes)
        return original(out, rows, *args, **options)

    dist.all_to_all_single = noted
    try:
        trainer.gradients(*_batches(one, trainer)[0])
    finally:
        dist.all_to_all_single = original
    error, names = 0.0, set()
    for module in trainer.modules:
        for name, parameter in module.named_parameters():
            name = name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")
            grad = parameter.grad
            grad = grad.full_tensor() if isinstance(grad, DTensor) else grad
            expected = wanted[name]
            if ".experts." in name and trainer.expert_mesh is not None:
                expected = _part(name.rpartition(".")[2], expected, trainer.expert_mesh)
            assert grad.shape == expected.shape, name
            error = max(error, float((grad - expected).abs().max() / expected.abs().max()))
            names.add(name)
    return Seen(error=error, names=frozenset(names), all_to_all=calls)


def _part(name, whole, mesh):
    """The part of a gradient of all experts that a rank has."""
    own = whole.chunk(mesh["ep"].size())[mesh["ep"].get_local_rank()]
    etp = mesh["etp"]
    return own.chunk(etp.size(), 2 if name == "w2" else 1)[etp.get_local_rank()]


def _gradients_of_one(one: TrainJob):
    """Gradients of the whole batch, by name."""
    with torch.device("meta"):
        decoder = Decoder(one.model, seq_len=one.seq_len)
    materialize(decoder, "", device=CPU, seed=one.seed)
    for module in decoder.modules():
        if isinstance(module, MoeMlp):
            module.balanced = one.routing == "balanced"
    source = Synthetic(one.model.vocab, one.seed)
    everything = range(one.global_batch)
    inputs, targets = batch(source, step=0, sequences=everything, length=one.seq_len)
    loss_of(decoder(inputs), targets).backward()
    return {name: parameter.grad for name, parameter in decoder.named_parameters()}
