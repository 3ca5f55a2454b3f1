"""Counts against published totals, FLOPs against numbers worked out by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise import catalog
from scalewise.errors import InputError
from scalewise.fields import replace
from scalewise.model import CONVENTIONS, Mla, Model, Moe, load_model

CATALOG = Path(catalog.__file__).parent / "models"

# Parameter counts of released checkpoints (tied weights once, buffers not at all).
PUBLISHED_EXACT = {
    "llama-2-1b": 1_100_048_384,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "yi-34b": 34_388_917_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-12b": 11_846_072_320,
    "mpt-7b": 6_649_286_656,
    "opt-6.7b": 6_658_473_984,
    "opt-30b": 29_974_540_288,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "falcon-7b": 6_921_720_704,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-32b": 32_234_279_936,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "starcoder": 15_517_456_384,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-15b": 15_957_889_024,
}

# Sizes as the sources of published training runs print them, under the names used there.
PUBLISHED_ROUNDED = {
    "deepseek-v3": 671e9,
    "gemma3-12b": 11.8e9,
    "gpt-1.7b": 1.7e9,
    "gpt-7.1b": 7.1e9,
    "gpt-16b": 16e9,
    "gpt-32b": 32e9,
    "gpt-70b": 70e9,
    "gpt-119b": 119e9,
    "gpt-177b": 177e9,
    "gpt-314b": 314e9,
    "gpt-462b": 462e9,
    "gpt-3.6b": 3.6e9,
    "gpt-7.5b": 7.5e9,
    "gpt-18.4b": 18.4e9,
    "gpt-39.1b": 39.1e9,
    "gpt-76.1b": 76.1e9,
    "gpt-145.6b": 145.6e9,
    "gpt-310.1b": 310.1e9,
    "gpt-529.6b": 529.6e9,
    "gpt-1008b": 1008e9,
    "gpt-3-5b": 5e9,
    "gpt-3-20b": 20e9,
    "gpt3-175b": 175e9,
    "grok1-314b": 314e9,
    "llama-like-1b": 1.342e9,
    "llama-like-8b": 8.859e9,
    "llama2-7b": 6.74e9,
    "llama2-13b": 13.02e9,
    "llama2-70b": 68.98e9,
    "llama3-8b": 8.03e9,
    "llama3-70b": 70.55e9,
    "llama3-405b": 405.85e9,
    "llama4-maverick": 400e9,
    "maxtext-16b": 16.44e9,
    "maxtext-22b": 22.15e9,
    "maxtext-32b": 32.88e9,
    "maxtext-52b": 52.34e9,
    "maxtext-64b": 65.1e9,
    "maxtext-128b": 129.52e9,
    "maxtext-256b": 259.04e9,
    "maxtext-512b": 516.74e9,
    "maxtext-1024b": 1032.13e9,
    "mistral-7b": 7.24e9,
    "mixtral-8x7b": 46.7e9,
    "mixtral-8x22b": 140.6e9,
    "mpt-30b": 29.9752e9,
    "mt-nlg-530b": 530e9,
    "nemotron4-340b": 340e9,
    "palm-540b": 540.35e9,
    "qwen3-30b-a3b": 30.5e9,
    "qwen3-235b-a22b": 235e9,
}


def small(**fields):
    shape = {"name": "x", "layers": 2, "hidden": 8, "heads": 4, "ffn": 16, "vocab": 10}
    return Model(**(shape | fields))


@pytest.mark.parametrize(("name", "count"), PUBLISHED_EXACT.items())
def test_parameters_are_exact(name, count):
    assert load_model(name).parameters == count


@pytest.mark.parametrize(("name", "size"), PUBLISHED_ROUNDED.items())
def test_parameters_agree_with_published_runs(name, size):
    # Half a unit of the last printed digit is up to 3 % of "1.7B".
    tolerance = 0.03 if name == "gpt-1.7b" else 0.02
    assert load_model(name).parameters == pytest.approx(size, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("125m", 125.3),
        ("350m", 356.0),
        ("760m", 760.5),
        ("1b", 1316.0),
        ("3b", 2651.8),
        ("13b", 12854.0),
        ("70b", 64862.4),
    ],
)
def test_llm_foundry_recipes_match_to_the_printed_digit(name, millions):
    assert round(load_model(f"mpt-{name}").parameters / 1e6, 1) == millions


def test_megatron_table_to_the_printed_digit():
    printed = {"1.7b": 1.7, "3.6b": 3.6, "7.5b": 7.5, "18b": 18.4, "39b": 39.1, "76b": 76.1}
    printed |= {"145b": 145.6, "310b": 310.1, "530b": 529.6, "1t": 1008.0}
    counted = {n: round(load_model(f"megatron-{n}").parameters / 1e9, 1) for n in printed}
    assert counted == printed


def test_nemotron_without_embeddings():
    # The papers give the rest apart from the embeddings: 12.5 B and 331.6 B.
    for name, billions in (("nemotron4-15b", 12.5), ("nemotron4-340b", 331.6)):
        parts = load_model(name).parameter_parts()
        rest = sum(parts.values()) - parts["embedding"] - parts["head"]
        assert round(rest / 1e9, 1) == billions


def test_deepseek_v3_parts():
    model = load_model("deepseek-v3")
    assert model.parameters == 671_026_404_352
    assert model.active_parameters == 37_552_282_624
    per_layer = model.parameter_parts()["attention"] / 61
    # query down and up, latent down and up, output
    assert per_layer == 11_010_048 + 37_748_736 + 4_128_768 + 16_777_216 + 117_440_512
    assert (model.query_width, model.context_width) == (24_576, 16_384)


def test_active_parameters_of_gpt_oss_as_on_its_card():
    # The card counts 3.61 B and 5.13 B, without the embedding but with the head.
    for name, billions in (("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)):
        model = load_model(name)
        active = model.active_parameters - model.embedding_parameters
        assert round(active / 1e9, 2) == billions


def test_parts_of_llama_2_7b():
    model = load_model("llama-2-7b")
    assert model.parameter_parts() == {
        "embedding": 131_072_000,
        "positions": 0,
        "attention": 2_147_483_648,
        "mlp": 4_328_521_728,
        "experts": 0,
        "router": 0,
        "shared_experts": 0,
        "norms": 262_144,
        "final_norm": 4_096,
        "head": 131_072_000,
    }
    assert model.layer_parameters == 202_383_360
    assert model.embedding_parameters == 131_072_000
    assert model.head_parameters == 131_072_000
    assert model.active_parameters == model.parameters
    assert model.expert_parameters == 0


def test_gpt2_counts_positions_and_ties_the_head():
    model = load_model("gpt2")
    assert model.embedding_parameters == 50_257 * 768 + 1024 * 768
    assert model.head_parameters == 0


@pytest.mark.parametrize("name", ["llama-2-7b", "mixtral-8x7b", "deepseek-v3", "bloom-176b"])
def test_layers_experts_and_ends_are_everything(name):
    model = load_model(name)
    ends = model.embedding_parameters + model.head_parameters
    ends += model.parameter_parts()["final_norm"]
    whole = model.layers * model.layer_parameters + model.expert_parameters + ends
    assert whole == pytest.approx(model.parameters, rel=1e-12)


@pytest.mark.parametrize("name", catalog.names("models"))
def test_the_parts_of_each_kind_of_layer_add_up(name):
    model = load_model(name)
    parts = model.parameter_parts()
    whole = model.embedding_parameters + model.head_parameters + parts["final_norm"]
    whole += model.layers * model.attention_parameters
    whole += model.dense_layers * model.dense_mlp_parameters
    experts = model.router_parameters + model.shared_expert_parameters
    whole += model.moe_layers * (experts + model.expert_parameters_per_layer)
    assert whole == model.parameters


def test_forward_flops_of_llama_2_7b():
    parts = load_model("llama-2-7b").forward_flops_parts(4096)
    assert parts == {
        "qkv": 3_221_225_472.0,
        "attention": 1_073_741_824.0,
        "attention_out": 1_073_741_824.0,
        "mlp": 8_657_043_456.0,
        "router": 0.0,
        "experts": 0.0,
        "shared_experts": 0.0,
        "head": 262_144_000.0,
        "mtp": 0.0,
    }


def test_training_flops_by_convention():
    model = load_model("llama-2-7b")
    counted = {c: model.training_flops(4096, c) for c in CONVENTIONS}
    assert counted == {
        "causal": 42_863_689_728.0,
        "palm": 46_872_944_640.0,
        "megatron": 46_084_915_200.0,
        "6n": 40_430_493_696.0,
    }
    assert model.training_flops(4096) == counted["causal"]


def test_megatron_convention_is_the_formula_of_the_paper():
    model = load_model("megatron-145b")
    s, h, l, V = 2048, 12288, 80, 51200  # noqa: E741
    formula = 72 * l * h**2 * (1 + s / (6 * h) + V / (12 * h * l))
    assert model.training_flops(2048, "megatron") == pytest.approx(formula, rel=1e-12)


def test_palm_convention_on_palm():
    # 6 N + 12 L H Q T of appendix B, with its table 1 and sequences of 2048.
    flops = load_model("palm-540b").training_flops(2048, "palm")
    assert flops == 6 * 540_356_474_880 + 12 * 118 * 48 * 256 * 2048


def test_only_visited_experts_are_computed():
    model = load_model("mixtral-8x7b")
    parts = model.forward_flops_parts(4096)
    assert parts["experts"] == 22_548_578_304.0
    assert parts["router"] == 2_097_152.0
    assert parts["mlp"] == 0.0
    assert model.training_flops(4096, "6n") == 6 * 12_879_925_248


def test_shared_experts_and_dense_layers_beside_experts():
    parts = load_model("deepseek-v3").forward_flops_parts(4096)
    assert parts["attention"] == 10_234_101_760.0
    assert parts["shared_experts"] == 2.0 * 58 * 3 * 7168 * 2048
    assert parts["experts"] == 8 * parts["shared_experts"]
    assert parts["mlp"] == 2.0 * 3 * 3 * 7168 * 18432


def test_a_tied_head_costs_flops_all_the_same():
    tied, apart = small(tied=True), small(tied=False)
    assert tied.parameters == apart.parameters - 80
    assert tied.training_flops(16) == apart.training_flops(16)
    assert tied.forward_flops_parts(16)["head"] == 160.0


def test_attention_span():
    assert load_model("llama-2-7b").attention_span(4096) == 2048.0
    gemma = load_model("gemma-2-9b")
    assert gemma.attention_span(4096) == 2048.0
    assert gemma.attention_span(8192) == 0.5 * 3072 + 0.5 * 4096
    llama4 = load_model("llama-4-maverick")
    assert llama4.attention_span(8192) == 4096.0
    assert llama4.attention_span(16384) == 0.75 * 4096 + 0.25 * 8192
    chunked = small(window=4, windowed_layers=2, window_kind="chunked")
    assert chunked.attention_span(6) == pytest.approx(20 / 12)


@given(seq=st.integers(1, 300), window=st.integers(1, 300), kind=st.sampled_from(["s", "c"]))
def test_attention_span_against_counting_the_mask(seq, window, kind):
    sliding = kind == "s"
    if sliding:
        keys = [min(i, window) for i in range(1, seq + 1)]
    else:
        keys = [i % window + 1 for i in range(seq)]
    word = "sliding" if sliding else "chunked"
    span = small(window=window, windowed_layers=2, window_kind=word).attention_span(seq)
    # The diagonal is half a key, which the formula leaves out as all conventions do.
    assert sum(keys) / seq - 0.5 - 1e-9 <= span <= sum(keys) / seq + 1e-9


def test_implied_sizes_become_explicit():
    model = small(moe=Moe(experts=4, experts_per_token=2, ffn=8, shared_experts=1))
    assert (model.kv_heads, model.head_dim) == (4, 2)
    assert (model.moe.layers, model.moe.shared_ffn) == (2, 8)
    assert (model.moe_layers, model.dense_layers) == (2, 0)
    wider = replace(model, hidden=16, head_dim=0)
    assert wider.head_dim == 4


def test_latent_attention_sizes():
    mla = Mla(kv_rank=4, nope_dim=3, rope_dim=2, value_dim=6)
    model = small(mla=mla)
    assert model.head_dim == 6
    # queries 8 x 20, latent 8 x 6, up 4 x 4 x 9, output 24 x 8, in each of two layers
    assert model.parameter_parts()["attention"] == 2 * (160 + 48 + 144 + 192)
    assert model.parameter_parts()["norms"] == 2 * (16 + 4)


def test_biases_and_norms_by_hand():
    model = small(
        gated=False,
        norm="layer",
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        kv_heads=2,
        qk_norm=True,
        shared_norm=True,
        embedding_norm=True,
        attention_sinks=True,
    )
    parts = model.parameter_parts()
    assert parts["attention"] == 2 * (8 * 16 + 16 + 64 + 8 + 4)
    assert parts["mlp"] == 2 * (2 * 8 * 16 + 16 + 8)
    assert parts["norms"] == 2 * (16 + 8)
    assert parts["embedding"] == 80 + 16
    assert small(post_norms=True).parameter_parts()["norms"] == 2 * 32
    assert small(norm="layer", norm_bias=False).parameter_parts()["final_norm"] == 8
    wide = small(kv_heads=2, qk_norm=True, qk_norm_width="projection")
    assert wide.parameter_parts()["norms"] == 2 * (16 + 12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layers": 0}, "layers = 0"),
        ({"hidden": -8}, "hidden = -8"),
        ({"heads": 3}, "hidden = 8 is not a multiple of heads = 3"),
        ({"kv_heads": 3}, "heads = 4 is not a multiple of kv_heads = 3"),
        ({"kv_heads": -1}, "kv_heads = -1"),
        ({"ffn": 0}, "ffn = 0"),
        ({"window": 4}, "windowed_layers = 0"),
        ({"windowed_layers": 1}, "window = None"),
        ({"window": 0, "windowed_layers": 1}, "window = 0"),
        ({"window": 4, "windowed_layers": 3}, "windowed_layers = 3 is more than layers = 2"),
        ({"positions": "learned"}, "max_positions = 0"),
        ({"max_positions": 9}, "positions = 'rotary'"),
        ({"post_norms": True, "shared_norm": True}, "shared_norm"),
        ({"mtp_layers": -1}, "mtp_layers = -1"),
    ],
)
def test_impossible_shapes_name_the_field(fields, words):
    with pytest.raises(InputError, match=words):
        small(**fields)


def test_impossible_experts_name_the_field():
    with pytest.raises(InputError, match=r"moe\.experts_per_token = 3 .* moe\.experts = 2"):
        Moe(experts=2, experts_per_token=3, ffn=4)
    with pytest.raises(InputError, match=r"moe\.ffn = 0"):
        Moe(experts=2, experts_per_token=1, ffn=0)
    with pytest.raises(InputError, match=r"mla\.kv_rank = 0"):
        Mla(kv_rank=0, nope_dim=1, rope_dim=1, value_dim=1)
    with pytest.raises(InputError, match=r"moe\.layers = 3 is more than layers = 2"):
        small(moe=Moe(experts=2, experts_per_token=1, ffn=4, layers=3))


def test_bad_sequence_and_convention():
    with pytest.raises(InputError, match="seq = 0"):
        small().training_flops(0)
    with pytest.raises(InputError, match="unknown convention palms") as caught:
        small().training_flops(8, "palms")
    assert "palm" in caught.value.hint


@pytest.mark.parametrize("path", sorted(CATALOG.glob("*.toml")), ids=lambda p: p.stem)
def test_every_catalog_file_loads_and_names_its_source(path):
    model = load_model(path.stem)
    assert model.name == path.stem
    assert len(model.source) > 20


def test_catalog_names_and_aliases_are_unique():
    import tomllib

    words = []
    for path in CATALOG.glob("*.toml"):
        words += [path.stem, *tomllib.loads(path.read_text()).get("aliases", [])]
    lower = [word.lower() for word in words]
    assert len(lower) == len(set(lower))
    assert len(list(CATALOG.glob("*.toml"))) > 120


def test_load_model_by_name_alias_path_and_self(tmp_path):
    model = load_model("llama-3.1-405b")
    assert load_model("llama3-405b") == model
    assert load_model("meta-llama/Llama-3.1-405B") == model
    assert load_model(model) is model
    file = tmp_path / "mine.toml"
    file.write_text("layers = 2\nhidden = 8\nheads = 4\nffn = 16\nvocab = 10\naliases = ['x']\n")
    assert load_model(file) == small(name="mine")
    assert load_model(str(file)) == small(name="mine")


def test_load_model_says_what_is_wrong(tmp_path):
    with pytest.raises(InputError) as caught:
        load_model("lama-3-8b")
    assert "`llama-3-8b`" in caught.value.hint
    for missing in ("no/such/config.json", tmp_path, "./nowhere"):
        with pytest.raises(InputError, match="no such model file"):
            load_model(missing)
    file = tmp_path / "bad.toml"
    file.write_text("layers = 2\nhidden = 8\nheads = 3\nffn = 16\nvocab = 10\n")
    with pytest.raises(InputError, match=r"bad\.toml.*heads = 3"):
        load_model(file)
    file.write_text("layers = 2\nhiden = 8\n")
    with pytest.raises(InputError, match=r"bad\.toml.*hiden"):
        load_model(file)


def test_importing_the_model_needs_no_numpy():
    import subprocess
    import sys

    code = "import sys, scalewise.model, scalewise.hf; print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("layers", "10,000"), ("hidden", "16,777,216"), ("heads", "16,777,216"),
        ("ffn", "16,777,216"), ("vocab", "1,073,741,824"),
    ],
)  # fmt: skip
def test_sizes_have_an_upper_bound(field, limit):
    shape = {"layers": 2, "hidden": 64, "heads": 8, "ffn": 128, "vocab": 512} | {field: 10**299}
    with pytest.raises(InputError, match=rf"^{field} = 1e\+299 must be at most {limit}$"):
        Model(name="deep", **shape)
