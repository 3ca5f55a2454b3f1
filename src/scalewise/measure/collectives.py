"""Timings of collectives: NCCL between GPUs, Gloo between CPUs.

    results = run_collectives(plan, device)          # on every rank, inside a process group
    results["rows"][0]["busbw_gb_per_s"], results["beside"]

Rows have the columns of nccl-tests: size, time, algorithm bandwidth, bus bandwidth. All groups of a
layout call at the same time, as they do in training. `beside` times one all-reduce that overlaps
matrix products: compute and communication share cores and memory, and only this measurement says
how much of the overlap that costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from scalewise.measure.collective_plan import CollectivePlan, Op, Placing, layout
from scalewise.measure.timing import sample
from scalewise.records.metrics import Spread
from scalewise.records.rows import bus_factor, timed_row

BESIDE_BYTES = 16 * 2**20
"""Size of the reduction that runs beside compute: about a gradient bucket (DDP's are 25 MB)."""

BESIDE_SHAPE = 512
"""Rows, columns and depth of the matrix products beside it: small enough to adjust their number."""

DTYPE = torch.float32


def run_collectives(plan: CollectivePlan, device: torch.device) -> dict[str, Any]:
    """Time everything that a plan says.

    Args:
        plan: What.
        device: This rank's.

    Returns:
        "rows": one dictionary per operation, layout and size; "beside": what overlap is worth, or
        None.
    """
    rows: list[dict[str, Any]] = []
    done: set[tuple[tuple[int, ...], ...]] = set()
    nodes = _nodes_of(device)
    for size in plan.group_sizes:
        for placing in plan.placements:
            members = layout(dist.get_world_size(), size, placing)
            key = tuple(tuple(group) for group in members)
            if key in done:
                # A single group is packed and spread at once.
                continue
            done.add(key)
            rows.extend(_layout_rows(plan, members, placing, nodes, device))
    beside = _beside(plan, device) if plan.beside and dist.get_world_size() > 1 else None
    return {"rows": rows, "beside": beside}


def _nodes_of(device: torch.device) -> list[int]:
    """The machine of every rank, as a number."""
    per_node = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    own = torch.tensor([dist.get_rank() // per_node], device=device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [int(each[0]) for each in everyone]


def _layout_rows(
    plan: CollectivePlan,
    members: list[list[int]],
    placing: Placing,
    nodes: list[int],
    device: torch.device,
) -> list[dict[str, Any]]:
    """All operations and sizes of one way to form groups."""
    rank = dist.get_rank()
    mine = next(group for group in members if rank in group)
    handles = [dist.new_group(group) for group in members]
    handle = handles[members.index(mine)]
    span = len({nodes[member] for member in members[0]})
    rows = []
    for op in plan.ops:
        for size in plan.sizes:
            call, real = _call(op, size, mine, handle, device)
            seconds = sample(call, device, iters=plan.iters, warmup=plan.warmup, budget=plan.budget)
            columns = {
                "op": op,
                "accelerators": len(mine),
                "nodes": span,
                "scaleup_domain": len(mine) // span,
                "placement": placing,
                "groups": len(members),
                "message_bytes": real,
            }
            row = timed_row(columns, seconds)
            algorithm = real / row["time_us"] / 1e3
            row["algbw_gb_per_s"] = algorithm
            row["busbw_gb_per_s"] = algorithm * bus_factor(op, len(mine))
            rows.append(row)
    for each in handles:
        if each is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(each)
    return rows


def _call(
    op: Op, size: int, mine: list[int], group: Any, device: torch.device
) -> tuple[Callable[[], object], int]:
    """One operation, ready to be called again and again, and its exact size in bytes."""
    ranks, rank = len(mine), dist.get_rank()
    width = torch.finfo(DTYPE).bits // 8
    part = max(size // width // ranks, 1)
    whole = torch.ones(part * ranks, dtype=DTYPE, device=device)
    if op == "all_gather":
        own = torch.ones(part, dtype=DTYPE, device=device)
        return lambda: dist.all_gather_into_tensor(whole, own, group=group), whole.nbytes
    if op == "reduce_scatter":
        own = torch.empty(part, dtype=DTYPE, device=device)
        return lambda: dist.reduce_scatter_tensor(own, whole, group=group), whole.nbytes
    if op == "all_to_all":
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group), whole.nbytes
    one = torch.zeros(max(size // width, 1), dtype=DTYPE, device=device)
    if op == "broadcast":
        return lambda: dist.broadcast(one, src=mine[0], group=group), one.nbytes
    if op == "all_reduce":
        return lambda: dist.all_reduce(one, group=group), one.nbytes
    # To the next, from the one before, as nccl-tests' sendrecv and pipelines do.
    place = mine.index(rank)
    after, before = mine[(place + 1) % ranks], mine[place - 1]
    got = torch.empty_like(one)

    def exchange() -> None:
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, one, after, group), dist.P2POp(dist.irecv, got, before, group)]
        )
        for work in works:
            work.wait()

    return exchange, one.nbytes


def _beside(plan: CollectivePlan, device: torch.device) -> dict[str, float]:
    """Time a reduction alone, compute of about twice its length alone, and both at once."""
    gradient = torch.zeros(BESIDE_BYTES // 4, dtype=DTYPE, device=device)
    a = torch.ones(BESIDE_SHAPE, BESIDE_SHAPE, dtype=DTYPE, device=device)
    b = torch.empty_like(a)

    def median(call: Callable[[], object]) -> float:
        seconds = sample(
            call, device, iters=plan.iters, warmup=plan.warmup, budget=2.0 * plan.budget
        )
        return Spread.of(seconds).median

    communication = median(lambda: dist.all_reduce(gradient))
    one = median(lambda: torch.mm(a, a, out=b))
    count = max(int(2.0 * communication / one), 1)

    def compute() -> None:
        for _ in range(count):
            torch.mm(a, a, out=b)

    def both() -> None:
        work = dist.all_reduce(gradient, async_op=True)
        compute()
        assert work is not None
        work.wait()

    return {
        "message_bytes": float(gradient.nbytes),
        "communication_seconds": communication,
        "compute_seconds": median(compute),
        "together_seconds": median(both),
    }
