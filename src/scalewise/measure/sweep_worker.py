"""What every rank of a sweep runs: join the others, time what the plan says, write one record.

torchrun --standalone --nproc-per-node 2 -m scalewise.measure.sweep_worker order.json
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
from scalewise.measure.kernel_plan import KernelPlan
from scalewise.measure.ranks import end, joined
from scalewise.measure.records import Record, append, now
from scalewise.measure.sweeps import SweepOrder


@reported
def main() -> None:
    """Carry out the order named on the command line."""
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=SweepOrder)
    with joined(order) as here:
        started = now()
        results = _carry_out(order, here.device)
        if dist.get_rank() == 0:
            record = Record(
                kind=order.what,
                id=order.id,
                started=started,
                environment=here.environment,
                inputs=order.plan,
                results=results,
                warnings=[*order.warnings, *here.warnings],
            )
            append(order.records, record)
        dist.barrier()


def _carry_out(order: SweepOrder, device: torch.device) -> dict[str, Any]:
    if order.what == "collective":
        from scalewise.measure.collectives import run_collectives

        return run_collectives(msgspec.convert(order.plan, CollectivePlan), device)
    from scalewise.measure.kernels import run_kernels

    return run_kernels(msgspec.convert(order.plan, KernelPlan), device)


if __name__ == "__main__":
    main()
    end()
