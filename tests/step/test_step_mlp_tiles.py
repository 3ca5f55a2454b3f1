"""MLPs in tiles of the sequence: products, recompute and memory, number by number."""

import itertools

import numpy as np
import pytest
from hypothesis import given

from draws import points
from scalewise.errors import InputError
from scalewise.explore.space import Limits, pieces
from scalewise.physics.compute import gemm_seconds
from scalewise.step import mlp_tiles
from scalewise.step.estimate import estimate
from scalewise.step.flops import recompute_flops
from scalewise.step.kernels import gemms, layer_kernels
from scalewise.step.memory import activation_bytes, peak_memory
from scalewise.strategy import parse_strategy
from toys import (
    case_of,
    one,
    sparse_case_of,
    toy_cluster,
    toy_experts,
    toy_model,
    toy_stack,
    toy_workload,
)

ROUNDING = 1e-9
CHIP = {"rate": 100e12, "units": 100.0, "memory_rate": 1e12}


def test_products_of_the_mlp_run_once_per_tile():
    whole, tiled = gemms(case_of("fsdp8")), gemms(case_of("fsdp8-tilemlp4"))
    # Rows of 250 tokens; gradients of weights are 250 deep.
    assert one(tiled.up) == pytest.approx(4 * float(gemm_seconds(250.0, 8192.0, 1024.0, **CHIP)))
    assert one(tiled.down) == pytest.approx(4 * float(gemm_seconds(250.0, 1024.0, 4096.0, **CHIP)))
    wgrad = 4 * float(gemm_seconds(8192.0, 1024.0, 250.0, **CHIP))
    assert one(tiled.up_wgrad) == pytest.approx(wgrad)
    for name in ("qkv", "out", "qkv_wgrad", "out_dgrad", "head", "head_wgrad"):
        assert one(getattr(tiled, name)) == one(getattr(whole, name))


def test_backward_repeats_the_forward_of_the_mlp():
    case = case_of("fsdp8-tilemlp4")
    t = gemms(case)
    # 3 x 4096 elements of 16 bits per token are read and written by the activation.
    streamed = 2.0 * 1000 * 3 * 4096 / 1e12
    again = one(t.up) + one(t.down) + streamed
    assert one(mlp_tiles.repeated_seconds(case, t)) == pytest.approx(again)
    assert one(layer_kernels(case).recompute) == pytest.approx(again)
    # Whole blocks repeat all of forward as well, the last product included.
    full = layer_kernels(case_of("fsdp8-tilemlp4-acfull"))
    forward = one(full.gemm_forward + full.memory_forward + full.attention_forward)
    assert one(full.recompute) == pytest.approx(forward + again)
    untiled = layer_kernels(case_of("fsdp8-acfull"))
    assert one(untiled.recompute) < one(untiled.forward)


def test_flops_of_the_repeated_mlp_count_in_hfu():
    # 6 x 1024 x 4096 of four layers.
    model = toy_model()
    found = recompute_flops(case_of("fsdp8-tilemlp4"), model, 1000)
    assert one(found) == 4 * 6 * 1024 * 4096
    both = recompute_flops(case_of("fsdp8-tilemlp4-acmlp"), model, 1000)
    assert one(both) == one(found)


def test_one_tile_of_one_layer_is_in_memory():
    # 3 x 4096 elements of 16 bits for each of 1000 tokens are not kept.
    wide = 2 * 1000 * 3 * 4096
    whole, tiled = case_of("fsdp8"), case_of("fsdp8-tilemlp4")
    assert one(activation_bytes(whole)[0]) - one(activation_bytes(tiled)[0]) == wide
    assert one(mlp_tiles.tile_bytes(tiled)) == wide / 4
    saved = one(peak_memory(whole).activations) - one(peak_memory(tiled).activations)
    assert saved == 4 * wide - wide / 4
    # With full recompute one layer is complete, but for the MLP.
    whole, tiled = case_of("fsdp8-acfull"), case_of("fsdp8-acfull-tilemlp8")
    saved = one(peak_memory(whole).activations) - one(peak_memory(tiled).activations)
    assert saved == wide - wide / 8


def test_op_recompute_repeats_and_keeps_the_rest_of_the_layer():
    whole, tiled = case_of("fsdp8-acop"), case_of("fsdp8-acop-tilemlp4")
    # The gate's output, 4096 elements per token and layer, is not kept.
    saved = one(activation_bytes(whole)[0]) - one(activation_bytes(tiled)[0])
    assert saved == 2 * 1000 * 4096
    # Of q, k, v, out: key and out; up belongs to the tiles.
    kernels = layer_kernels(tiled)
    share = (1024 + 256) / (2 * (1024 + 256) + 3 * 4096)
    again = share * one(kernels.gemm_forward) + one(kernels.memory_forward)
    tiles = one(mlp_tiles.repeated_seconds(tiled, gemms(tiled)))
    assert one(kernels.recompute) == pytest.approx(again + tiles)


def test_experts_are_not_tiled():
    plain, tiled = sparse_case_of("fsdp8-ep4"), sparse_case_of("fsdp8-ep4-tilemlp4")
    assert one(layer_kernels(tiled).recompute) == 0.0
    assert one(peak_memory(tiled).total) == one(peak_memory(plain).total)


@pytest.mark.parametrize(
    ("spelling", "model", "message"),
    [
        ("fsdp8-tilemlp4", toy_experts(), "mlp_tiles = 4 needs dense MLPs"),
        ("fsdp8-tilemlp2000", toy_model(), "mlp_tiles = 2000 is more than the 1,000 tokens"),
    ],
)
def test_tiles_of_nothing_are_refused(spelling, model, message):
    with pytest.raises(InputError, match=message):
        estimate(model, toy_cluster(), toy_workload(), parse_strategy(spelling), stack=toy_stack())


def test_the_token_of_tiles():
    assert parse_strategy("fsdp8-mb1-tilemlp8").mlp_tiles == 8
    assert str(parse_strategy("tilemlp8-fsdp8")) == "fsdp8-mb1-tilemlp8"
    assert str(parse_strategy("fsdp8-tilemlp1")) == "fsdp8-mb1"
    with pytest.raises(InputError, match="mlp_tiles = 0 must be a whole number"):
        parse_strategy("fsdp8-tilemlp0")


def test_a_search_tries_tiles_where_asked():
    of = toy_model(), toy_cluster(), toy_workload()

    def tried(limits):
        spaces = pieces(*of, limits)
        return {int(tiles) for space in spaces for tiles in np.ravel(space.mlp_tiles)}

    assert tried(Limits()) == {1}
    assert tried(Limits(mlp_tiles=(1, 4, 16))) == {1, 4, 16}
    with pytest.raises(InputError, match="mlp_tiles = "):
        Limits(mlp_tiles=(0,))


@given(points())
def test_more_tiles_never_need_more_memory_nor_less_time(point):
    # The recompute of whole MLPs has no memory of its own in the model.
    plain = [s.with_(recompute_modules="") for s in point.strategies]

    def of(tiles):
        return point.estimate(strategies=[s.with_(mlp_tiles=tiles) for s in plain])

    chain = [of(tiles) for tiles in (1, 2, 8, 64)]
    for fewer, more in itertools.pairwise(chain):
        assert np.all(more.memory_bytes <= fewer.memory_bytes * (1.0 + ROUNDING))
    for tiled in chain[1:]:
        assert np.all(tiled.step_seconds >= chain[0].step_seconds * (1.0 - ROUNDING))
