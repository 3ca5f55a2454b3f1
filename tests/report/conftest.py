"""Estimates for the tests of views, by constants that no calibration changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import report_cases
from report_cases import priced

CONSTANTS = Path(__file__).parent.parent / "data" / "catalog"
"""Stacks, chips and fabrics as they were calibrated on one day: literal text needs them."""


@pytest.fixture(autouse=True, scope="module")
def constants():
    """Take them before those that are shipped."""
    cached = [each for each in vars(report_cases).values() if hasattr(each, "cache_clear")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEWISE_CATALOG", str(CONSTANTS))
        for each in cached:
            each.cache_clear()
        yield
    for each in cached:
        each.cache_clear()


@pytest.fixture
def fsdp():
    """A fully sharded estimate as it comes."""
    return priced("fsdp")


@pytest.fixture
def literal(fsdp):
    """An estimate with round numbers, so that what is printed can be written down."""
    terms = dict.fromkeys(fsdp.terms, 0.0) | {
        "gemm": 0.5, "attention": 0.1, "contention": 0.25, "straggler": 0.15,
    }  # fmt: skip
    gib = 2.0**30
    memory = dict.fromkeys(fsdp.memory, 0.0) | {"activations": 30 * gib, "logits": 10 * gib}
    rate = 8192.0
    e = replace(
        fsdp,
        terms=terms,
        step_seconds=1.0,
        comm_seconds={**dict.fromkeys(fsdp.comm_seconds, 0.0), "data_parallel": 0.8},
        exposed={**dict.fromkeys(fsdp.exposed, 0.0), "data_parallel": 0.02},
        tokens_per_second=2048 * rate,
        tokens_per_second_per_accelerator=rate,
        tflops=395.6,
        mfu=0.4,
        hfu=0.4,
        peak_flops=989e12,
        memory=memory,
        memory_bytes=40 * gib,
        memory_low=35 * gib,
        memory_high=45 * gib,
        memory_capacity=80 * gib,
        fit=0.999,
        infeasible=None,
        watts_per_accelerator=620.0,
        facility_watts_per_accelerator=1200.0,
        joules_per_token=0.15,
        usd_per_hour=6144.0,
        usd_per_million_tokens=0.1017,
    )
    e.__dict__["interval"] = 7000.0, 9500.0
    return e
