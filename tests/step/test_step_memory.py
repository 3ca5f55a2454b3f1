"""Memory of small cases, byte by byte."""

import numpy as np
import pytest

from scalewise.step.memory import activation_bytes, in_flight, peak_memory
from toys import EDGE_PARAMS, LAYER_PARAMS, case_of, one, toy_cluster, toy_model, toy_stack

# All of the toy: four layers, embedding and head.
PARAMS = 4 * LAYER_PARAMS + 2 * EDGE_PARAMS
# 1000 tokens: norm inputs 4 h; queries and output 2 q, keys and values 2 kv; 3 ffn; two bytes.
LAYER_ACTIVATIONS = 1000 * 2 * (4 * 1024 + 2 * 1024 + 2 * 256 + 3 * 4096)
LOGITS = 8 * 1000 * 32_000
WORKSPACE = 1_000_000_000


def parts_of(spelling, **toys):
    return {
        name: one(part) for name, part in peak_memory(case_of(spelling, **toys)).parts().items()
    }


def test_the_numbers_above():
    assert (PARAMS, LAYER_ACTIVATIONS, LOGITS) == (126_361_600, 37_888_000, 256_000_000)


def test_data_parallel_keeps_everything():
    assert parts_of("ddp8-mb1") == pytest.approx(
        {
            "parameters": 2 * PARAMS,
            "gradients": 4 * PARAMS,
            "optimizer": 12 * PARAMS,
            "activations": 4 * LAYER_ACTIVATIONS,
            "logits": LOGITS,
            "all_gather_buffers": 0,
            "workspace": WORKSPACE,
            "fragmentation": 0,
        }
    )


@pytest.mark.parametrize(
    ("spelling", "parameters", "gradients", "optimizer"),
    [
        ("zero1x8", 2 * PARAMS, 4 * PARAMS, 12 * PARAMS / 8),
        ("zero2x8", 2 * PARAMS, 4 * PARAMS / 8, 12 * PARAMS / 8),
        # FSDP keeps its shard in fp32: 4 + 4 + 8 instead of 2 + 4 + 12.
        ("fsdp8", 4 * PARAMS / 8, 4 * PARAMS / 8, 8 * PARAMS / 8),
        ("hsdp2x4", 4 * PARAMS / 4, 4 * PARAMS / 4, 8 * PARAMS / 4),
        ("zero1x2x4", 2 * PARAMS, 4 * PARAMS, 12 * PARAMS / 4),
        # Context-parallel ranks shard too; tensor parallelism splits before.
        ("fsdp4-cp2", 4 * PARAMS / 8, 4 * PARAMS / 8, 8 * PARAMS / 8),
        ("fsdp4-tp2", 4 * PARAMS / 8, 4 * PARAMS / 8, 8 * PARAMS / 8),
        ("ddp4-tp2", 2 * PARAMS / 2, 4 * PARAMS / 2, 12 * PARAMS / 2),
    ],
)
def test_what_sharding_shards(spelling, parameters, gradients, optimizer):
    parts = parts_of(spelling)
    assert parts["parameters"] == pytest.approx(parameters)
    assert parts["gradients"] == pytest.approx(gradients)
    assert parts["optimizer"] == pytest.approx(optimizer)


@pytest.mark.parametrize(
    ("spelling", "blocks"),
    [("fsdp8", 2), ("fsdp8-pf0", 1), ("fsdp8-pf2", 3), ("fsdp8-pf9", 4), ("fsdp8-noreshard", 4)],
)
def test_gathered_blocks(spelling, blocks):
    # Gathered blocks at two bytes, one block of gradients at four.
    assert parts_of(spelling)["all_gather_buffers"] == pytest.approx(
        (2 * blocks + 4) * LAYER_PARAMS
    )


def test_fragmentation_is_a_share_of_the_rest():
    case = case_of("ddp8", stack=toy_stack(fragmentation=0.1))
    memory = peak_memory(case)
    rest = one(memory.total) - one(memory.fragmentation)
    assert one(memory.fragmentation) == pytest.approx(0.1 * rest)


def test_total_is_the_sum_in_order():
    memory = peak_memory(case_of("fsdp8", stack=toy_stack(fragmentation=0.07)))
    total = 0.0
    for part in memory.parts().values():
        total = total + one(part)
    assert one(memory.total) == total


def test_activations_of_a_layer():
    whole = LAYER_ACTIVATIONS
    stored, in_full = activation_bytes(case_of("fsdp8", "fsdp8-acsel", "fsdp8-acfull"))
    # Fused attention: selective recompute has nothing to drop; full keeps the layer's input.
    assert np.asarray(stored).tolist() == [whole, whole, 2 * 1000 * 1024]
    assert np.asarray(in_full).tolist() == [whole] * 3


