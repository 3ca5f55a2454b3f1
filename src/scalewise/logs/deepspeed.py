"""Step lines of DeepSpeed.

    epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.03, CurrSamplesPerSec=25.70,
    MemAllocated=4.32GB, MaxMemAllocated=38.49GB

Samples are sequences of all GPUs. `CurrSamplesPerSec` is the mean since the last line
(`steps_per_print`), without what the script does between steps. GB are 2^30 bytes, of tensors and
not reserved.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="deepspeed",
        dense=True,
        mark=b"CurrSamplesPerSec=",
        once=(b"global_step=",),
        pattern=re.compile(
            rb"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=[\d.e+-]+, "
            rb"CurrSamplesPerSec=(?P<sps>\d+\.?\d*(?:e[+-]?\d+)?), MemAllocated=[\d.]+GB, "
            rb"MaxMemAllocated=(?P<gib>[\d.]+)GB"
        ),
        memory="allocated",
        window=True,
    ),
)
