"""Memory of small cases, byte by byte."""

import numpy as np
import pytest

from scalewise.step.memory import activation_bytes, in_flight, peak_memory
from toys import (
    EDGE_PARAMS,
    EXPERT_PARAMS,
    LAYER_PARAMS,
    SPARSE_PARAMS,
    case_of,
    one,
    sparse_case_of,
    toy_cluster,
    toy_experts,
    toy_model,
    toy_stack,
    toy_workload,
)

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


@pytest.mark.parametrize(
    ("spelling", "copied"), [("fsdp8", 0), ("fsdp8-offopt-offparam", 4), ("fsdp8-pf0", 0)]
)
def test_all_gathers_without_a_limit(spelling, copied):
    # All four blocks, with their 16-bit shards, and the fp32 copies of offloaded ones.
    parts = parts_of(spelling, stack=toy_stack(limits_all_gathers=False))
    expected = (4 * (2 + (2 + copied) / 8) + 4) * LAYER_PARAMS
    assert parts["all_gather_buffers"] == pytest.approx(expected)


def test_gradients_appear_as_activations_go():
    stack = toy_stack(frees_gradients=True)
    # 379 MB of activations and logits but one layer's when forward ends; then 505 MB of gradients.
    small = parts_of("ddp1", stack=stack, workload=toy_workload(global_batch=1))
    assert (small["gradients"], small["logits"]) == (4 * PARAMS, 0)
    assert small["activations"] == LAYER_ACTIVATIONS
    # Two sequences: 739 MB of activations and logits are more than the gradients.
    large = parts_of("ddp1-mb2", stack=stack, workload=toy_workload(global_batch=2))
    assert (large["gradients"], large["logits"]) == (0, 2 * LOGITS)
    assert large["activations"] == 8 * LAYER_ACTIVATIONS


@pytest.mark.parametrize(("spelling", "batch"), [("ddp1", 2), ("ddp8", 8), ("fsdp8", 8)])
def test_gradients_stay_beside_activations(spelling, batch):
    # Of earlier micro-batches; in buckets of DDP; on the stream of FSDP's reductions.
    work = toy_workload(global_batch=batch)
    kept = parts_of(spelling, workload=work)
    assert parts_of(spelling, stack=toy_stack(frees_gradients=True), workload=work) == kept


def test_gathered_blocks_in_eight_bits():
    assert parts_of("fsdp8-fp8-gatherfp8")["all_gather_buffers"] == (2 + 4) * LAYER_PARAMS


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


def test_quantized_inputs_are_kept_with_their_scales():
    words = ("fsdp8", "fsdp8-fp8", "fsdp8-fp8row", "fsdp8-fp8block", "fsdp8-fp8-fp8attn")
    stored, _ = activation_bytes(case_of(*words))
    # Inputs of the four GEMMs: 2 h + q + ffn per token; 4 bytes of scales per 128 of them.
    inputs = 1000 * (2 * 1024 + 1024 + 4096)
    eight, blocks = LAYER_ACTIVATIONS - inputs, LAYER_ACTIVATIONS - inputs + inputs / 32
    expected = [LAYER_ACTIVATIONS, eight, eight, blocks, eight]
    assert np.asarray(stored).tolist() == pytest.approx(expected, rel=1e-12)


def test_activations_of_unfused_attention():
    # Five bytes per score (two of the softmax, two and one of the dropout) unless recomputed.
    scores = 5 * 1000 * 1000 * 8
    case = case_of("fsdp8", "fsdp8-acsel", stack=toy_stack(attention_kernel="unfused"))
    stored, _ = activation_bytes(case)
    assert np.asarray(stored).tolist() == [LAYER_ACTIVATIONS + scores, LAYER_ACTIVATIONS]


def test_scores_in_fp32_are_kept_with_a_copy():
    stack = toy_stack(attention_kernel="unfused", upcast_scores=True)
    stored, _ = activation_bytes(case_of("fsdp8", stack=stack))
    assert np.asarray(stored).tolist() == [LAYER_ACTIVATIONS + 6 * 1000 * 1000 * 8]


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


def sparse_parts_of(spelling, **toys):
    case = sparse_case_of(spelling, **toys)
    return {name: one(part) for name, part in peak_memory(case).parts().items()}


@pytest.mark.parametrize(
    ("spelling", "experts", "shards", "expert_shards"),
    [
        ("ddp8", 1.0, 1, 1),
        ("ddp8-ep4", 1 / 4, 1, 1),
        ("ddp8-ep4-etp2", 1 / 8, 1, 1),
        ("zero1x8-ep4", 1 / 4, 8, 2),
        ("zero1x8-ep8", 1 / 8, 8, 1),
        ("zero1x2x4-ep8", 1 / 8, 4, 1),
        ("zero1x2x4-ep2", 1 / 2, 4, 2),
    ],
)
def test_experts_are_sharded_over_ranks_that_hold_the_same(
    spelling, experts, shards, expert_shards
):
    parts = sparse_parts_of(spelling)
    dense, own = 4 * SPARSE_PARAMS + 2 * EDGE_PARAMS, 4 * EXPERT_PARAMS * experts
    assert parts["parameters"] == 2 * (dense + own)
    assert parts["gradients"] == 4 * (dense + own)
    assert parts["optimizer"] == pytest.approx(12 * (dense / shards + own / expert_shards))


