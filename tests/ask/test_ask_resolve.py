import pytest

from scalewise.ask.over import OverTask, price_question
from scalewise.ask.question import Question
from scalewise.ask.resolve import Objects, inputs, resolve
from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.usual import usual
from scalewise.model import load_model
from scalewise.strategy import parse_strategy


def asked(model="llama-2-7b", on="dgx-h100", **words):
    return resolve(Question(model=model, on=on, **words))


def flags(found):
    return {each.flag: each.value for each in found.defaults}


def test_three_words_are_enough():
    q = asked(gpus=64)
    best = usual(q.model, q.cluster, q.workload)
    assert q.strategy == best.estimate.strategy
    assert (q.workload.seq_len, q.workload.global_batch) == (4096, 1024)
    assert q.cluster.accelerators == 64
    assert [str(each) for each in q.defaults] == [
        "--seq 4096 (usual for pre-training)",
        "--batch 1024 (4.19M tokens per step)",
        "--precision bf16 (usual)",
        f"--strategy {q.strategy} (best of {best.evaluated:,} that fit with 90% chance)",
        best.software.default,
    ]


def test_two_words_take_the_size_of_the_cluster():
    q = asked()
    assert q.cluster.accelerators == 8
    assert str(q.defaults[0]) == "--gpus 8 (size of dgx-h100)"


def test_the_strategy_gives_the_size():
    q = asked(strategy="hsdp4x16-tp2-mb2")
    assert q.cluster.accelerators == 128
    assert str(q.defaults[0]) == "--gpus 128 (product of the strategy)"
    assert q.stated


@pytest.mark.parametrize(
    ("template", "spelled"),
    [
        ("fsdp", "fsdp256-mb2"),
        ("tp2-mb1", "fsdp128-tp2-mb1"),
        ("hsdp32-mb2", "hsdp8x32-mb2"),
        ("zero1-tp2-pp4-v8-mb1", "zero1x32-tp2-pp4-v8-mb1"),
        ("ddp-tp8-mb1", "ddp32-tp8-mb1"),
    ],
)
def test_templates_without_sizes_take_the_size(template, spelled):
    q = asked(gpus=256, strategy=template)
    assert str(q.strategy) == spelled
    assert flags(q)["--strategy"] == spelled


def test_best_may_be_held_to_a_part():
    q = asked(gpus=64, strategy="best-tp2")
    assert q.strategy.tp == 2
    assert not q.stated
    assert asked(gpus=64, strategy="best").strategy == asked(gpus=64).strategy


def test_what_is_chosen_very_likely_fits_and_what_is_named_only_likely():
    chosen = asked("llama-3-70b", gpus=64)
    assert chosen.estimate().fit >= 0.9
    assert chosen.fit == 0.9
    assert asked("llama-3-70b", gpus=64, fit=0.99).estimate().fit >= 0.99
    assert asked("llama-3-70b", gpus=64, strategy="fsdp64-mb1").fit == 0.5


def test_a_pipeline_is_filled():
    # 16 ranks x micro-batch 2 x 16 micro-batches is 512; twice that is nearest to 4 Mi tokens.
    q = asked(gpus=64, strategy="zero1x16-pp4-mb2")
    assert q.workload.global_batch == 1024
    assert asked(gpus=2048, strategy="zero1x512-pp4-mb1").workload.global_batch == 8192


def test_stated_accumulation_sets_the_batch():
    q = asked(strategy="fsdp8-mb1-ga7")
    assert q.workload.global_batch == 56
    assert q.estimate().num_microbatches == 7


@pytest.mark.parametrize(
    ("gpus", "batch"), [(8, 1024), (24, 1032), (2048, 1024), (6144, 768), (12, 1020)]
)
def test_a_chosen_batch_is_about_4m_tokens_that_the_gpus_can_share(gpus, batch):
    assert inputs(Question(gpus=gpus)).workload.global_batch == batch


def test_small_models_get_a_small_batch():
    assert asked("gpt2", gpus=8).workload.tokens_per_step == 2**19


