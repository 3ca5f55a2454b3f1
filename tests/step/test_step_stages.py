"""Layers by stage, against what frameworks do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.errors import InputError
from scalewise.model import load_model
from scalewise.step.stages import stage_layers
from toys import toy_model


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (32, 1, (32, 32, 32)),
        (32, 8, (4, 4, 4)),
        # Embedding and head count as a layer each: Llama 3.1 405B has 126 layers for 8 stages.
        (126, 8, (15, 16, 15)),
        (126, 16, (7, 8, 7)),
        # The head alone counts as one.
        (31, 8, (4, 4, 3)),
        (95, 8, (12, 12, 11)),
        # Nothing divides: the extra layers go to the middle.
        (32, 5, (6, 7, 6)),
        (4, 4, (1, 1, 1)),
        (4, 3, (1, 2, 1)),
    ],
)
def test_even(layers, stages, expected):
    assert stage_layers(toy_model(layers=layers), stages) == expected


@pytest.mark.parametrize(("stages", "fullest"), [(2, 18), (4, 9), (8, 5), (16, 3), (32, 2)])
def test_filled_by_flops(stages, fullest):
    # 32 layers and a head that weighs 2.2 of them.
    model = load_model("llama-like-8b")
    first, middle, last = stage_layers(model, stages, rule="flops")
    assert middle == fullest
    assert max(first, last) <= fullest
    assert last <= first


def test_the_first_and_last_stage_can_be_fixed():
    model = toy_model(layers=32)
    assert stage_layers(model, 4, first=3) == (3, 10, 9)
    assert stage_layers(model, 4, first=2, last=2) == (2, 14, 2)
    assert stage_layers(model, 2, first=20, last=12) == (20, 20, 12)
    first, _, last = stage_layers(model, 2, last=5)
    assert (first, last) == (27, 5)


def test_fixed_stages_need_no_rule():
    model = toy_model(layers=32)
    assert stage_layers(model, 4, rule="flops", first=2, last=2) == (2, 14, 2)


@pytest.mark.parametrize(
    ("stages", "fixed", "says"),
    [
        (33, {}, "pp = 33 is more stages than the 32 layers of toy"),
        (4, {"first": 31}, "leave 1 layers for 3 other stages"),
        (4, {"first": 40}, "first_stage_layers = 40"),
        (2, {"first": 8, "last": 8}, "leave 16 layers for 0 other stages"),
        (4, {"last": 30}, "last_stage_layers = 30"),
    ],
)
def test_impossible_stages(stages, fixed, says):
    with pytest.raises(InputError, match=says) as caught:
        stage_layers(toy_model(layers=32), stages, **fixed)
    assert caught.value.hint


@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(("even", "flops")))
def test_stages_hold_all_layers(layers, stages, rule):
    if stages > layers:
        stages, layers = layers, stages
    first, middle, last = stage_layers(toy_model(layers=layers), stages, rule=rule)
    assert 0 <= last <= middle
    assert 1 <= first <= middle
    # The named stages and no more than the fullest middle ones hold every layer.
    if stages == 1:
        assert first == middle == last == layers
    else:
        assert first + last <= layers <= first + last + (stages - 2) * middle


@given(st.integers(2, 100), st.integers(2, 100))
def test_even_is_as_even_as_it_can_be(layers, stages):
    if stages > layers:
        stages, layers = layers, stages
    first, middle, last = stage_layers(toy_model(layers=layers), stages)
    assert middle == -(-layers // stages)
    assert min(first, last) >= middle - 1
