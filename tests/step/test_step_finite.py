"""Results that are no numbers are refused, by one estimate and by many alike."""

import math

import numpy as np
import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.fields import replace
from scalewise.model import load_model
from scalewise.stack import load_stack
from scalewise.step.estimate import estimate
from scalewise.step.finite import NotFiniteError
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

MODEL, CLUSTER = load_model("llama-2-7b"), load_cluster("dgx-h100", 64)
WORK = Workload(seq_len=4096, global_batch=1024)
FSDP = parse_strategy("fsdp64-mb2")


def priced(strategy, cluster=CLUSTER, **constants):
    stack = replace(load_stack("pytorch"), **constants)
    return estimate(MODEL, cluster, WORK, strategy, stack=stack)


@pytest.mark.parametrize("strategy", [FSDP, [FSDP, FSDP]], ids=["one", "many"])
@pytest.mark.parametrize(
    ("constant", "value"),
    [("attention_forward", 0.0), ("attention_forward", 5e-324)],
)
@pytest.mark.filterwarnings("error")
def test_a_time_that_is_not_finite_is_refused(strategy, constant, value):
    with pytest.raises(NotFiniteError, match=r"^llama-2-7b on dgx-h100: no finite time for \w+"):
        priced(strategy, **{constant: value})


CHIP = CLUSTER.accelerator.with_(tdp_watts=1e308, idle_watts=9e307)
HOT = CLUSTER.with_(accelerator=CHIP, pue=100.0)


@pytest.mark.filterwarnings("error")
def test_any_number_of_one_estimate_is_checked():
    with pytest.raises(NotFiniteError, match="facility watts per accelerator = inf"):
        priced(FSDP, HOT)


def test_a_row_of_many_is_checked_when_it_is_read():
    many = priced([FSDP], HOT)
    assert math.isfinite(many.step_seconds[0])
    with pytest.raises(NotFiniteError, match="= inf cannot be"):
        many[0]


def test_no_strategies_are_no_error():
    assert np.size(priced([FSDP]).step_seconds) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("congestion", -100.0), ("rail_scaling", -5.0), ("rail_scaling", 1.5),
        ("flat_domains", 0.0), ("latency_factor", 0.0), ("scatter_factor", math.nan),
        ("ring_step_seconds", -1e-6),
    ],
)  # fmt: skip
def test_a_fabric_has_physical_bounds(field, value):
    with pytest.raises(InputError, match=f"fabric `infiniband`: {field} = .* must be"):
        replace(CLUSTER.fabric, **{field: value})


def test_a_chip_has_as_many_units_as_the_largest_ever_built():
    with pytest.raises(InputError, match=r"compute_units = .* must be at most 1e\+06"):
        CLUSTER.accelerator.with_(compute_units=10**300)
