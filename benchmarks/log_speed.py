"""CPU time and peak memory of reading logs of 100 MB.

    python benchmarks/log_speed.py          # every framework, dense and sparse, plain and gzip
    python benchmarks/log_speed.py 400      # megabytes

Dense logs have nothing but step lines; in sparse ones, nine bytes of ten are other lines. Each is
read in a process of its own, whose peak memory is printed: lines are kept as numbers only.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

MEGABYTE = 1_000_000

LINES = {
    "torchtitan": "[rank0]:[titan] 2026-05-18 {clock} - root - INFO - \x1b[31mstep: {step}  "
    "\x1b[32mloss:  3.24405  \x1b[33mgrad_norm:  0.8319  \x1b[36mmemory:  9.46GiB(64.99%)  "
    "\x1b[34mtps: 7,2{digit}  \x1b[36mtflops: 0.52  \x1b[35mmfu: 0.17%\x1b[39m",
    "megatron-lm": " [2026-04-06 {clock}] iteration {step:8d}/ 9000000 | consumed samples: 5504 | "
    "elapsed time per iteration (ms): 54{digit}.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | "
    "learning rate: 8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 | loss scale: "
    "1.0 | grad norm: 1.426 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    "deepspeed": "[2026-11-07 {clock},714] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/"
    "global_step={step}, RunningAvgSamplesPerSec=25.025, CurrSamplesPerSec=25.{digit}, "
    "MemAllocated=4.32GB, MaxMemAllocated=38.49GB",
    "maxtext": "completed step: {step}, seconds: 13.{digit}, TFLOP/s/device: 305.127, "
    "Tokens/s/device: 3679.158, total_weights: 12582912, loss: 10.565",
    "nanogpt": "iter {step}: loss 4.0863, time 561.{digit}ms, mfu 17.98%",
}
OTHER = "[2026-04-06 02:59:36] [INFO] [worker.py:77:next] shard 1207 of 4096 is open, 12 in queue\n"

READER = """
import resource, sys, time
from scalewise.logs.read import read_log
from scalewise.logs.steady import steady
start = time.process_time()
log = read_log(sys.argv[1])
found = steady(log)
used = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"{used:6.2f} CPU s {peak / 1024:8.0f} MB {len(log.steps):9,} steps")
"""


def text(line: str, size: int, *, sparse: bool) -> bytes:
    """Return a log of about `size` bytes."""
    parts, total, step = [], 0, 0
    while total < size:
        step += 1
        clock = f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
        part = line.format(step=step, clock=clock, digit=10 + step % 80) + "\n"
        if sparse:
            part += OTHER * (9 * len(part) // len(OTHER))
        parts.append(part)
        total += len(part)
    return "".join(parts).encode()


def main() -> None:
    """Write and read every log."""
    size = int(float(sys.argv[1]) * MEGABYTE) if len(sys.argv) > 1 else 100 * MEGABYTE
    with tempfile.TemporaryDirectory() as folder:
        for name, line in LINES.items():
            for kind in ("dense", "sparse", "sparse.gz"):
                path = Path(folder) / "run.log"
                content = text(line, size, sparse=kind != "dense")
                if kind.endswith("gz"):
                    content = gzip.compress(content, 1)
                path.write_bytes(content)
                done = subprocess.run(
                    [sys.executable, "-c", READER, str(path)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                print(f"{name:12} {kind:10} {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