def test_a_batch_may_be_given_in_tokens():
    assert asked(gpus=64, batch="4Mtok").workload.global_batch == 960
    assert asked(gpus=64, batch="2.1M tokens", seq=2048).workload.global_batch == 1024


def test_nothing_is_chosen_where_all_is_said():
    q = asked(
        gpus="8", strategy="fsdp8-mb1", seq="2048", batch="16", precision="FP8",
        stack="pytorch", tokens="2T", goodput="off",
    )  # fmt: skip
    assert q.defaults == ()
    assert q.workload.precision == "fp8"
    assert q.workload.tokens == 2e12
    assert q.software.stack.name == "pytorch"


def test_learned_positions_limit_the_default_sequence():
    q = asked("gpt2")
    assert q.workload.seq_len == 1024
    assert "--seq 1024 (learned positions of gpt2)" in map(str, q.defaults)
    longer = asked("gpt2", seq="2048")
    assert longer.notes == ("sequence 2,048 is longer than the 1,024 learned positions of gpt2",)


def test_chips_without_bf16_get_fp16():
    q = asked("gpt2", "v100")
    assert q.workload.precision == "fp16"
    assert "--precision fp16 (v100-sxm-32gb has no bf16)" in map(str, q.defaults)


def test_switches_reach_the_cluster_and_are_said():
    q = asked("gpt2", power_cap="500W", algorithm="pat", protocol="ll", price="1.50")
    assert q.cluster.power_cap_watts == 500.0
    assert q.cluster.usd_per_hour == 1.5
    assert (q.cluster.algorithm, q.cluster.protocol) == ("pat", "ll")
    assert q.changes == ("--power-cap 500W", "--price 1.50", "--algorithm pat", "--protocol ll")


@pytest.mark.parametrize(
    ("strategy", "on", "stack"),
    [
        ("fsdp", "dgx-h100", "pytorch"),
        ("hsdp8", "dgx-a100", "pytorch"),
        ("tp8-pp1-zero1", "dgx-h100", "megatron-lm"),
        ("ddp", "dgx-h100", "megatron-lm"),
        ("ddp-eager", "dgx-h100", "nanotron"),
        # One data-parallel rank shards nothing.
        ("tp8-pp8", "dgx-h100", "megatron-lm"),
        ("tp8", "dgx-h100", "pytorch"),
        ("fsdp", "v5p", "maxtext-tpu"),
        ("fsdp-eager", "dgx-h100", "pytorch"),
        ("fsdp-compiled", "dgx-h100", "pytorch-compiled"),
    ],
)
def test_software_follows_strategy_and_device(strategy, on, stack):
    assert asked(on=on, gpus=64, strategy=strategy).software.stack.name == stack


def test_without_a_stack_the_interval_covers_the_plausible_ones():
    usual = asked(gpus=256, strategy="fsdp-mb1").estimate()
    named = [
        asked(gpus=256, strategy="fsdp-mb1", stack=name).estimate()
        for name in ("pytorch", "pytorch-compiled")
    ]
    assert usual.step_seconds == named[0].step_seconds
    # Wider than that of the usual one, and around both.
    assert usual.high / usual.low > named[0].high / named[0].low
    for e in named:
        assert usual.low < e.tokens_per_second_per_accelerator < usual.high


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("megatron-lm", "megatron-lm"),
        ("Megatron-Core", "megatron-lm"),
        ("nemo", "megatron"),
        ("hf", "pytorch-bf16"),
        ("accelerate", "pytorch-bf16"),
        ("fsdp", "pytorch"),
        ("torchtitan", "pytorch"),
        ("megatron-deepspeed", "megatron-deepspeed"),
        ("something-else", "pytorch"),
    ],
)
def test_frameworks_are_known_by_their_names(name, stack):
    assert asked(gpus=8, strategy="fsdp", stack=name).software.stack.name == stack


def test_maxtext_is_the_stack_of_the_device():
    assert (
        asked(on="v5p", gpus=64, strategy="fsdp", stack="maxtext").software.stack.name
        == "maxtext-tpu"
    )


def test_a_misspelled_stack_is_refused():
    with pytest.raises(InputError, match="--stack megatorn: unknown stack or framework") as caught:
        asked(gpus=8, stack="megatorn")
    assert "megatron" in caught.value.hint


