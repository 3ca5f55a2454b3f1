"""Words of offload, in strategies and in searches."""

import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.search import search
from scalewise.explore.space import OFFLOAD, Limits, count
from scalewise.explore.templates import parse_template
from scalewise.model import load_model
from scalewise.offload import OFFLOADS
from scalewise.strategies import Strategies, decode, encode
from scalewise.strategy import Strategy, parse_strategy
from scalewise.workload import Workload


@pytest.mark.parametrize(
    ("spelled", "words"),
    [
        ("fsdp8-mb1-offopt", "opt"),
        ("fsdp8-mb1-offopt-offparam", "opt+param"),
        ("ddp8-mb1-offact", "act"),
        ("fsdp8-mb1-offopt-offparam-offact-offnvme", "opt+param+act+nvme"),
    ],
)
def test_strategies_say_what_is_offloaded(spelled, words):
    strategy = parse_strategy(spelled)
    assert strategy.offload == words
    assert str(strategy) == spelled
    assert decode("offload", encode("offload", words)) == words
    assert Strategies.columns(dp_shard=[8], offload=[words])[0].offload == words


def test_tokens_come_in_any_order():
    assert str(parse_strategy("offact-fsdp8-offopt-mb1")) == "fsdp8-mb1-offopt-offact"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("param", "param needs opt"),
        ("act+nvme", "nvme needs opt"),
        ("act+opt", "out of order"),
        ("opt+opt", "out of order"),
        ("opts", "unknown offload opts"),
        (3, "unknown offload int"),
    ],
)
def test_wrong_words_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        Strategy(offload=words)


def test_each_word_has_a_bit():
    assert [encode("offload", word) for word in ("opt", "act")] == [1.0, 4.0]
    assert list(OFFLOADS) == ["opt", "param", "act", "nvme"]


def inputs(gpus=8, batch=64):
    return (
        load_model("llama-3-70b"),
        load_cluster("dgx-h100", accelerators=gpus),
        Workload(seq_len=4096, global_batch=batch),
    )


def test_a_search_offloads_only_when_it_is_allowed_to():
    kept = {"tp": (1,), "pp": (1,), "cp": (1,), "recompute": ("full",), "overlap": (True,)}
    plain, none, every = (Limits(**kept, offload=words) for words in (None, ("none",), ("all",)))
    of = inputs()
    assert count(*of, none) == count(*of, plain)
    assert every.offloads == ("", *OFFLOAD[1:])
    # Two of six offload parameters, which need FSDP.
    sharded = count(*of, Limits(**kept, sharding=("zero3",)))
    assert count(*of, every) == 4 * count(*of, plain) + 2 * sharded
    assert search(*of, limits=plain).best is None
    best = search(*of, limits=every).best
    assert "opt" in best.strategy.offload
    assert best.host_memory_bytes <= 2e12


def test_an_unknown_offload_of_a_search_is_refused():
    with pytest.raises(InputError, match="unknown offload cpu"):
        Limits(offload=("cpu",))


def test_templates_may_offload():
    assert parse_template("best-offopt-offact").limits.offload == ("opt+act",)
    assert parse_template("fsdp-offopt").base.offload == "opt"
