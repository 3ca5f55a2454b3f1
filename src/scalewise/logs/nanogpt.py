"""Step lines of nanoGPT.

    iter 1631: loss 4.0863, time 561.94ms, mfu 17.98%

The time is that of the last step before the line, with its gradient accumulation. A step that
evaluates includes the evaluation.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="nanogpt",
        dense=True,
        mark=b": loss ",
        once=(b"iter ", b", time "),
        pattern=re.compile(
            rb"iter (?P<step>\d+): loss (?P<loss>-?[\d.]+|nan|inf), time (?P<ms>\d+\.\d+)ms"
        ),
    ),
)
