"""Step lines of Megatron-Bridge.

    Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU

The first rank prints this one, the last rank a line of Megatron-LM for the same step: `read` counts
the step once, and takes the latter, which has more digits. Without it steps have no number.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="megatron-bridge",
        mark=b"Step Time :",
        once=(b"GPU utilization:",),
        pattern=re.compile(
            rb"Step Time : ?(?P<seconds>\d+\.\d+)s GPU utilization: [\d.]+ ?MODEL_TFLOP/s/GPU"
        ),
        window=True,
    ),
)
