"""Step lines of litgpt.

    Epoch 1 | iter 128 step 8 | loss train: 7.861, val: n/a | iter time: 545.53 ms (step) ...

The time is that of one micro-batch: `read` multiplies it by the micro-batches of a step, which
follow from the two numbers.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="litgpt",
        mark=b"| iter time: ",
        once=(b"loss train: ",),
        pattern=re.compile(
            rb"iter (?P<micro>\d+) step (?P<step>\d+) \| loss train: (?P<loss>-?[\d.]+|nan|inf),"
            rb"[^\0]*?\| iter time: (?P<ms>\d+\.\d+) ms"
        ),
    ),
)
