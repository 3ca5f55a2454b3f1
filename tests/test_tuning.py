"""Words of tunings, adapters of catalog models, FLOPs of frozen models, refusals."""

import pytest

from scalewise.errors import InputError
from scalewise.model import load_model
from scalewise.tuning import (
    NF4_BYTES,
    PREFERENCE,
    REINFORCEMENT,
    adapted_matrices,
    adapter_parameters,
    parse_tuning,
    trained_parameters,
    training_flops,
)
from scalewise.workload import Workload


@pytest.mark.parametrize(
    ("word", "kind", "rank", "suffix", "canonical"),
    [
        ("full", "full", 0, "", "full"),
        ("continued", "full", 0, "", "full"),
        ("SFT", "full", 0, "", "full"),
        ("lora16", "lora", 16, "", "lora16"),
        ("LoRA-16", "lora", 16, "", "lora16"),
        ("lora8-qv", "lora", 8, "qv", "lora8-qv"),
        ("qlora64-attn", "qlora", 64, "attn", "qlora64-attn"),
        ("lora0", "lora", 0, "", "lora0"),
    ],
)
def test_words(word, kind, rank, suffix, canonical):
    tuning = parse_tuning(word)
    assert (tuning.kind, tuning.rank, tuning.suffix) == (kind, rank, suffix)
    assert str(tuning) == canonical
    assert Workload(seq_len=1, global_batch=1, tuning=word).tuning == canonical


@pytest.mark.parametrize(
    ("model", "word", "count"),
    [
        # print_trainable_parameters() of huggingface/peft.
        ("llama-2-7b", "lora8-qv", 4_194_304),
        ("llama-2-7b", "lora16", 39_976_960),
        ("llama-3-8b", "lora16", 41_943_040),
        ("llama-2-7b", "lora64", 159_907_840),
        ("llama-2-7b", "lora8-attn", 8_388_608),
        # Table 4 of arXiv 2106.09685: r = 4 on queries and values, 18.9M.
        ("gpt3-175b", "lora1-qv", 4_718_592),
        ("gpt3-175b", "lora4-qv", 18_874_368),
    ],
)
def test_parameters_of_adapters_are_the_published_ones(model, word, count):
    assert adapter_parameters(load_model(model), parse_tuning(word)) == count


def test_a_plain_mlp_has_two_adapters():
    model = load_model("gpt3-175b")
    assert len(adapted_matrices(model, parse_tuning("lora16"))) == 6
    assert len(adapted_matrices(load_model("llama-2-7b"), parse_tuning("lora16"))) == 7


def test_full_training_trains_everything():
    model = load_model("llama-2-7b")
    assert trained_parameters(model, parse_tuning("full")) == 6_738_415_616
    assert adapter_parameters(model, parse_tuning("full")) == 0


def test_bytes_of_nf4():
    # 0.373 bits per parameter less than with scales of 32 bits (arXiv 2305.14314, section 3).
    assert pytest.approx(4.127, abs=1e-3) == 8 * NF4_BYTES
    assert pytest.approx(0.373, abs=1e-3) == 4 + 32 / 64 - 8 * NF4_BYTES


@pytest.mark.parametrize(
    ("convention", "per_parameter"),
    [("causal", 6_607_077_376), ("megatron", 6_607_077_376), ("palm", 6_738_415_616),
     ("6n", 6_738_415_616)],
)  # fmt: skip
def test_frozen_parameters_need_two_thirds_of_the_flops(convention, per_parameter):
    model = load_model("llama-2-7b")
    full = training_flops(model, parse_tuning("full"), 4096, convention)
    frozen = training_flops(model, parse_tuning("lora0"), 4096, convention)
    lora = training_flops(model, parse_tuning("lora16"), 4096, convention)
    assert full == model.training_flops(4096, convention)
    assert full - frozen == pytest.approx(2 * per_parameter)
    assert lora - frozen == pytest.approx(6 * 39_976_960)


@pytest.mark.parametrize("word", [*REINFORCEMENT, *PREFERENCE, "DPO", "GRPO"])
def test_preference_and_rl_training_are_refused_by_name(word):
    with pytest.raises(InputError) as error:
        parse_tuning(word)
    assert str(error.value).startswith(f"--tuning {word.lower()}: ")
    assert str(error.value).endswith("which is not supported")
    assert "update step" in error.value.hint
    assert "--batch" in error.value.hint


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("lora", "--tuning lora: the rank is missing", "for example lora16"),
        ("lora16-mlp", "--tuning lora16-mlp: unknown targets -mlp",
         "use full, lora16, lora16-attn, lora8-qv or qlora64"),
        ("lora5000", "--tuning lora5000: the rank must be at most 4,096", "for example lora16"),
        ("lora" + "9" * 400, f"--tuning lora{'9' * 36}: the rank must be at most 4,096",
         "for example lora16"),
        ("loro16", "unknown tuning loro16", "did you mean `lora16` or `qlora64` or `lora16-attn`?"),
        ("", "unknown tuning ", None),
    ],
)  # fmt: skip
def test_other_words_are_refused(word, message, hint):
    with pytest.raises(InputError) as error:
        parse_tuning(word)
    assert str(error.value) == message
    assert hint is None or error.value.hint == hint


def test_a_model_in_4_bits_computes_in_16():
    with pytest.raises(InputError, match="a frozen model in 4 bits computes in 16 bits"):
        Workload(seq_len=1, global_batch=1, tuning="qlora16", precision="fp8")
    assert Workload(seq_len=1, global_batch=1, tuning="qlora16", precision="fp16").tuned.quantized
