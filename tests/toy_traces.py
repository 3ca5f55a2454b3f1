"""Small profiler traces whose times are known: one function per kind of event.

Times are microseconds. `hundred` is the trace most tests use:

    compute         0 - 25                55 - 80              98 - 100
    communication         20 - 45               70 - 85
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
GEMM = 'void gemm<"{", 4>(int*, [1], "}")'
"""A name with the characters that readers of JSON stumble over."""


def event(cat, name, ts, dur, pid=1, tid=1, **args):
    """Anything with a duration."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def kernel(ts, dur, name=GEMM, stream=7, device=0, **args):
    return event("kernel", name, ts, dur, device, stream, device=device, stream=stream, **args)


def nccl(ts, dur, name=ALL_REDUCE, stream=20, **args):
    """A collective that says what it moves: 1 Mi elements of bf16 over 8 ranks."""
    answer = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20,
        "Group size": 8, "dtype": "BFloat16", "Process Group Name": "1",
        "Process Group Description": "mesh_dp",
    }  # fmt: skip
    return kernel(ts, dur, name, stream, **(answer | args))


def all_gather(ts, dur, **args):
    answer = {"Collective name": "_allgather_base", "Out msg nelems": 8 << 20}
    return nccl(ts, dur, ALL_GATHER, **(answer | args))


def copy(ts, dur, device=0):
    return event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", ts, dur, device, 7, bytes=4096)


def step(number, ts, dur):
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def device_step(number, ts, dur, stream=7):
    return event("gpu_user_annotation", f"ProfilerStep#{number}", ts, dur, 0, stream)


def operator(ts, dur, name="aten::mm", tid=1):
    return event("cpu_op", name, ts, dur, 1, tid)


def gloo(ts, dur, name="gloo:all_reduce", tid=2, elements=1000):
    shapes = {"Input Dims": [[elements]], "Input type": ["float"]}
    return event("user_annotation", name, ts, dur, 1, tid, **shapes)


def hundred():
    """100 us of a GPU: 52 us compute, 40 us communication of which 15 us overlap, 23 us idle."""
    return [kernel(0, 25), nccl(20, 25), kernel(55, 25), all_gather(70, 15), kernel(98, 2)]


def text(events, **meta):
    return json.dumps({"schemaVersion": 1, **meta, "traceEvents": events, "displayTimeUnit": "ms"})


def info(rank=0, world=8, **more):
    """What stands at the top of a trace of a distributed run."""
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, **more}}


def write(path: Path, events, **meta) -> Path:
    """Write a trace, compressed if its name ends in .gz."""
    content = text(events, **meta).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def busy_rank():
    """Four steps of irregular kernels with everything HolisticTraceAnalysis needs.

    Whole microseconds, because that tool rounds to them; launches with correlations, because it
    finds the steps of kernels by them.
    """
    events, seed = [], 1

    def draw(below):
        nonlocal seed
        seed = (1103515245 * seed + 12345) % (1 << 31)
        return (seed >> 8) % below

    correlation = 0
    for number in range(4):
        start = 10_000 * number
        events.append(step(number + 3, start, 9_990))
        for stream, name, count in ((7, "gemm", 40), (20, ALL_REDUCE, 6), (7, "Memcpy", 5)):
            ts = start + 100 + draw(300)
            for _ in range(count):
                dur = 20 + draw(150 if stream == 7 else 900)
                if ts + dur > start + 9_900:
                    break
                correlation += 1
                answer = {"device": 0, "stream": stream, "correlation": correlation}
                cat = "gpu_memcpy" if name == "Memcpy" else "kernel"
                events += [
                    event("cuda_runtime", "cudaLaunchKernel", ts - 50, 5, correlation=correlation),
                    event(cat, name, ts, dur, 0, stream, **answer),
                ]
                ts += dur + draw(120 if stream == 7 else 600)
    return events
