"""Many strategies: columns that hold exactly what the strategies held."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import any_strategy
from scalewise.errors import InputError
from scalewise.strategies import FIELDS, WORDS, Strategies, decode, encode, recompute_fraction
from scalewise.strategy import Strategy, parse_strategy

SPELLINGS = ("ddp8-mb2", "hsdp2x8-tp4-pp8-v2-acfull-fp8", "zero1x4-cp2ag-eager-ga3-reducebf16-pf0")


def test_one_strategy_is_numbers_instead_of_columns():
    strategy = Strategy(dp_shard=8, tp=2, recompute="full")
    one, column = Strategies.one(strategy), Strategies.of([strategy])
    assert (one.shape, len(one), one[0]) == ((), 1, strategy)
    assert {name: [getattr(one, name)] for name in FIELDS} == {
        name: getattr(column, name).tolist() for name in FIELDS
    }


def test_columns_by_hand():
    many = Strategies.of([parse_strategy(spelling) for spelling in SPELLINGS])
    assert len(many) == 3
    assert many.tp.tolist() == [1.0, 4.0, 1.0]
    assert many.sharding.tolist() == [0.0, 3.0, 1.0]
    assert many.schedule.tolist() == [1.0, 2.0, 1.0]
    assert many.recompute.tolist() == [0.0, 2.0, 0.0]
    assert many.precision.tolist() == [0.0, 3.0, 0.0]
    assert many.compiled.tolist() == [0.0, 0.0, 1.0]
    assert many.reduce_precision.tolist() == [0.0, 0.0, 2.0]
    assert many.num_microbatches.tolist() == [0.0, 0.0, 3.0]
    assert many.prefetch.tolist() == [1.0, 1.0, 0.0]
    assert many.cp_method.tolist() == [0.0, 0.0, 1.0]


@given(st.lists(any_strategy(), min_size=1, max_size=10))
def test_of_round_trips(strategies):
    many = Strategies.of(strategies)
    assert list(many) == strategies
    assert [many[row] for row in range(len(many))] == strategies
    assert all(getattr(many, field).shape == (len(strategies),) for field in FIELDS)


@given(any_strategy())
def test_codes_round_trip(strategy):
    for field in FIELDS:
        value = getattr(strategy, field)
        decoded = decode(field, encode(field, value))
        assert decoded == value
        assert type(decoded) is type(value)


@pytest.mark.parametrize("field", WORDS)
def test_every_word_has_its_own_code(field):
    assert [encode(field, word) for word in WORDS[field]] == list(range(len(WORDS[field])))


def test_columns_broadcast_scalars_and_defaults():
    many = Strategies.columns(
        tp=[1, 2, 4], dp_shard=[8, 4, 2], recompute="full", reshard_after_forward=False
    )
    expected = [
        Strategy(tp=tp, dp_shard=8 // tp, recompute="full", reshard_after_forward=False)
        for tp in (1, 2, 4)
    ]
    assert list(many) == expected


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("sharding", ["ddp", "zero1", "zero3"]),
        ("schedule", ["gpipe", "1f1b", "zbv"]),
        ("precision", [None, "bf16", "fp8"]),
        ("compiled", [None, True, False]),
        ("compiled", [True, False]),
        ("reduce_precision", ["bf16", "fp32"]),
        ("reshard_after_forward", [True, False]),
        ("num_microbatches", [None, 3]),
        ("prefetch", [0, 1, 2]),
    ],
)
def test_columns_take_words_and_numbers(field, values):
    many = Strategies.columns(**{field: values})
    assert [getattr(strategy, field) for strategy in many] == values


def test_columns_take_codes_as_arrays():
    many = Strategies.columns(sharding=np.array([0.0, 3.0]), tp=np.array([2, 2]))
    assert [strategy.sharding for strategy in many] == ["ddp", "zero3"]


def test_without_columns_there_is_one_default():
    assert list(Strategies.columns()) == [Strategy()]


def test_refusals():
    with pytest.raises(InputError, match="no strategy"):
        Strategies.of([])
    with pytest.raises(InputError, match=r"\[2, 3\]"):
        Strategies.columns(tp=[1, 2], pp=[1, 2, 4])
    with pytest.raises(InputError, match="no field 'tpp'") as caught:
        Strategies.columns(tpp=[1])
    assert "`tp`" in caught.value.hint
    with pytest.raises(InputError, match="unknown sharding zero9") as caught:
        Strategies.columns(sharding="zero9")
    assert "`zero1`" in caught.value.hint
    with pytest.raises(InputError, match="unknown precision fp7"):
        Strategies.columns(precision=["bf16", "fp7"])


@pytest.mark.parametrize(
    "columns",
    [
        {"tp": "x"},
        {"tp": [0, 1]},
        {"tp": [1, -2]},
        {"tp": [1.5]},
        {"tp": [[1, 2], [3, 4]]},
        {"dp_shard": [float("nan")]},
        {"sharding": [9]},
        {"prefetch": [-1]},
    ],
    ids=str,
)
def test_impossible_columns_are_input_errors(columns):
    with pytest.raises(InputError):
        Strategies.columns(**columns)


def test_no_such_attribute():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = Strategies.columns().nonsense


def test_blocks_that_recompute_have_codes_of_their_own():
    kinds = ("none", "selective", "full", "attention", "op", "1of4", "3of7", "1022of1023")
    codes = [encode("recompute", kind) for kind in kinds]
    assert codes == [0.0, 1.0, 2.0, 3.0, 4.0, 4097.0, 7171.0, 1048574.0]
    assert [decode("recompute", code) for code in codes] == list(kinds)
    fractions = recompute_fraction(np.array(codes)).tolist()
    assert fractions == [0.0, 0.0, 1.0, 0.0, 0.0, 0.25, 3 / 7, 1022 / 1023]
    assert Strategies.columns(recompute=["op", "1of4"])[1].recompute == "1of4"
