"""Step lines of nanotron.

    iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K |
    tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.38

Newer versions print `time_per_iteration_ms`, and count the batch in tokens. Numbers have three
digits.
"""

from __future__ import annotations

import math
import re

import numpy as np

from scalewise.logs.line import HUMAN, StepLine
from scalewise.logs.run_log import Stated
from scalewise.numeric import Array

ROUNDING = 0.015
"""Largest error of a ratio of numbers with three digits."""

LINES = (
    StepLine(
        framework="nanotron",
        mark=b"tokens_per_sec_per_gpu: ",
        once=(b"iteration: ",),
        pattern=re.compile(
            rb"iteration: (?P<step>\d+) / \d+ \|[^\0]*?"
            rb"time_per_iteration_ms: (?P<ms>" + HUMAN + rb") \|[^\0]*?"
            rb" tokens_per_sec: (?P<total_tps>" + HUMAN + rb") \|[^\0]*?"
            rb"tokens_per_sec_per_gpu: (?P<tps>" + HUMAN + rb") \|[^\0]*?"
            rb"global_batch_size: (?P<batch>" + HUMAN + rb") \|"
            rb"(?:[^\0]*?lm_loss: (?P<loss>[-\d.e+]+) \|)?"
        ),
        digits=5e-3,
    ),
)


def stated(columns: dict[str, Array], line: int) -> dict[str, Stated]:
    """Return GPUs, batch and sequence length by their ratios, where three digits tell them.

    Args:
        columns: Numbers of the steps.
        line: Line that they are said to stand on.
    """
    total, device = columns["total_tokens"], columns["device_tokens"]
    tokens, batch = float(np.median(total * columns["seconds"])), float(columns["batch"][-1])
    ratio = float(np.median(total / device)) if np.all(device > 0.0) else math.inf
    found: dict[str, Stated] = {}
    if ratio * ROUNDING < 0.5:
        found["gpus"] = Stated(value=str(round(ratio)), line=line)
    # Whether the batch counts tokens is told by their number: a sequence has more than one.
    if batch > 0.0 and tokens / batch > 8.0 and batch == int(batch) and batch < 1000.0:
        found["batch"] = Stated(value=str(int(batch)), line=line)
        power = 2.0 ** np.round(np.log2(tokens / batch))
        if abs(tokens / batch / power - 1.0) < ROUNDING:
            found["seq"] = Stated(value=str(int(power)), line=line)
    return found
