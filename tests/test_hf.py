"""Every family of config.json against the catalog entry of the same model.

The files of `data/hf` have the keys of the config.json that tell the shape. Most were checked
against public copies of it. Those of DeepSeekMoE-16B, Llama 4 Scout, gpt-oss-120b, Mixtral 8x22B
and Qwen3-235B are held against published totals alone. GLM-4.5 is from a training script;
ERNIE-300B and Grok-1 (keys of hpcai-tech/grok-1) are from secondary sources.
"""

import json
from pathlib import Path

import msgspec
import pytest

from scalewise.errors import InputError
from scalewise.hf import MODEL_TYPES, model_from_hf, read_hf_config
from scalewise.model import load_model

DATA = Path(__file__).parent / "data" / "hf"
FILES = sorted(DATA.glob("*.json"))


def config(name):
    return json.loads((DATA / f"{name}.json").read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_config_gives_the_catalog_model(path):
    # Two independent writings of the same shape: all fields must agree, not only the total.
    read, known = read_hf_config(path), load_model(path.stem)
    relabel = {"name": known.name, "source": known.source}
    assert msgspec.structs.replace(read, **relabel) == known
    assert "Hugging Face" in read.source


def test_every_family_has_a_config():
    tested = {json.loads(path.read_text())["model_type"] for path in FILES}
    # These are read by functions that other families test.
    assert set(MODEL_TYPES) - tested == {
        "granitemoeshared",
        "kimi_k25",
        "llama4_text",
        "mistral3",
    }


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("gemma-2-9b", 9_241_705_984),
        ("gpt2", 124_439_808),
        ("gpt-neox-20b", 20_554_567_680),
        ("mpt-7b", 6_649_286_656),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_404_352),
        ("falcon-7b", 6_921_720_704),
        ("bloom-176b", 176_247_271_424),
        ("starcoder", 15_517_456_384),
        ("qwen1.5-moe-a2.7b", 14_315_784_192),
        ("gpt-oss-20b", 20_914_757_184),
        # Weights of allenai/OLMo-1B-hf and allenai/OLMo-7B-hf: no norm has any.
        ("olmo-1b", 1_176_764_416),
        ("deepseek-moe-16b", 16_375_728_128),
        ("glm-4.5", 352_797_814_784),
        ("glm-4.5-air", 106_852_245_504),
        ("hunyuan-a13b", 80_393_183_232),
        ("kimi-k2", 1_026_408_209_408),
        ("minimax-m2", 228_689_748_992),
        ("olmoe-1b-7b", 6_919_161_856),
        ("olmo-7b", 6_888_095_744),
    ],
)
def test_parameters_from_the_config(name, count):
    assert read_hf_config(DATA / f"{name}.json").parameters == count


def test_names():
    assert read_hf_config(DATA / "llama-2-7b.json").name == "meta-llama/Llama-2-7b-hf"
    assert read_hf_config(DATA / "llama-3-8b.json").name == "llama-3-8b"
    assert read_hf_config(DATA / "llama-3-8b.json", name="mine").name == "mine"
    assert model_from_hf(config("gpt2")).name == "gpt2"
    here = config("llama-3-8b") | {"_name_or_path": "/home/me/checkpoint"}
    assert model_from_hf(here).name == "llama"


def test_load_model_reads_a_directory(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config("llama-3-8b")))
    for spelling in (folder, str(folder), folder / "config.json"):
        model = load_model(spelling)
        assert (model.name, model.parameters) == ("my-llama", 8_030_261_248)
    assert read_hf_config(folder).name == "my-llama"


def test_windows():
    qwen = config("qwen2.5-7b") | {"use_sliding_window": True, "sliding_window": 4096}
    assert model_from_hf(qwen | {"max_window_layers": 20}).windowed_layers == 8
    assert model_from_hf(qwen | {"max_window_layers": 99}).window is None
    typed = ["full_attention"] * 25 + ["sliding_attention"] * 3
    assert model_from_hf(qwen | {"layer_types": typed}).windowed_layers == 3
    moe = config("qwen1.5-moe-a2.7b") | {"use_sliding_window": True}
    assert model_from_hf(moe).windowed_layers == 11
    gemma = model_from_hf(config("gemma-3-4b"))
    assert (gemma.window, gemma.windowed_layers) == (1024, 29)
    assert model_from_hf(config("mistral-7b-v0.1") | {"sliding_window": None}).window is None


