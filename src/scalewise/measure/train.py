"""Training loop of one job: the time of every step, losses, memory and energy.

    result = train(job, device, folder=None)

Steps follow each other as in real training, without barriers. Each rank notes when its step ended,
counted from a common start. A step of the whole job lasts from the last rank's end to the last
rank's next end, so that steps add up to the run, whichever rank is behind. Losses stay on the
device until the end.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from scalewise.measure.data import Source, Synthetic, TextFile, batch, sequences_of
from scalewise.measure.expert_parallel import imbalance_of
from scalewise.measure.optimizers import state_bytes
from scalewise.measure.parallel import Trainer, build
from scalewise.measure.power import Counter, device_counter, host_counter
from scalewise.records.job import TrainJob

TRACED_RANKS = 8
"""Ranks that write a profiler trace: enough to see every kind of rank, few enough to store."""


class TrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks of one launch saw; raw, with warm-up."""

    step_seconds: list[float]
    """Every optimizer step, warm-up included, seconds."""
    losses: list[float]
    """Mean loss of every step, nats per token."""
    build_seconds: float
    """Building and spreading the model, on the slowest rank, seconds."""
    parameters_per_rank: int
    """Weights of the worst rank between steps, after sharding and splitting."""
    trained_parameters_per_rank: int | None = None
    """Of them those that it updates."""
    optimizer_bytes_per_rank: int | None = None
    """State of the optimizer on the worst rank, without step counters, bytes."""
    peak_memory_bytes: float | None
    """Of the worst rank, bytes; see `memory_basis`."""
    memory_basis: str
    """"allocator": PyTorch's peak on the device. "rss": growth of the process over its start."""
    energy_joules: float | None = None
    """Of all devices over the steps that count, joules; None where nothing counts it."""
    energy_seconds: float | None = None
    """How long that was, seconds."""
    energy_source: str | None = None
    """Whose counter."""
    ep_imbalance: float | None = None
    """Rows of the busiest expert-parallel rank over the mean, averaged over layers and
    micro-batches, warm-up included; 1 if balanced, None without expert parallelism."""
    traces: list[str] = []
    """Profiler traces, one per rank, where they were asked for."""
    trace: dict[str, Any] | None = None
    """Seconds of a traced step by part, see `traced.step_times`; None without a trace."""


def train(job: TrainJob, device: torch.device, *, folder: Path | None = None) -> TrainResult:
    """Run a job on the ranks of the process group.

    Args:
        job: Already checked.
        device: This rank's.
        folder: Where profiler traces go, if the job wants some.

    Returns:
        The same on every rank.
    """
    memory = Memory(device)
    start = time.perf_counter()
    trainer = build(job, device)
    build_seconds = time.perf_counter() - start
    batches = _batches(job, trainer)
    counter = _counter(device)
    ends: list[float] = []
    losses: list[Tensor | None] = []
    joules: list[float] = []
    dist.barrier()
    start = time.perf_counter()
    for step in range(job.steps):
        if step == job.warmup and counter is not None:
            joules.append(counter.joules())
        losses.append(_take(trainer, batches[step], device))
        ends.append(time.perf_counter() - start)
    if counter is not None:
        joules.append(counter.joules())
    seconds = step_lengths(_all_max(ends, device))
    energy, source = _energy(counter, joules, device)
    peak = _all_max([memory.peak()], device)[0]
    imbalance = imbalance_of(trainer.modules, device)
    sizes = _all_max(
        [
            trainer.own_parameters(),
            trainer.own_parameters(trained=True),
            state_bytes(trainer.optimizer),
        ],
        device,
    )
    traces: list[str] = []
    if job.trace_steps and folder is not None:
        traces = _traced(job, trainer, batches, device, folder)
    result = TrainResult(
        step_seconds=seconds,
        losses=_mean_losses(losses, device),
        build_seconds=_all_max([build_seconds], device)[0],
        parameters_per_rank=int(sizes[0]),
        trained_parameters_per_rank=int(sizes[1]),
        optimizer_bytes_per_rank=int(sizes[2]),
        peak_memory_bytes=peak or None,
        memory_basis=memory.basis,
        energy_joules=energy,
        energy_seconds=None if energy is None else sum(seconds[job.warmup :]),
        energy_source=source,
        ep_imbalance=imbalance,
        traces=traces,
    )
    del trainer, batches, losses
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return result


def step_lengths(ends: list[float]) -> list[float]:
    """How long steps lasted, from when they ended."""
    return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]