def test_fully_sharded_experts():
    # 32-bit master weights are the parameters; 2 of 8 experts over 2 ranks, the rest over 8.
    parts = sparse_parts_of("fsdp8-ep4")
    held = (4 * SPARSE_PARAMS + 2 * EDGE_PARAMS) / 8 + 4 * EXPERT_PARAMS / 4 / 2
    assert parts["parameters"] + parts["gradients"] + parts["optimizer"] == pytest.approx(16 * held)
    block = SPARSE_PARAMS + EXPERT_PARAMS / 4
    assert parts["all_gather_buffers"] == (2 * 2 + 4) * block


LAYERS_PARAMS = 4 * (SPARSE_PARAMS + EXPERT_PARAMS)


@pytest.mark.parametrize(
    ("words", "of_layers", "of_edges"),
    [
        ({}, 12.0, 12.0),
        ({"optimizer": "adamw-bf16"}, 8.0, 8.0),
        ({"optimizer": "adamw-8bit"}, 6.03, 6.03),
        ({"optimizer": "paged-adamw-8bit"}, 4.0, 4.0),
        ({"optimizer": "sgd"}, 4.0, 4.0),
        ({"optimizer": "muon"}, 8.0, 12.0),
        ({"weights": "bf16"}, 8.0, 8.0),
        ({"optimizer": "lion", "weights": "fp32"}, 4.0, 4.0),
    ],
)
def test_optimizer_state_by_word(words, of_layers, of_edges):
    parts = sparse_parts_of("ddp8", workload=toy_workload(**words))
    assert parts["optimizer"] == pytest.approx(
        of_layers * LAYERS_PARAMS + of_edges * 2 * EDGE_PARAMS
    )


@pytest.mark.parametrize(
    ("weights", "stored", "gradients"),
    [("mixed", 2.0, 4.0), ("bf16", 2.0, 2.0), ("fp32", 4.0, 4.0)],
)
def test_storage_of_parameters(weights, stored, gradients):
    parts = sparse_parts_of("ddp8", workload=toy_workload(weights=weights))
    assert parts["parameters"] == stored * (LAYERS_PARAMS + 2 * EDGE_PARAMS)
    assert parts["gradients"] == gradients * (LAYERS_PARAMS + 2 * EDGE_PARAMS)


@pytest.mark.parametrize(
    ("loss", "fraction"), [("full", 1.0), ("chunked", 1 / 8), ("fused", 1 / 32)]
)
def test_logits_by_loss(loss, fraction):
    whole, own = (parts_of("fsdp8", workload=toy_workload(loss=each)) for each in (None, loss))
    assert own["logits"] == fraction * whole["logits"]


# No MLP; two copies of a token with their inputs, both halves of the gated product, its output.
ATTENTION = 4 * 1024 + 2 * 1024 + 2 * 256
COPIES = 2 * (1024 + 3 * 2048)


def test_activations_of_experts():
    stored, _ = activation_bytes(sparse_case_of("fsdp8-ep4"))
    assert one(stored) == 2 * 1000 * (ATTENTION + COPIES)
    # Two ranks split each expert: twice the copies, half the width.
    stored, _ = activation_bytes(sparse_case_of("fsdp8-ep4-etp2"))
    assert one(stored) == 2 * 1000 * (ATTENTION + 4 * (1024 + 3 * 1024))
    busy = sparse_case_of("fsdp8-ep4", workload=toy_workload(imbalance=1.5))
    assert one(activation_bytes(busy)[0]) == 2 * 1000 * (ATTENTION + 1.5 * COPIES)


def test_activations_of_mixed_layers():
    # One dense layer of four; shared experts are an MLP of every token.
    moe = {"layers": 3, "shared_experts": 1}
    stored, _ = activation_bytes(sparse_case_of("fsdp8-ep4", model=toy_experts(moe)))
    mlp = 0.25 * 3 * 4096 + 0.75 * (3 * 2048 + COPIES)
    assert one(stored) == 2 * 1000 * (ATTENTION + mlp)


@pytest.mark.parametrize(
    ("token", "spared"),
    [
        ("acnorm", 2 * 1024),  # the outputs of both norms
        ("acact", 0.75 * 2 * 2048),
        ("acmlp", 0.25 * 3 * 4096),
        ("acnorm-acact-acmlp", 2 * 1024 + 0.75 * 2 * 2048 + 0.25 * 3 * 4096),
    ],
)
def test_modules_spare_what_they_recompute(token, spared):
    model = toy_experts({"layers": 3})
    whole, less = (
        one(activation_bytes(sparse_case_of(spelling, model=model))[0])
        for spelling in ("fsdp8-ep4", f"fsdp8-ep4-{token}")
    )
    assert whole - less == 2 * 1000 * spared


def test_op_recompute_keeps_the_inputs_of_experts():
    # Besides the rest of the layer: the copies of a token, and one of both halves of the gate.
    stored, whole = activation_bytes(sparse_case_of("fsdp8-ep4-acop"))
    kept = 2 * 1024 + 2 * 1024 + 256 + 2 * (1024 + 2048)
    assert one(stored) == 2 * 1000 * kept
    assert one(stored) < one(whole)


def test_predicting_more_tokens_keeps_more_logits():
    one_more = parts_of("ddp8-mb1", model=toy_model(mtp_layers=1))
    assert one_more["logits"] == 2 * LOGITS
    # A layer, a projection of 2 x 1024 to 1024, and three norms.
    more = LAYER_PARAMS + 2 * 1024 * 1024 + 3 * 1024
    assert one_more["parameters"] == 2 * (PARAMS + more)
    assert toy_model(mtp_layers=1).mtp_parameters == more