def test_activations_of_unfused_attention():
    # Five bytes per score (two of the softmax, two and one of the dropout) unless recomputed.
    scores = 5 * 1000 * 1000 * 8
    case = case_of("fsdp8", "fsdp8-acsel", stack=toy_stack(attention_kernel="unfused"))
    stored, _ = activation_bytes(case)
    assert np.asarray(stored).tolist() == [LAYER_ACTIVATIONS + scores, LAYER_ACTIVATIONS]


def test_activations_under_tensor_parallelism():
    # Everything is split with sequence parallelism; without it the 4 h of norm inputs are not.
    stored, _ = activation_bytes(case_of("fsdp4-tp2", "fsdp4-tp2-nosp"))
    narrow = 1000 * 2 * (2 * 1024 + 2 * 256 + 3 * 4096) / 2
    expected = [LAYER_ACTIVATIONS / 2, narrow + 1000 * 2 * 4 * 1024]
    assert np.asarray(stored).tolist() == expected


@pytest.mark.parametrize(
    ("spelling", "stage", "flight"),
    [
        ("fsdp2-pp4", 0, 4),  # 8 micro-batches: as many as stages behind it
        ("fsdp2-pp4", 1, 3),
        ("fsdp2-pp4", 3, 1),
        ("fsdp2-pp4-v2", 0, 4 + 3 / 2),  # interleaving keeps (pp - 1) / v more
        ("fsdp2-pp4-v2", 3, 1),
        ("fsdp2-pp4-gpipe", 0, 8),  # all of them
        ("fsdp2-pp4-gpipe", 3, 8),
        ("fsdp2-pp4-mb4", 0, 2),  # never more than there are
        ("fsdp8", 0, 1),
    ],
)
def test_micro_batches_in_flight(spelling, stage, flight):
    model = toy_model(layers=8)
    assert one(in_flight(case_of(spelling, model=model), float(stage))) == flight


def test_the_fullest_stage_is_returned():
    # Eight layers on 4 stages, data parallel 2, 8 micro-batches. First: four micro-batches of two
    # layers and the embedding. Last: one micro-batch, the head, the logits.
    model, cluster = toy_model(layers=8, vocab=8000), toy_cluster(8)
    parts = parts_of("ddp2-pp4", model=model, cluster=cluster)
    states = 18 * (2 * LAYER_PARAMS + EDGE_PARAMS // 4)
    first = states + 2 * 4 * LAYER_ACTIVATIONS + WORKSPACE
    assert first > states + 2 * LAYER_ACTIVATIONS + LOGITS // 4 + WORKSPACE
    assert sum(parts.values()) == pytest.approx(first)
    assert parts["logits"] == 0.0
    # A longer vocabulary turns it around.
    parts = parts_of("ddp2-pp4", model=toy_model(layers=8), cluster=cluster)
    states = 18 * (2 * LAYER_PARAMS + EDGE_PARAMS)
    last = states + 2 * LAYER_ACTIVATIONS + LOGITS + WORKSPACE
    assert last > states + 2 * 4 * LAYER_ACTIVATIONS + WORKSPACE
    assert sum(parts.values()) == pytest.approx(last)
    assert parts["logits"] == LOGITS


def test_a_stage_the_user_fills_is_the_fullest():
    # Five layers on the first of four stages; each of the others has one.
    model = toy_model(layers=8)
    parts = parts_of("ddp2-pp4-first5", model=model)
    assert parts["parameters"] == pytest.approx(2 * (5 * LAYER_PARAMS + EDGE_PARAMS))
    assert parts["activations"] == pytest.approx(5 * 4 * LAYER_ACTIVATIONS)


def test_recompute_holds_one_layer_in_full():
    # Four layers, one micro-batch: three keep their input only, one is there in full.
    parts = parts_of("fsdp8-acfull")
    assert parts["activations"] == pytest.approx(3 * 2 * 1000 * 1024 + LAYER_ACTIVATIONS)
    # Nothing to drop, nothing gained.
    assert parts_of("fsdp8-acsel") == parts_of("fsdp8")


def test_a_tied_head_is_a_second_copy_on_the_last_stage():
    tied, untied = toy_model(layers=4, tied=True), toy_model(layers=4)
    alone = parts_of("ddp8", model=tied)
    assert alone["parameters"] == pytest.approx(2 * (4 * LAYER_PARAMS + EDGE_PARAMS))
    split = [parts_of("ddp2-pp4-mb8", model=model) for model in (tied, untied)]
    assert split[0] == pytest.approx(split[1])
