"""Step lines of Megatron-LM.

     iteration       43/     100 | ... | elapsed time per iteration (ms): 5444.9 | ...
     global batch size:   128 | lm loss: 1.825991E+00 | ...

The time is the mean since the last line (`--log-interval`); its clock is stopped for checkpoints
and evaluation. Forks print a running mean behind a slash, and the time stamp may lack.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="megatron-lm",
        dense=True,
        mark=b"elapsed time per iteration (ms): ",
        twice=(b"iteration ",),
        pattern=re.compile(
            rb"iteration +(?P<step>\d+)/ *(?:\d+|infinity) \|[^\0]*?"
            rb"elapsed time per iteration \(ms\): (?P<ms>\d+\.\d+)(?:/\d+\.\d+)? \|"
            rb"(?:[^\0]*? global batch size: *(?P<batch>\d+) \|)?"
            rb"(?:[^\0]*? lm loss: (?P<loss>[-+\d.E]+) \|)?"
        ),
        window=True,
    ),
)
