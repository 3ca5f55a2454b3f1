"""Step lines of MaxText.

    completed step: 10, seconds: 13.360, TFLOP/s/device: 305.127, Tokens/s/device: 3679.158,
    total_weights: 12582912, loss: 10.565

The time is that of one step.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="maxtext",
        dense=True,
        mark=b"completed step: ",
        once=(b"seconds: ",),
        pattern=re.compile(
            rb"completed step: (?P<step>\d+), seconds: (?P<seconds>\d+\.\d+),"
            rb"(?:[^\0]*? TFLOP/s/device: [\d.]+,)?(?:[^\0]*? Tokens/s/device: (?P<tps>[\d.]+),)?"
        ),
    ),
)
