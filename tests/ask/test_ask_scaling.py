import pytest

from scalewise.ask.question import Question
from scalewise.ask.scaling import scaling
from scalewise.errors import InputError


def asked(gpus="8..64", **words):
    options = {name: words.pop(name) for name in ("weak", "batch_per_gpu") if name in words}
    return scaling(Question(gpus=gpus, **words), **options)


def test_without_words_the_batch_stays_and_is_that_of_an_estimate():
    s = asked()
    assert s.sizes == (8, 16, 32, 64)
    (rule,) = s.rules
    assert (rule.kind, rule.batch, rule.seq_len) == ("strong", 1024.0, 4096)
    assert [each.label for each in s.templates] == ["best"]
    assert [str(each) for each in s.defaults] == [
        "--seq 4096 (usual for pre-training)",
        "--batch 1024 (4.19M tokens per step)",
        "--precision bf16 (usual)",
        "--strategy best (best of the usual ones at each size)",
        "--stack usual (follows the strategy)",
    ]


def test_lists_are_joined_by_commas():
    s = asked(model="llama-2-7b, llama-2-13b", on="dgx-h100,dgx-a100", seq="2048,4096")
    assert [each.name for each in s.models] == ["llama-2-7b", "llama-2-13b"]
    assert [each.name for each in s.clusters] == ["dgx-h100", "dgx-a100"]
    assert [each.seq_len for each in s.rules] == [2048, 4096]


def test_models_that_are_compared_have_one_sequence():
    (rule,) = asked(model="llama-2-7b,gpt2").rules
    assert rule.seq_len == 1024


@pytest.mark.parametrize(
    ("words", "kind", "batch"),
    [
        ({"weak": True}, "weak", 2.0),
        ({"batch_per_gpu": 0.5}, "weak", 0.5),
        ({"weak": True, "batch_per_gpu": 4.0}, "weak", 4.0),
        ({"weak": False}, "strong", 1024.0),
        ({"batch": 512}, "strong", 512.0),
        ({"batch": "1Mtok"}, "strong", 256.0),
        ({"sets": ("workload.global_batch=640",)}, "strong", 640.0),
    ],
)
def test_weak_or_strong_follows_from_what_is_given(words, kind, batch):
    (rule,) = asked(**words).rules
    assert (rule.kind, rule.batch) == (kind, batch)


def test_routing_optimizer_and_loss_reach_every_size():
    s = asked(model="mixtral-8x7b", imbalance=1.5, optimizer="muon", weights="bf16", loss="fused")
    work = s.rules[0].at(s.clusters[0])
    assert (work.imbalance, work.optimizer) == (1.5, "muon")
    assert (work.weights, work.loss) == ("bf16", "fused")


def test_documents_reach_every_size():
    s = asked(model="llama-2-7b", lengths="100..2000", batching="padded", precision="tf32")
    work = s.rules[0].at(s.clusters[0])
    assert (work.lengths, work.batching) == ("100..2000", "padded")
    assert (work.precision, work.weights) == ("tf32", "fp32")


def test_given_strategies_need_a_batch_that_they_can_share():
    # 2,048 data-parallel ranks need 2,048 sequences, twice the usual batch.
    assert asked("8..2048", strategy="fsdp").rules[0].batch == 2048.0
    assert asked("8..2048", strategy="fsdp-tp2").rules[0].batch == 1024.0
    assert asked("8..2048", strategy="best").rules[0].batch == 1024.0


def test_what_is_chosen_at_every_size_is_named():
    defaults = [str(each) for each in asked(strategy="fsdp").defaults]
    assert "--strategy mb (largest micro-batch that reaches the batch and fits, at each size)" in (
        defaults
    )
    assert not any("--strategy" in str(each) for each in asked(strategy="fsdp-mb2").defaults)


def test_curves_are_those_of_the_inputs():
    curves = asked("8,16", strategy="fsdp-mb1", weak=True).curves()
    (curve,) = curves.curves
    assert [point.strategy for point in curve.points] == ["fsdp8-mb1", "fsdp16-mb1"]
    assert curve.stack == "pytorch"


def test_best_of_the_usual_and_best_of_all():
    usual = asked("16", batch=64).curves().curves[0].points[0]
    every = asked("16", batch=64).curves(exhaustive=True).curves[0].points[0]
    assert every.evaluated > 10 * usual.evaluated
    assert every.step_seconds <= usual.step_seconds


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"weak": False, "batch_per_gpu": 2.0}, "--batch-per-gpu belongs to weak scaling"),
        ({"weak": True, "batch": 64}, "--batch belongs to strong scaling"),
        ({"batch_per_gpu": 1.0, "batch": 64}, "--batch and --batch-per-gpu exclude each other"),
        ({"batch_per_gpu": -1.0}, "--batch-per-gpu -1: must be positive"),
        ({"sets": ("strategy.tp=2",)}, "--set strategy.*: curves are drawn for each of --strategy"),
        ({"on": "dgx-h100,dgx-a100", "price": "2"}, "change one model, one cluster, one length"),
    ],
)
def test_what_excludes_each_other_is_refused(words, sentence):
    with pytest.raises(InputError) as caught:
        asked(**words)
    assert sentence in str(caught.value)


def test_sizes_are_needed():
    with pytest.raises(InputError, match="--gpus is missing"):
        scaling(Question())