def test_objects_stand_for_names():
    model, cluster = load_model("llama-2-7b"), load_cluster("dgx-h100", accelerators=64)
    objects = Objects(model=model, cluster=cluster, strategy=parse_strategy("fsdp64-mb2"))
    q = resolve(Question(batch=128), objects)
    assert (q.model, q.cluster.accelerators) == (model, 64)
    assert str(q.strategy) == "fsdp64-mb2"


def test_the_filled_question_gives_the_same_answer():
    first = asked("llama 3 70b", gpus=128)
    again = resolve(first.question)
    assert again.estimate().terms == first.estimate().terms
    assert again.question == first.question


@pytest.mark.parametrize(
    ("words", "sentence", "field"),
    [
        ({"gpus": "0"}, "--gpus 0: must be between 1 and 4,194,304", "gpus"),
        ({"gpus": "1e30"}, "--gpus 1e30: must be between 1 and 4,194,304", "gpus"),
        ({"gpus": "many"}, "--gpus: `many` is not a count", "gpus"),
        ({"seq": "80GB"}, "--seq: `80GB` is not a count", "seq"),
        ({"seq": " "}, "--seq is empty", "seq"),
        ({"batch": "-3"}, "--batch: `-3` is not a count: it must be finite", "batch"),
        ({"batch": "xtok"}, "--tokens: `x` is not a number of tokens", "tokens"),
        ({"tokens": "15TB"}, "--tokens: `15TB` is not a number of tokens", "tokens"),
        ({"power_cap": "5GB"}, "--power-cap: `5GB` is not a value in watts", "power_cap"),
        ({"gpus": "100", "strategy": "tp8"}, "tp 8", None),
        ({"gpus": "16", "strategy": "fsdp8-mb1"}, "16", None),
        ({"model": "zebra"}, "unknown model `zebra`", "model"),
        ({"on": "zebra"}, "unknown cluster or accelerator `zebra`", "on"),
    ],
)
def test_wrong_words_are_named(words, sentence, field):
    with pytest.raises(InputError) as caught:
        resolve(Question(**words)).estimate()
    assert sentence in str(caught.value)
    assert caught.value.field == field


def test_documents_and_what_of_them_counts():
    found = asked(gpus=8, strategy="fsdp8-mb1", lengths="600", batching="padded", seq=4096)
    assert (found.workload.lengths, found.workload.batching) == ("600", "padded")
    assert found.workload.tokens_per_step == 600 * found.workload.global_batch
    assert "--lengths 600" in found.changes
    counts = "throughput, cost and days count tokens of documents, 14.6% of full sequences"
    assert counts in found.notes
    assert asked(gpus=8, strategy="fsdp8-mb1", lengths="4096", seq=4096).notes == ()
    with pytest.raises(InputError, match="batching = bucketed needs lengths of documents"):
        asked(gpus=8, batching="bucketed")
    with pytest.raises(InputError, match="lengths = long: long is not a number of tokens"):
        asked(gpus=8, lengths="long")


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_32_bits_store_32_bit_weights(precision):
    found = asked(gpus=8, strategy="fsdp8-mb1", precision=precision)
    assert (found.workload.precision, found.workload.weights) == (precision, "fp32")
    assert flags(found)["--weights"] == "fp32"
    stated = asked(gpus=8, strategy="fsdp8-mb1", precision=precision, weights="mixed")
    assert "--weights" not in flags(stated)
    assert stated.estimate().terms == found.estimate().terms
    with pytest.raises(InputError, match="read 32-bit weights"):
        asked(gpus=8, strategy="fsdp8-mb1", precision=precision, weights="bf16")


def test_a_choice_that_was_interrupted_is_no_answer(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("scalewise.explore.search.TopK.add", stop)
    with pytest.raises(KeyboardInterrupt):
        asked(gpus=64, strategy="best-tp2")
    task = OverTask(question=Question(model="llama-2-7b", gpus=64), exhaustive=True)
    with pytest.raises(KeyboardInterrupt):
        price_question(task)