def test_which_layers_carry_experts():
    qwen = config("qwen3-30b-a3b") | {"decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}
    model = model_from_hf(qwen)
    assert (model.moe_layers, model.ffn, model.moe.dense) == (22, 6144, "alternating")
    qwen = config("qwen3-30b-a3b") | {"mlp_only_layers": [0, 1]}
    assert model_from_hf(qwen).moe.dense == "first"
    deepseek = config("deepseek-v3") | {"first_k_dense_replace": 0, "moe_layer_freq": 2}
    model = model_from_hf(deepseek)
    assert (model.moe_layers, model.moe.dense) == (31, "alternating")
    ernie = config("ernie-4.5-21b-a3b") | {"moe_layer_interval": 3, "moe_layer_end_index": 20}
    # Layers 2, 5, ..., 20.
    assert model_from_hf(ernie).moe_layers == 7
    del ernie["moe_layer_end_index"]
    assert model_from_hf(ernie).moe_layers == 9
    hunyuan = config("hunyuan-a13b") | {"moe_layer_num_skipped": 2}
    model = model_from_hf(hunyuan)
    assert (model.moe_layers, model.moe.dense, model.ffn) == (30, "first", 3072)
    llama4 = config("llama-4-maverick")
    llama4["text_config"] |= {"moe_layers": [1, 3, 5], "no_rope_layers": [1, 1, 0] * 16}
    model = model_from_hf(llama4)
    assert (model.moe_layers, model.windowed_layers, model.window_kind) == (3, 32, "chunked")


def test_variants():
    mpt = config("mpt-7b")
    learned = mpt | {"attn_config": {"alibi": False}, "no_bias": False}
    model = model_from_hf(learned)
    assert (model.positions, model.max_positions, model.mlp_bias) == ("learned", 2048, True)
    assert model_from_hf(mpt | {"attn_config": {"kv_n_heads": 8}}).kv_heads == 8
    multi = {"attn_config": {"attn_type": "multiquery_attention"}}
    assert model_from_hf(mpt | multi).kv_heads == 1
    rope = {"attn_config": {"alibi": False, "rope": True}, "learned_pos_emb": False}
    assert model_from_hf(mpt | rope).positions == "rotary"
    falcon = config("falcon-7b") | {"multi_query": False, "parallel_attn": False, "alibi": True}
    model = model_from_hf(falcon)
    assert (model.kv_heads, model.shared_norm, model.positions) == (71, False, "alibi")
    assert model_from_hf(config("falcon-40b") | {"num_ln_in_parallel_attn": 1}).shared_norm
    assert model_from_hf(config("starcoder") | {"multi_query": False}).kv_heads == 48
    biased = model_from_hf(config("llama-3-8b") | {"attention_bias": True, "mlp_bias": True})
    assert biased.parameters - 8_030_261_248 == 32 * (6144 + 4096 + 2 * 14336 + 4096)


def test_variants_with_experts():
    granite = config("granite-3.0-3b-a800m")
    granite |= {"model_type": "granitemoeshared", "shared_intermediate_size": 1024}
    model = model_from_hf(granite)
    # The shared expert adds three matrices of 1536 x 1024 to each of 32 layers.
    assert model.parameters - 3_298_793_472 == 32 * 3 * 1536 * 1024
    assert (model.moe.shared_experts, model.moe.shared_ffn) == (1, 1024)
    assert model_from_hf(granite | {"shared_intermediate_size": 0}).moe.shared_experts == 0
    minimax = config("minimax-m2")
    assert not model_from_hf(minimax | {"use_qk_norm": False}).qk_norm
    assert model_from_hf(minimax | {"qk_norm_type": "per_head"}).qk_norm_width == "head"
    plain = config("hunyuan-a13b") | {"moe_topk": 4, "num_shared_expert": 2}
    del plain["moe_intermediate_size"]
    model = model_from_hf(plain)
    assert (model.moe.experts_per_token, model.moe.shared_experts, model.moe.ffn) == (4, 2, 3072)
    # transformers builds no multi-token-prediction module.
    assert model_from_hf(config("deepseek-v3")).mtp_layers == 0


def test_text_half_of_a_wrapper():
    kimi = {"model_type": "kimi_k25", "text_config": config("kimi-k2")}
    assert model_from_hf(kimi).parameters == 1_026_408_209_408
    text = {k: v for k, v in config("mistral-7b-v0.1").items() if k != "model_type"}
    assert model_from_hf({"model_type": "mistral3", "text_config": text}).window == 4096
    with pytest.raises(InputError, match="text_config"):
        model_from_hf({"model_type": "gemma3"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_missing_width_is_named(path):
    raw = json.loads(path.read_text())
    inner = raw.get("text_config", raw)
    key = next(k for k in ("hidden_size", "n_embd", "d_model") if k in inner)
    del inner[key]
    with pytest.raises(InputError, match=f"has no key {key}"):
        model_from_hf(raw)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "4096"}, "hidden_size = '4096'"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1"),
        ({"vocab_size": True}, "vocab_size = True"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'"),
        ({"num_key_value_heads": 7}, "heads = 32 is not a multiple of kv_heads = 7"),
    ],
)
def test_wrong_values_are_named(change, words):
    with pytest.raises(InputError, match=words):
        model_from_hf(config("llama-3-8b") | change)


def test_unsupported_shapes_are_refused():
    with pytest.raises(InputError, match="word_embed_proj_dim = 512"):
        model_from_hf(config("opt-6.7b") | {"word_embed_proj_dim": 512})
    hybrid = {"layer_types": ["linear_attention"] * 24}
    with pytest.raises(InputError, match="linear_attention"):
        model_from_hf(config("gpt-oss-20b") | hybrid)
    with pytest.raises(InputError, match="mlp_only_layers = 3"):
        model_from_hf(config("qwen3-30b-a3b") | {"mlp_only_layers": 3})
    with pytest.raises(InputError, match="attn_config = 1"):
        model_from_hf(config("mpt-7b") | {"attn_config": 1})
    with pytest.raises(InputError, match="use_bias = true"):
        model_from_hf(config("ernie-4.5-21b-a3b") | {"use_bias": True})
    with pytest.raises(InputError, match="use_cla = true"):
        model_from_hf(config("hunyuan-a13b") | {"use_cla": True})
    with pytest.raises(InputError, match=r"moe_topk = \[8, 4\] .* the same in every layer"):
        model_from_hf(config("hunyuan-a13b") | {"moe_topk": [8, 4]})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        # Shortened configs of Qwen3-Next-80B-A3B, Kimi-Linear-48B-A3B, MiniMax-Text-01 and its
        # later form, Granite 4.0 H Tiny, Jamba, Nemotron-H, RWKV-7, DeepSeek-V3.2, GLM-5 and 5.3.
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, "interval = 4: linear"),
        ({"model_type": "qwen3_next", "linear_num_key_heads": 16}, "linear_num_key_heads: gated"),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1, 2, 3]}},
            "linear_attn_config: linear attention",
        ),
        (
            {"model_type": "minimax_text_01", "attn_type_list": [0] * 7 + [1]},
            "attn_type_list has 0, lightning attention",
        ),
        (
            {"model_type": "minimax", "layer_types": ["full_attention", "linear_attention"]},
            "layer_types has 'linear_attention', linear attention",
        ),
        (
            {"model_type": "granitemoehybrid", "layer_types": ["mamba"] * 5 + ["attention"]},
            "layer_types has 'mamba', a Mamba layer",
        ),
        ({"model_type": "jamba", "attn_layer_period": 8}, "attn_layer_period: Mamba layers"),
        ({"model_type": "zamba2", "layers_block_type": ["mamba", "hybrid"]}, "has 'mamba'"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"}, "Mamba layers"),
        ({"model_type": "falcon_h1", "mamba_d_ssm": 4096}, "mamba_d_ssm: Mamba layers"),
        ({"model_type": "rwkv7"}, "model_type = 'rwkv7' has RWKV layers"),
        ({"model_type": "minimax_m1"}, "model_type = 'minimax_m1' has lightning attention"),
        ({"model_type": "deepseek_v32", "index_topk": 2048}, "index_topk: sparse attention"),
        ({"model_type": "glm_moe_dsa"}, "sparse attention with an indexer"),
        (
            {"model_type": "glm5_next", "text_config": {"layer_types": ["linear_attention"]}},
            "layer_types has 'linear_attention'",
        ),
    ],
)
def test_layers_without_softmax_attention_are_refused_by_name(raw, words):
    with pytest.raises(InputError, match=words) as caught:
        model_from_hf(raw)
    assert "does not model" in str(caught.value)
    assert "chunked attention" in caught.value.hint


