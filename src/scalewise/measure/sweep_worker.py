"""Worker of a sweep, on every rank: join the others, time the plan, write one record.

torchrun --standalone --nproc-per-node 2 -m scalewise.measure.sweep_worker launch.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as reported

from scalewise.measure.collective_plan import CollectivePlan
from scalewise.measure.host_plan import HostPlan
from scalewise.measure.kernel_plan import KernelPlan
from scalewise.measure.ranks import joined, run_rank
from scalewise.measure.sweeps import SweepSpec
from scalewise.records.files import Record, append, now


@reported
def main() -> None:
    """Carry out the order named on the command line."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=SweepSpec)
    with joined(spec) as here:
        started = now()
        results = _carry_out(spec, here.device)
        if dist.get_rank() == 0:
            record = Record(
                kind=spec.what,
                id=spec.id,
                started=started,
                environment=here.environment,
                inputs=spec.plan,
                results=results,
                warnings=[*spec.warnings, *here.warnings],
            )
            append(spec.records, record)
        dist.barrier()


def _carry_out(spec: SweepSpec, device: torch.device) -> dict[str, Any]:
    if spec.what == "collective":
        from scalewise.measure.collectives import run_collectives

        return run_collectives(msgspec.convert(spec.plan, CollectivePlan), device)
    if spec.what == "host":
        from scalewise.measure.host import run_host

        return run_host(msgspec.convert(spec.plan, HostPlan), device)
    from scalewise.measure.kernels import run_kernels

    return run_kernels(msgspec.convert(spec.plan, KernelPlan), device)


if __name__ == "__main__":
    run_rank(main)
