"""Speed and peak memory of reading profiler traces.

    python benchmarks/trace_speed.py            # 100 MB and 400 MB, plain and gzip
    python benchmarks/trace_speed.py 4000       # megabytes of the largest; give it the disk

Each trace is written as PyTorch writes them (operators, launches, flow arrows, kernels and NCCL
kernels with their arguments, spread over lines) and read in a process of its own, whose peak
memory is printed. Memory should not follow the size of the file: four times the events, and the
peak grows by the merged intervals only.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MEGABYTE = 1_000_000
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

READER = """
import resource, sys, time
from scalewise.trace.read import read_trace
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
found = read_trace(sys.argv[1], last_step=True)
used = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(used, before / 1024, peak / 1024, found.ranks[0].events, found.overlap_pct)
"""


def layer() -> list[dict]:
    """The events of one layer: ten operators with launches, arrows and kernels, one collective."""
    events: list[dict] = []
    for place in range(10):
        ts, unique = 90.0 * place, place
        host = {"pid": 4242, "tid": 4242}
        shapes = {
            "Input Dims": [[2, 4096, 4096], [4096, 11008]],
            "Input type": ["c10::BFloat16"] * 2,
        }
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::linear", **host, "ts": ts, "dur": 40.5,
             "args": {"External id": unique, "Record function id": 0, "Ev Idx": unique, **shapes}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **host, "ts": ts + 5, "dur": 30.25,
             "args": {"External id": unique, "Record function id": 0, "Ev Idx": unique, **shapes}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **host, "ts": ts + 9,
             "dur": 6.1, "args": {"External id": unique, "cbid": 211, "correlation": unique}},
            {"ph": "s", "id": unique, **host, "ts": ts + 9, "cat": "ac2g", "name": "ac2g"},
            {"ph": "X", "cat": "kernel", "name": GEMM if place % 2 else KERNEL, "pid": 0, "tid": 7,
             "ts": ts + 20, "dur": 70.125,
             "args": {"External id": unique, "queued": 0, "device": 0, "context": 1, "stream": 7,
                      "correlation": unique, "registers per thread": 168, "blocks per SM": 2.0,
                      "warps per SM": 24.0, "grid": [132, 1, 1], "block": [384, 1, 1],
                      "est. achieved occupancy %": 19}},
            {"ph": "f", "id": unique, "pid": 0, "tid": 7, "ts": ts + 20, "cat": "ac2g",
             "name": "ac2g", "bp": "e"},
        ]  # fmt: skip
    events.append(
        {"ph": "X", "cat": "kernel", "name": NCCL, "pid": 0, "tid": 20, "ts": 30.0,
         "dur": 500.5, "args": {
             "External id": 11, "device": 0, "stream": 20, "correlation": 11,
             "Collective name": "_allgather_base", "In msg nelems": 1048576,
             "Out msg nelems": 67108864, "Group size": 64, "dtype": "BFloat16",
             "Process Group Name": "1", "Process Group Description": "mesh_fsdp"}}
    )  # fmt: skip
    return events


def write(path: Path, size: int) -> None:
    """Write a trace of about `size` bytes, before compression: the layer again and again, later."""
    text = ",\n".join(json.dumps(event, indent=2) for event in layer())
    first, *rest = re.split(r'"ts": ([0-9.]+)', text)
    pairs = [(float(ts), after) for ts, after in zip(rest[::2], rest[1::2], strict=True)]
    zipped = path.suffix == ".gz"
    with gzip.open(path, "wt", compresslevel=1) if zipped else path.open("w") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "distributedInfo": {"rank": 0, "world_size": 64},\n'
        )
        file.write('  "traceEvents": [\n')
        for number in range(-(-size // len(text))):
            later = 1000.0 * number
            moved = "".join(f'"ts": {ts + later}{after}' for ts, after in pairs)
            file.write((",\n" if number else "") + first + moved)
        file.write('\n  ],\n  "traceName": "benchmark"\n}\n')


def main() -> None:
    """Write, read, print; the largest last."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in (largest // 4, largest):
            for ending in (".json", ".json.gz"):
                path = Path(folder) / f"trace{ending}"
                write(path, megabytes * MEGABYTE)
                words = subprocess.run(
                    [sys.executable, "-c", READER, str(path)],
                    capture_output=True, text=True, check=True,
                ).stdout.split()  # fmt: skip
                path.unlink()
                seconds, before, peak = map(float, words[:3])
                print(
                    f"{megabytes:>6,} MB {ending:<9} {int(words[3]):>10,} events {seconds:7.2f} s "
                    f"{megabytes / seconds:6.0f} MB/s  peak {peak:5.0f} MiB, "
                    f"{peak - before:4.0f} above the imports; overlap {float(words[4]):.1f} %"
                )


if __name__ == "__main__":
    main()
