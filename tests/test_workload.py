"""Workloads: what they derive and what they refuse."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draws import wild
from scalewise.errors import InputError
from scalewise.precision import PRECISIONS
from scalewise.workload import Workload


def test_tokens_per_step():
    assert Workload(seq_len=4096, global_batch=1024).tokens_per_step == 4_194_304


def test_defaults():
    workload = Workload(seq_len=1, global_batch=1)
    assert (workload.precision, workload.tokens) == ("bf16", None)
    assert (workload.imbalance, workload.capacity) == (1.0, None)
    assert (workload.optimizer, workload.weights, workload.loss) == ("adamw", "mixed", None)


def test_precisions():
    assert PRECISIONS == (
        "bf16", "fp16", "fp8", "fp8row", "fp8block", "mxfp8", "nvfp4", "tf32", "fp32",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq_len", 0),
        ("seq_len", -4096),
        ("seq_len", 4096.0),
        ("seq_len", "4096"),
        ("seq_len", 2**27 + 1),
        ("global_batch", 0),
        ("global_batch", None),
        ("global_batch", 2**27 + 1),
        ("imbalance", 0.99),
        ("imbalance", 1025.0),
        ("imbalance", None),
        ("imbalance", math.nan),
        ("imbalance", True),
        ("capacity", 0.09),
        ("capacity", 1025.0),
        ("capacity", "full"),
        ("capacity", math.inf),
    ],
)
def test_refusals_name_field_and_value(field, value):
    fields = {"seq_len": 4096, "global_batch": 1024} | {field: value}
    with pytest.raises(InputError, match=f"{field} = ") as caught:
        Workload(**fields)
    assert str(value) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("imbalance", 1), ("imbalance", 1024.0), ("capacity", 0.1), ("capacity", 1024.0),
    ],
)  # fmt: skip
def test_bounds_themselves_are_fine(field, value):
    workload = Workload(seq_len=4096, global_batch=1024, **{field: value})
    assert getattr(workload, field) == value


@pytest.mark.parametrize("tokens", [0.0, -2e12, math.nan, math.inf, "many"])
def test_an_impossible_token_budget_is_refused(tokens):
    with pytest.raises(InputError, match="tokens") as caught:
        Workload(seq_len=4096, global_batch=1024, tokens=tokens)
    assert caught.value.hint


@pytest.mark.parametrize("precision", [None, 16, [], "bf15", "x" * 1000])
def test_a_precision_must_be_a_known_word(precision):
    with pytest.raises(InputError, match="unknown precision ") as caught:
        Workload(seq_len=1, global_batch=1, precision=precision)
    assert len(str(caught.value)) < 200


def test_unknown_precision_gets_a_suggestion():
    with pytest.raises(InputError) as caught:
        Workload(seq_len=1, global_batch=1, precision="bf61")
    assert "`bf16`" in caught.value.hint


def test_limits_are_inclusive():
    assert Workload(seq_len=2**27, global_batch=2**27).tokens_per_step == 2**54


@given(
    st.fixed_dictionaries(
        {"seq_len": wild(), "global_batch": wild()},
        optional={"precision": wild(), "tokens": wild()},
    )
)
@example({"seq_len": 10**5000, "global_batch": 1})
@example({"seq_len": True, "global_batch": 1})
@example({"seq_len": 1, "global_batch": 1, "tokens": "many"})
@example({"seq_len": 1, "global_batch": 1, "tokens": math.inf})
@example({"seq_len": 1, "global_batch": 1, "tokens": True})
@example({"seq_len": 1, "global_batch": 1, "precision": []})
@example({"seq_len": 1, "global_batch": 1, "precision": 10**5000})
def test_wild_fields_give_a_sound_workload_or_an_input_error(fields):
    try:
        workload = Workload(**fields)
    except InputError:
        return
    assert type(workload.seq_len) is int
    assert type(workload.global_batch) is int
    assert 1 <= workload.tokens_per_step <= 2**54
    assert workload.precision in PRECISIONS
    if workload.tokens is not None:
        assert not isinstance(workload.tokens, bool)
        assert 0 < workload.tokens < math.inf