def test_a_known_family_with_another_layer_is_refused_too():
    sparse = config("deepseek-v3") | {"index_topk": 2048, "index_n_heads": 64}
    with pytest.raises(InputError, match="index_topk"):
        model_from_hf(sparse)
    linear = config("minimax-m2") | {"attn_type_list": [1] * 61 + [0]}
    with pytest.raises(InputError, match="lightning attention"):
        model_from_hf(linear)
    # Keys that are empty or say that every layer is full leave the model as it is.
    none = {"full_attention_interval": 1, "mamba_d_state": None, "ssm_cfg": {}, "index_topk": 0}
    assert model_from_hf(config("llama-3-8b") | none).parameters == 8_030_261_248


def test_unknown_type_lists_the_known_ones():
    with pytest.raises(InputError, match="model_type = 'lama'") as caught:
        model_from_hf({"model_type": "lama"})
    assert "did you mean `llama`" in caught.value.hint
    assert "starcoder2" in caught.value.hint
    with pytest.raises(InputError, match="no model_type"):
        model_from_hf({"hidden_size": 8})


def test_broken_files_name_file_and_line(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{\n  "model_type": "llama",\n  "hidden_size": 40,,\n}\n')
    with pytest.raises(InputError, match=r"config\.json, line 3: not valid JSON"):
        read_hf_config(file)
    file.write_text("[1, 2]")
    with pytest.raises(InputError, match="holds a JSON list"):
        read_hf_config(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_hf_config(file)
    file.write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match=r"config\.json: .*num_attention_heads"):
        read_hf_config(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_hf_config(tmp_path / "absent.json")


DEEP = {
    "qwen2_moe": {"decoder_sparse_step": 1, "moe_intermediate_size": 64, "num_experts": 8},
    "qwen3_moe": {"decoder_sparse_step": 1, "moe_intermediate_size": 64, "num_experts": 8},
    "deepseek_v3": {"first_k_dense_replace": 1},
}


@pytest.mark.parametrize("model_type", DEEP)
def test_a_number_of_layers_is_bounded_before_anything_loops(model_type):
    raw = {"model_type": model_type, "num_hidden_layers": 10**12, "hidden_size": 64,
           "num_attention_heads": 8, "intermediate_size": 64, "vocab_size": 512,
           "v_head_dim": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
           **DEEP[model_type]}  # fmt: skip
    with pytest.raises(InputError, match="num_hidden_layers in the config is more than 10,000"):
        model_from_hf(raw)


@pytest.mark.parametrize("kinds", [["linear_attention"] * 4, [None] * 4, [["full"]], [2.5]])
@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_other_layers_are_refused_without_a_window_too(model_type, kinds):
    raw = {"model_type": model_type, "num_hidden_layers": 4, "hidden_size": 64,
           "num_attention_heads": 8, "intermediate_size": 64, "vocab_size": 512,
           "layer_types": kinds}  # fmt: skip
    with pytest.raises(InputError, match="which Scalewise does not model"):
        model_from_hf(raw)


def test_a_list_by_layer_is_bounded():
    raw = {"model_type": "qwen3_moe", "num_hidden_layers": 4, "hidden_size": 64,
           "num_attention_heads": 8, "intermediate_size": 64, "vocab_size": 512,
           "mlp_only_layers": [5] * 10_001}  # fmt: skip
    with pytest.raises(InputError, match="mlp_only_layers in the config has 10,001 items"):
        model_from_hf(raw)
