"""Forgiving names, repaired strategies, and files that nobody can reach."""

import pytest

from scalewise.ask.names import find_name, score
from scalewise.ask.question import Question, question_fields
from scalewise.errors import InputError
from scalewise.ui.catalog import SENTENCE, listing, tables
from scalewise.ui.inputs import resolve
from scalewise.ui.requests import FIRST, no_files


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama-2-7b", "llama-2-7b"),
        ("llama 2 7b", "llama-2-7b"),
        ("Llama-2 7B", "llama-2-7b"),
        ("L2-7b", "llama-2-7b"),
        ("llama2 70", "llama-2-70b"),
        ("llama 3 405", "llama-3.1-405b"),
        ("gpt3 175", "gpt3-175b"),
    ],
)
def test_models_are_found_as_people_spell_them(typed, name):
    assert find_name("models", typed) == name


def test_hardware_is_a_cluster_or_an_accelerator():
    assert find_name("clusters", "dgx h100", also="accelerators") == "dgx-h100"
    assert find_name("clusters", "mi300x", also="accelerators") == "mi300x"


def test_what_is_like_nothing_is_refused_with_a_hint():
    with pytest.raises(InputError, match="unknown model `zebra`") as caught:
        find_name("models", "zebra")
    assert caught.value.hint


def test_scores_prefer_what_was_typed():
    assert score("llama 2 7b", "llama-2-7b") == 100
    assert score("llama 2 7b", "llama-2-70b") == 0
    assert score("llama", "llama-2-7b") == 80


def test_the_listing_says_how_large_models_are():
    models = {each["name"]: each["words"] for each in listing()["models"]}
    assert models["llama-2-7b"] == "6.74B parameters, 32 layers"
    assert models["mixtral-8x7b"] == "46.7B parameters, 12.9B active, 32 layers"
    assert {"clusters", "accelerators", "stacks"} <= set(listing())


def test_every_field_of_a_question_has_a_control():
    shown = [each["key"] for each in tables()["inputs"]]
    assert shown[:4] == ["node", "network", "imbalance", "capacity"]
    named = {tables()["question"][key] for key in shown}
    assert named | set(SENTENCE) | {"sets"} == set(question_fields())
    assert set(tables()["numbers"]) == {"imbalance", "capacity", "pue", "fit"}


def test_a_pinned_strategy_follows_the_size():
    asked = resolve(Question(gpus="512", batch="1024", strategy="fsdp256-mb2"))
    assert str(asked.estimate.strategy) == "fsdp512-mb2"
    assert asked.asked.stated
    (moved,) = asked.moved
    assert moved == "fsdp256-mb2 became fsdp512-mb2: 512 GPUs, batch 1,024"


def test_the_micro_batch_gives_way_before_the_shape():
    asked = resolve(Question(gpus="512", batch="512", strategy="fsdp128-tp2-mb4"))
    assert str(asked.estimate.strategy) == "fsdp256-tp2-mb2"


def test_what_suits_no_more_is_unpinned():
    asked = resolve(Question(gpus="12", batch="24", strategy="fsdp8-tp8"))
    assert not asked.asked.stated
    assert asked.asked.evaluated > 0
    assert asked.moved == ("fsdp8-tp8 does not suit 12 GPUs and a batch of 24: unpinned",)


def test_best_is_not_a_strategy_but_a_wish():
    best = resolve(Question(gpus=256, strategy="best")).asked
    assert best.evaluated == resolve(FIRST).asked.evaluated > 1000


def test_what_suits_is_left_alone():
    asked = resolve(Question(gpus=256, strategy="fsdp256-mb2", batch="1024"))
    assert (asked.moved, asked.asked.evaluated) == ((), 0)


def test_defaults_follow_the_model():
    asked = resolve(Question(model="gpt3-1.3b", gpus="64"))
    assert asked.asked.workload.seq_len == 2048
    assert asked.asked.workload.global_batch == 2048
    assert asked.asked.workload.tokens == pytest.approx(20 * asked.estimate.model.parameters, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpus", "0"), ("gpus", "5000000"), ("batch", "0"), ("seq", "99999999"), ("batch", "x")],
)
def test_numbers_out_of_range_name_their_field(field, value):
    with pytest.raises(InputError) as caught:
        resolve(Question(**{field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "question",
    [
        Question(model="/etc/passwd"),
        Question(model="config.json"),
        Question(on="../cluster.toml"),
        Question(stack="my.TOML"),
        Question(sets=("cluster.accelerator=/tmp/chip.toml",)),
        Question(sets=("cluster.fabric=x/y",)),
        Question(lengths="/etc/passwd"),
        Question(lengths="lengths.TXT"),
        Question(sets=("workload.lengths=/etc/passwd",)),
        Question(goodput="/etc/passwd,async"),
        Question(goodput="ours.TOML"),
        Question(sets=("workload.goodput=ours/own",)),
    ],
)
def test_names_are_never_opened_as_files(question):
    with pytest.raises(InputError, match=r"not a name of the catalog|names a file"):
        no_files(question)


def test_units_with_a_slash_are_no_files():
    no_files(Question(sets=("cluster.scale_out_bandwidth=800Gbit/s",)))
    no_files(Question(goodput="rate=3.8e-3/node-day,write=100MB/s"))


def test_assumptions_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"with stack.gemm = 0 .*: no finite time for gemm$"):
        resolve(Question(gpus=256, strategy="fsdp256-mb2", sets=("stack.gemm=0",)))
