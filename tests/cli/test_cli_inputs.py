import pytest

from scalewise.cli.inputs import ask
from scalewise.errors import InputError


def test_three_words_are_enough():
    q = ask("llama-2-7b", "dgx-h100", gpus="64")
    assert str(q.strategy) == "fsdp64-mb1"
    assert (q.workload.sequence, q.workload.global_batch) == (4096, 64)
    assert q.cluster.accelerators == 64
    assert q.chosen == (
        "fsdp64: 64 accelerators (--strategy)",
        "sequence 4,096 tokens (--seq)",
        "global batch 64 sequences = micro batch 1 x 64 data-parallel ranks (--batch)",
        "precision bf16 (--precision)",
        f"software stack {q.stack.name} (--stack)",
    )


def test_two_words_take_the_size_of_the_cluster():
    q = ask("llama-2-7b", "dgx-h100")
    assert str(q.strategy) == "fsdp8-mb1"
    assert q.chosen[0] == "8 accelerators, the size of dgx-h100 (--gpus)"


def test_the_strategy_says_how_many():
    q = ask("llama-2-7b", "dgx-h100", strategy="hsdp4x16-tp2-mb2")
    assert q.cluster.accelerators == 128
    assert q.chosen[0] == "128 accelerators, the product of the strategy (--gpus)"


def test_data_parallelism_is_derived_where_it_is_missing():
    q = ask("gpt3-175b", "dgx-a100", gpus="1024", strategy="tp8-pp8")
    assert str(q.strategy) == "fsdp16-tp8-pp8-mb1"
    assert q.chosen[0] == "fsdp16: 1,024 accelerators / (tp 8 x cp 1 x pp 8) (--strategy)"


def test_a_pipeline_is_filled():
    q = ask("llama-2-7b", "dgx-h100", gpus="64", strategy="zero1x16-pp4-mb2")
    assert q.workload.global_batch == 2 * 16 * 4 * 4
    assert "x 16 micro steps, 4 per pipeline stage" in " ".join(q.chosen)


def test_a_stated_accumulation_sets_the_batch():
    q = ask("llama-2-7b", "dgx-h100", strategy="fsdp8-ga7")
    assert q.workload.global_batch == 56


def test_nothing_is_chosen_where_all_is_said():
    q = ask(
        "llama-2-7b", "dgx-h100", gpus="8", strategy="fsdp8", seq="2048", batch="16",
        precision="FP8", stack="generic-eager", tokens="2T",
    )  # fmt: skip
    assert q.chosen == ()
    assert q.workload.precision == "fp8"
    assert q.workload.tokens == 2e12
    assert q.stack.name == "generic-eager"


def test_learned_positions_limit_the_default_sequence():
    q = ask("gpt2", "dgx-h100")
    assert q.workload.sequence == 1024
    assert "sequence 1,024 tokens, the learned positions of gpt2 (--seq)" in q.chosen
    longer = ask("gpt2", "dgx-h100", seq="2048")
    assert longer.notes == ("sequence 2,048 is longer than the 1,024 learned positions of gpt2",)


def test_chips_without_bf16_get_fp16():
    q = ask("gpt2", "v100")
    assert q.workload.precision == "fp16"
    told = "precision fp16, because v100-sxm-32gb has no bf16 units (--precision)"
    assert told in q.chosen


def test_switches_reach_the_cluster():
    q = ask("gpt2", "dgx-h100", power_cap="500W", algorithm="pat", protocol="ll")
    assert q.cluster.power_cap_watts == 500.0
    assert (q.cluster.algorithm, q.cluster.protocol) == ("pat", "ll")


def test_experts_of_a_dense_model_are_noted():
    assert ask("gpt2", "dgx-h100", strategy="fsdp8-ep8").notes == (
        "ep8 has no effect: gpt2 has no experts",
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"gpus": "0"}, "--gpus 0 must lie between 1 and 4,194,304"),
        ({"gpus": "1e30"}, "--gpus 1e30 must lie between 1 and 4,194,304"),
        ({"gpus": "many"}, "--gpus: `many` is not a count"),
        ({"seq": "80GB"}, "--seq: `80GB` is not a count"),
        ({"batch": "-3"}, "--batch: `-3` is not a count: it must be finite and not negative"),
        ({"tokens": "15TB"}, "--tokens: `15TB` is not a number of tokens"),
        ({"power_cap": "5GB"}, "--power-cap: `5GB` is not a value in watts"),
        ({"gpus": "100", "strategy": "tp8"}, "tp 8"),
    ],
)
def test_wrong_words_are_named(flags, sentence):
    with pytest.raises(InputError) as caught:
        ask("llama-2-7b", "dgx-h100", **flags)
    assert sentence in str(caught.value)
