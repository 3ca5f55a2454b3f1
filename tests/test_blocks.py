"""Experts, latent attention, multi-token prediction: counts by kind of layer, and as published."""

import pytest

from scalewise.fields import replace
from scalewise.model import Model, Moe, load_model

# Total and active parameters in 1e9 as publishers print them, and what their active count leaves
# out: nothing, the input embedding ("input"), or both vocabulary tables ("tables").
PUBLISHED = {
    "deepseek-moe-16b": (16.4, 2.8, ""),  # arXiv 2401.06066
    "deepseek-v2": (236, 21, ""),  # arXiv 2405.04434
    "deepseek-v2-lite": (15.7, 2.4, "input"),  # arXiv 2405.04434, appendix B
    "deepseek-v3": (671, 37, ""),  # arXiv 2412.19437
    "ernie-4.5-300b-a47b": (300, 47, "input"),  # ERNIE 4.5 technical report
    "glm-4.5": (355, 32, "tables"),  # arXiv 2508.06471
    "glm-4.5-air": (106, 12, "tables"),
    "gpt-oss-20b": (20.91, 3.61, "input"),  # arXiv 2508.10925, table 1
    "gpt-oss-120b": (116.83, 5.13, "input"),
    "granite-3.0-3b-a800m": (3.3, 0.8, "input"),  # model card
    "hunyuan-a13b": (80, 13, ""),  # model card
    "kimi-k2": (1040, 32.6, ""),  # arXiv 2507.20534
    "llama-4-maverick": (400, 17, ""),  # model card
    "llama-4-scout": (109, 17, ""),  # with the vision tower, which is not counted here
    "minimax-m2": (230, 10, "tables"),  # model card
    "mixtral-8x7b": (46.7, 12.9, ""),  # arXiv 2401.04088
    "mixtral-8x22b": (141, 39, ""),  # release notes
    "olmoe-1b-7b": (6.9, 1.3, ""),  # arXiv 2409.02060
    "qwen1.5-moe-a2.7b": (14.3, 2.7, ""),  # model card
    "qwen2-57b-a14b": (57.4, 14, ""),  # arXiv 2407.10671
    "qwen3-30b-a3b": (30.5, 3.3, ""),  # model card
    "qwen3-235b-a22b": (235, 22, ""),
    "qwen3-coder-480b-a35b": (480, 35, ""),
}


def small(**fields):
    shape = {"name": "x", "layers": 2, "hidden": 8, "heads": 4, "ffn": 16, "vocab": 10}
    return Model(**(shape | fields))


def active(model, left_out):
    count = model.active_parameters
    if left_out:
        count -= model.embedding_parameters
    return count - (model.head_parameters if left_out == "tables" else 0)


@pytest.mark.parametrize(("name", "row"), PUBLISHED.items())
def test_parameters_as_published(name, row):
    # Two digits: half a unit of the last is up to 2.5 % of "20".
    model = load_model(name)
    assert model.parameters == pytest.approx(row[0] * 1e9, rel=0.025)
    assert active(model, row[2]) == pytest.approx(row[1] * 1e9, rel=0.025)


def test_parameters_of_moonlight_without_tables():
    # arXiv 2502.16982: 15.29 B in all and 2.24 B active, both without the vocabulary tables.
    model = load_model("moonlight-16b-a3b")
    tables = model.embedding_parameters + model.head_parameters
    assert round((model.parameters - tables) / 1e9, 2) == 15.29
    assert round((model.active_parameters - tables) / 1e9, 2) == 2.24


def test_sizes_that_only_a_name_tells():
    # 21.8 B is called 21B, and 0.43 B active 400M: names cut digits off.
    assert load_model("ernie-4.5-21b-a3b").parameters == 21_825_436_160
    assert load_model("granite-3.0-1b-a400m").active_parameters == 428_658_688
    # "25 % of the weights active on a given token" (xAI): 8 experts, 2 visited, and attention.
    grok = load_model("grok-1")
    assert grok.active_parameters / grok.parameters == pytest.approx(0.265, abs=0.001)


def test_glm_counts_the_layer_that_predicts_a_second_token():
    # arXiv 2508.06471, table 1: 355 B with the MTP layer and without the vocabulary tables.
    model = replace(load_model("glm-4.5"), mtp_layers=1)
    tables = model.embedding_parameters + model.head_parameters
    assert round((model.parameters + model.mtp_parameters - tables) / 1e9) == 355


def test_one_layer_of_deepseek_v3():
    model = load_model("deepseek-v3")
    # Five projections of latent attention, two norms of 7168 and one for each latent.
    assert model.attention_parameters == 187_105_280 + 2 * 7168 + 1536 + 512
    assert model.dense_mlp_parameters == 3 * 7168 * 18432
    assert model.shared_expert_parameters == 3 * 7168 * 2048
    assert model.expert_parameters_per_layer == 256 * 3 * 7168 * 2048
    assert model.router_parameters == 256 * 7168


def test_one_layer_with_gate_and_biases():
    qwen, oss = load_model("qwen1.5-moe-a2.7b"), load_model("gpt-oss-20b")
    assert qwen.router_parameters == 60 * 2048 + 2048
    assert qwen.shared_expert_parameters == 3 * 2048 * 5632
    assert oss.router_parameters == 32 * 2880 + 32
    assert oss.expert_parameters_per_layer == 32 * (3 * 2880 * 2880 + 3 * 2880)
    assert oss.dense_mlp_parameters == oss.shared_expert_parameters == 0


def test_multi_token_prediction_of_deepseek_v3():
    # README_WEIGHTS.md of DeepSeek-V3: "11.5B unique parameters", rounded down.
    plain, model = load_model("deepseek-v3"), load_model("deepseek-v3-mtp")
    assert (plain.mtp_parameters, plain.forward_flops_parts(4096)["mtp"]) == (0, 0.0)
    assert model.parameters == plain.parameters
    assert model.mtp_parameters == 11_610_067_968
    # One layer, projection of 14336 to 7168 and head: 4 % more than 250.4 GFLOP.
    assert plain.training_flops(4096) == 250_449_887_232.0
    assert model.training_flops(4096) == 260_641_652_736.0
    for convention in ("palm", "megatron", "6n"):
        counts = [m.training_flops(4096, convention) for m in (plain, model)]
        assert counts[0] == counts[1]


def test_multi_token_prediction_by_hand():
    dense = small(mtp_layers=2)
    # attention 4 x 8 x 8, MLP 3 x 8 x 16, projection 16 x 8, two norms of the layer and three more
    assert dense.mtp_parameters == 2 * (256 + 384 + 128 + 5 * 8)
    # products as above with the head 80, and attention to 8 keys of 16 on average
    assert dense.forward_flops_parts(16)["mtp"] == 2 * 2 * (256 + 384 + 128 + 80 + 16 * 8)
    moe = Moe(experts=4, experts_per_token=2, ffn=8, shared_experts=1, layers=1)
    sparse = small(mtp_layers=1, moe=moe)
    assert sparse.mtp_parameters == 256 + 5 * 3 * 8 * 8 + 32 + 128 + 5 * 8


def test_where_the_dense_layers_stand():
    places = {name: load_model(name).moe.dense for name in ("deepseek-v3", "llama-4-maverick")}
    assert places == {"deepseek-v3": "first", "llama-4-maverick": "alternating"}
    assert load_model("llama-4-scout").dense_layers == 0
