"""Layers by stage, against what frameworks do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.errors import InputError
from scalewise.model import load_model
from scalewise.step.stages import stage_layers
from toys import case_of, one, toy_cluster, toy_experts, toy_model


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


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        # DeepSeek-V3: four layers on each of 15 stages, one beside the prediction of more tokens.
        (61, 16, (4, 4, 1)),
        (61, 8, (8, 8, 5)),
        (61, 1, (61, 61, 61)),
        # Nothing is left for the last.
        (4, 3, (2, 2, 0)),
    ],
)
def test_before_multi_token_prediction(layers, stages, expected):
    assert stage_layers(toy_model(layers=layers, mtp_layers=1), stages) == expected


def stages_of(spelling, model, gpus=8):
    split = case_of(spelling, model=model, cluster=toy_cluster(gpus)).split
    layers = [one(each) for each in (split.first_layers, split.middle_layers, split.last_layers)]
    sparse = [one(each) for each in (split.first_sparse, split.middle_sparse, split.last_sparse)]
    return layers, sparse


def test_multi_token_prediction_is_a_layer_of_the_last_stage():
    assert stages_of("fsdp2-pp4", toy_model(layers=13, mtp_layers=1))[0] == [4, 4, 2]
    assert stages_of("fsdp8", toy_model(layers=13, mtp_layers=1))[0] == [14, 14, 14]


@pytest.mark.parametrize(
    ("spelling", "moe", "sparse"),
    [
        # Three dense layers of 16, in front: of four on the first stage one has experts.
        ("fsdp2-pp4", {"layers": 13}, [0.25, 1.0, 1.0]),
        # Spread evenly.
        ("fsdp2-pp4", {"layers": 8, "dense": "alternating"}, [0.5, 0.5, 0.5]),
        # More dense layers than the first stage has: the rest is a mean.
        ("fsdp2-pp4", {"layers": 9}, [0.0, 0.75, 0.75]),
        ("fsdp8", {"layers": 12}, [0.75, 0.75, 0.75]),
        ("fsdp2-pp4", {}, [1.0, 1.0, 1.0]),
    ],
)
def test_layers_with_experts_by_stage(spelling, moe, sparse):
    assert stages_of(spelling, toy_experts(moe, layers=16))[1] == sparse


@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from((1, 2, 4, 8)))
def test_layers_with_experts_add_up(count, dense, stages):
    layers = count + dense
    if stages > layers:
        return
    model = toy_experts({"layers": count}, layers=layers)
    (first, _, _), (of_first, others, of_last) = stages_of(f"fsdp{8 // stages}-pp{stages}", model)
    assert others == of_last
    if stages == 1:
        assert first * of_first == pytest.approx(count)
    else:
        assert first * of_first + (layers - first) * others == pytest.approx(count)
