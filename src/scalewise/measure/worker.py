"""What every rank runs: join the others, train one job after the other, write the records.

    torchrun --standalone --nproc-per-node 2 -m scalewise.measure.worker order.json

Rank 0 adds each record to its file as soon as the job is done, so that whatever happens to a later
job, or to the process that started this one, finished work is kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as reported

from scalewise.measure.job import TrainJob, inputs_of
from scalewise.measure.machine import Environment, environment
from scalewise.measure.order import Order, Planned
from scalewise.measure.records import Record, append, now
from scalewise.measure.traced import step_times
from scalewise.measure.train import TrainResult, train


@reported
def main() -> None:
    """Carry out the order named on the command line."""
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
    device = _device(order)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if order.threads is not None:
        torch.set_num_threads(order.threads)
    dist.init_process_group(backend, device_id=device if device.type == "cuda" else None)
    try:
        where = _environment(order, device, backend)
        for planned in order.planned:
            _carry_out(order, planned, device, where)
    finally:
        dist.destroy_process_group()


def _device(order: Order) -> torch.device:
    if order.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _environment(order: Order, device: torch.device, backend: str) -> Environment:
    versions: dict[str, str] = {}
    name = ""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        nccl = torch.cuda.nccl.version()
        versions["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)
        for library, version in (("cuda", torch.version.cuda), ("rocm", torch.version.hip)):
            if version:
                versions[library] = str(version)
    return environment(
        device=order.device,
        device_name=name,
        accelerator=order.accelerator,
        backend=backend,
        ranks=dist.get_world_size(),
        ranks_per_node=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        versions=versions,
    )


def _carry_out(order: Order, planned: Planned, device: torch.device, where: Environment) -> None:
    started = now()
    folder = Path(order.records).parent / "traces" / planned.id
    result = train(planned.job, device, folder=folder)
    if dist.get_rank() == 0:
        notes: list[str] = []
        if result.traces:
            times, notes = step_times(result.traces)
            result = msgspec.structs.replace(result, trace=times)
        append(order.records, _record(planned, started, where, result, notes))
    # Nobody goes on, or ends, before the record is on the disk.
    dist.barrier()


def _record(
    planned: Planned, started: str, where: Environment, result: TrainResult, notes: list[str]
) -> Record:
    warnings = [*planned.warnings, *doubts(planned.job, where), *notes]
    return Record(
        kind="train",
        id=planned.id,
        started=started,
        launch=planned.launch,
        environment=where,
        inputs=inputs_of(planned.job),
        results=msgspec.to_builtins(result),
        warnings=warnings,
    )


def doubts(job: TrainJob, where: Environment) -> list[str]:
    """What about a job itself should make a reader careful.

    Args:
        job: What ran.
        where: On what.
    """
    said = []
    if where.device == "cpu" and where.ranks_per_node > where.cores:
        said.append(
            f"{where.ranks_per_node} ranks share {where.cores} cores: they wait for each other"
        )
    if where.device == "cpu" and job.precision == "bf16":
        said.append("CPUs without units for bf16 compute it more slowly than fp32")
    return said


if __name__ == "__main__":
    main()
