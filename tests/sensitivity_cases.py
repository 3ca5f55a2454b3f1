"""Upgrades with round numbers, for the tests of their views."""

from __future__ import annotations

from functools import cache

from scalewise import Workload, estimate, load_cluster, load_model, parse_strategy
from scalewise.explore.sensitivity import Sensitivity


def row(name, gain, **changes):
    """One change."""
    facts = {
        "name": name, "part": "chip", "means": "buy", "upgrade": "2 x", "gain": gain,
        "energy_gain": gain / 2, "cost_gain": gain, "elasticity": gain * 0.9,
        "energy_elasticity": gain * 0.5, "cost_elasticity": gain * 0.9, "strategy": "fsdp8-mb2",
    }  # fmt: skip
    return Sensitivity(**(facts | changes))


BLANK = Sensitivity(
    name="HBM capacity", part="chip", means="buy", upgrade="2 x", note="changes only what fits"
)
ROWS = [
    row("hop latency", 0.4, means="build"),
    row("HBM bandwidth", 0.25),
    row("tree all-reduce", 0.1, means="set", upgrade="always"),
    row("power cap", -0.1, means="set"),
    BLANK,
]


@cache
def small_step():
    """The estimate that the changes start from."""
    return estimate(
        load_model("llama-2-7b"),
        load_cluster("dgx-h100", 8),
        Workload(seq_len=4096, global_batch=16),
        parse_strategy("fsdp8-mb2"),
        stack="megatron",
    )
