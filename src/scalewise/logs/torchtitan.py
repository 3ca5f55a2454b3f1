"""Step lines of torchtitan.

    step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282 ... mfu: 0.17%

`tps` counts tokens/s per GPU: those of a data-parallel rank over the GPUs that share it. It is the
mean since the last line (`metrics.log_freq`), waiting for data and checkpoints included. `mfu` is
N/A with float8. Older versions print `wps`, and no gradient norm.
"""

from __future__ import annotations

import re

from scalewise.logs.line import NUMBER, StepLine

_STATES = (
    re.compile(
        rb"Trainer is initialized with local batch size \d+, global batch size (?P<batch>\d+),"
        rb" gradient.accumulation.steps:? \d+, sequence length (?P<seq>\d+),"
    ),
)

_BEFORE = (
    rb"step:\s*(?P<step>\d+)(?:/\d+ = [\d.]+%)?\s+loss:\s*(?P<loss>-?[\d.]+|-?nan|-?inf)"
    rb"\s+(?:[\w/]+:\s*[\w.+-]+\s+)*?memory:\s*(?P<gib>[\d.]+)GiB\([\d.]+%\)\s+"
)
_AFTER = rb"ps:\s*(?P<tps>" + NUMBER + rb")(?:\s+tflops:\s*[\d.,]+)?\s+mfu:\s*(?:[\d.]+%|N/A)"

LINES = tuple(
    StepLine(
        framework="torchtitan",
        mark=letter + b"ps: ",
        once=(b"step:", b"memory:"),
        pattern=re.compile(_BEFORE + letter + _AFTER),
        states=_STATES,
        memory="reserved",
        window=True,
    )
    for letter in (b"t", b"w")
)
