"""Step lines of NeMo, versions 1 and 2.

    Training epoch 0, iteration 49/49 | ... | global_batch_size: 128 | global_step: 49 | ...
    | train_step_timing in s: 12.39 | consumed_samples: 6400
    Epoch 0: : 9%|... reduced_train_loss=10.9, global_step=8.000, ..., train_step_timing in s=10.20]

The time is that of one step. What follows it is demanded, since a cut number is another one: the
first line of NeMo 2 ends with its time and is left out.
"""

from __future__ import annotations

import re

from scalewise.logs.line import StepLine

LINES = (
    StepLine(
        framework="nemo",
        mark=b"train_step_timing in s: ",
        once=(b"iteration ", b"global_step: "),
        pattern=re.compile(
            rb"iteration \d+/\d+ \|[^\0]*?(?:global_batch_size: (?P<batch>\d+) \|[^\0]*?)?"
            rb"global_step: (?P<step>\d+) \|[^\0]*?(?:peak_memory_usage: (?P<bytes>\d+) \|[^\0]*?)?"
            rb"(?:reduced_train_loss: (?P<loss>[-\d.e+]+) \|[^\0]*?)?"
            rb"train_step_timing in s: (?P<seconds>[\d.]+(?:e[+-]?\d+)?) \|"
        ),
        memory="allocated",
    ),
    StepLine(
        framework="nemo",
        mark=b"train_step_timing in s=",
        once=(b"global_step=",),
        pattern=re.compile(
            rb"(?:reduced_train_loss=(?P<loss>[-\d.e+]+), [^\0]*?)?"
            rb"global_step=(?P<step>\d+)\.0*, [^\0]*?"
            rb"train_step_timing in s=(?P<seconds>[\d.]+(?:e[+-]?\d+)?)[,\]]"
        ),
    ),
)
