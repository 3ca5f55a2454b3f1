"""Worker of training jobs, on every rank: join the others, train, write the records.

    torchrun --standalone --nproc-per-node 2 -m scalewise.measure.worker launch.json

Rank 0 adds each record to its file as soon as the job is done, so finished jobs are kept whatever
happens to later ones or to the process that started this one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as reported

from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.ranks import RankContext, joined, run_rank
from scalewise.measure.traced import step_times
from scalewise.measure.train import TrainResult, train
from scalewise.records.environment import Environment
from scalewise.records.files import Record, append, now
from scalewise.records.job import TrainJob, inputs_of


@reported
def main() -> None:
    """Run the launch spec named on the command line."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LaunchSpec)
    with joined(spec) as here:
        for planned in spec.planned:
            _carry_out(spec, planned, here)


def _carry_out(spec: LaunchSpec, planned: PlannedJob, here: RankContext) -> None:
    started = now()
    folder = Path(spec.records).parent / "traces" / planned.id
    result = train(planned.job, here.device, folder=folder)
    if dist.get_rank() == 0:
        notes: list[str] = []
        if result.traces:
            times, notes = step_times(result.traces)
            result = msgspec.structs.replace(result, trace=times)
        append(spec.records, _record(planned, started, here, result, notes))
    # All ranks wait until the record is on the disk.
    dist.barrier()


def _record(
    planned: PlannedJob, started: str, here: RankContext, result: TrainResult, notes: list[str]
) -> Record:
    doubtful = job_warnings(planned.job, here.environment)
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


def job_warnings(job: TrainJob, where: Environment) -> list[str]:
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
    on_gpu = where.device == "cuda" and job.precision == "bf16"
    if on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        said.append(f"{where.device_name} emulates bf16, which is slower than fp32")
    return said


if __name__ == "__main__":
    run_rank(main)