def _batches(job: TrainJob, trainer: Trainer) -> list[tuple[Tensor, Tensor]]:
    """All tokens of this rank, made beforehand: reading them is not what is measured."""
    source: Source = Synthetic(job.model.vocab, job.seed)
    if job.text is not None:
        source = TextFile(job.text, job.model.vocab, job.seed, job.seq_len)
    mine = sequences_of(
        trainer.data_rank,
        job.strategy.data_parallel,
        micro_batch=job.strategy.micro_batch,
        num_microbatches=job.num_microbatches,
    )
    steps = range(job.steps)
    return [batch(source, step=step, sequences=mine, length=job.seq_len) for step in steps]


def _take(trainer: Trainer, tokens: tuple[Tensor, Tensor], device: torch.device) -> Tensor | None:
    """One step, finished when this returns."""
    inputs, targets = (t.to(device, non_blocking=True) for t in tokens)
    loss = trainer.step(inputs, targets)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return loss


def _traced(
    job: TrainJob,
    trainer: Trainer,
    batches: list[tuple[Tensor, Tensor]],
    device: torch.device,
    folder: Path,
) -> list[str]:
    """Further steps under the profiler; the first of them is not recorded, for it starts slowly."""
    from torch import profiler

    activities = [profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(profiler.ProfilerActivity.CUDA)
    rank = dist.get_rank()
    schedule = profiler.schedule(wait=0, warmup=1, active=job.trace_steps, repeat=1)
    dist.barrier()
    with profiler.profile(activities=activities, schedule=schedule, record_shapes=True) as seen:
        for step in range(1 + job.trace_steps):
            _take(trainer, batches[step % len(batches)], device)
            seen.step()
    ranks = min(TRACED_RANKS, dist.get_world_size())
    names = [str(folder / f"rank{i}.json.gz") for i in range(ranks)]
    if rank < ranks:
        folder.mkdir(parents=True, exist_ok=True)
        seen.export_chrome_trace(names[rank])
    dist.barrier()
    return names


def _all_max(values: list[float], device: torch.device) -> list[float]:
    """Element-wise maximum over the ranks."""
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    found: list[float] = tensor.tolist()
    return found


def _mean_losses(losses: list[Tensor | None], device: torch.device) -> list[float]:
    """Mean over the ranks that computed a loss, step by step."""
    known = [loss is not None for loss in losses]
    total = torch.tensor(
        [0.0 if loss is None else float(loss) for loss in losses] + [float(all(known))],
        dtype=torch.float64,
        device=device,
    )
    dist.all_reduce(total)
    means: list[float] = (total[:-1] / total[-1]).tolist()
    return means


def _counter(device: torch.device) -> Counter | None:
    """This rank's energy counter; on CPUs one rank per machine speaks for all."""
    if device.type == "cuda":
        return gpu_counter(device)
    return host_counter() if os.environ.get("LOCAL_RANK", "0") == "0" else None


def gpu_counter(device: torch.device) -> Counter | None:
    """The energy counter of a visible GPU."""
    if torch.version.hip is None:
        return device_counter(uuid=str(torch.cuda.get_device_properties(device).uuid))
    try:
        # HIP_VISIBLE_DEVICES hides and reorders devices; PyTorch alone maps them.
        return device_counter(index=torch.cuda._get_amdsmi_device_index(device))
    except Exception:
        return None


def _energy(
    counter: Counter | None, joules: list[float], device: torch.device
) -> tuple[float | None, str | None]:
    """Energy of all devices; None if a single one of them does not count."""
    own = joules[-1] - joules[0] if counter is not None and len(joules) == 2 else 0.0
    speaks = 1.0 if counter is not None else 0.0
    total = torch.tensor([own, speaks], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    world = dist.get_world_size()
    needed = world if device.type == "cuda" else world // per_node
    if needed == 0 or float(total[1]) < needed:
        return None, None
    return float(total[0]), counter.source if counter is not None else None


class Memory:
    """Peak memory from now on."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.basis = "allocator" if device.type == "cuda" else "rss"
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            gc.collect()
            _forget_peak()
            self.before = _resident("VmRSS")

    def peak(self) -> float:
        """Bytes; 0 if the system does not report it."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        return max(0.0, _resident("VmHWM") - self.before)


def _forget_peak() -> None:
    """Ask Linux to start the high-water mark of this process again."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _resident(field: str) -> float:
    """A line of /proc/self/status, bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return float(line.split()[1]) * 1024.0
    except (OSError, ValueError, IndexError):
        pass
    return 0.0
