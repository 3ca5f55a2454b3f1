"""What every rank runs: join the others, train one job after the other, write the records.

    torchrun --standalone --nproc-per-node 2 -m scalewise.measure.worker order.json

Rank 0 adds each record to its file as soon as the job is done, so that whatever happens to a later
job, or to the process that started this one, finished work is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as reported

from scalewise.measure.job import TrainJob, inputs_of
from scalewise.measure.machine import Environment
from scalewise.measure.order import Order, Planned
from scalewise.measure.ranks import Here, end, joined
from scalewise.measure.records import Record, append, now
from scalewise.measure.traced import step_times
from scalewise.measure.train import TrainResult, train


@reported
def main() -> None:
    """Carry out the order named on the command line."""
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
    with joined(order) as here:
        for planned in order.planned:
            _carry_out(order, planned, here)


def _carry_out(order: Order, planned: Planned, here: Here) -> None:
    started = now()
    folder = Path(order.records).parent / "traces" / planned.id
    result = train(planned.job, here.device, folder=folder)
    if dist.get_rank() == 0:
        notes: list[str] = []
        if result.traces:
            times, notes = step_times(result.traces)
            result = msgspec.structs.replace(result, trace=times)
        append(order.records, _record(planned, started, here, result, notes))
    # Nobody goes on, or ends, before the record is on the disk.
    dist.barrier()


def _record(
    planned: Planned, started: str, here: Here, result: TrainResult, notes: list[str]
) -> Record:
    doubtful = doubts(planned.job, here.environment)
    return Record(
        kind="train",
        id=planned.id,
        started=started,
        launch=planned.launch,
        environment=here.environment,
        inputs=inputs_of(planned.job),
        results=msgspec.to_builtins(result),
        warnings=[*planned.warnings, *here.warnings, *doubtful, *notes],
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
    end()
