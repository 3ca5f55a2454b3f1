"""Words of variants of sharding: tokens, canonical spelling, checks."""

import pytest

from scalewise.errors import InputError
from scalewise.sharding import variant_words
from scalewise.strategy import Strategy, parse_strategy


@pytest.mark.parametrize(
    ("token", "fields"),
    [
        ("hpz8", {"backward_shard": 8}),
        ("qwz", {"gather_precision": "int8"}),
        ("qgz", {"reduce_precision": "int4"}),
        ("synconce", {"replica_sync": "once"}),
        ("hiergather", {"hierarchical_gather": True}),
        ("reduceeach", {"reduce_each": True}),
        ("reduceonce", {"reduce_each": False}),
        ("ddp1-bucket25", {"bucket_mb": 25, "sharding": "ddp"}),
        (
            "mics4x64",
            {
                "dp_replicate": 4,
                "dp_shard": 64,
                "replica_sync": "once",
                "hierarchical_gather": True,
            },
        ),
    ],
)
def test_every_token_sets_its_fields_and_nothing_else(token, fields):
    assert parse_strategy(token) == Strategy(**fields)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("qgz-qwz-hpz8-fsdp64", "fsdp64-mb1-hpz8-qwz-qgz"),
        ("hiergather-synconce-hsdp4x64", "mics4x64-mb1"),
        ("mics1x8", "mics1x8-mb1"),
        ("hsdp4x64-synconce", "hsdp4x64-mb1-synconce"),
        ("bucket25-reduceonce-ddp8", "ddp8-mb1-bucket25-reduceonce"),
        ("zero1x8-bucket500-reduceeach", "zero1x8-mb1-bucket500-reduceeach"),
    ],
)
def test_canonical_spelling(written, canonical):
    assert str(parse_strategy(written)) == canonical
    assert parse_strategy(canonical) == parse_strategy(written)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zero1x8-hpz8", "backward_shard = 8 needs sharding zero3 (fsdp, hsdp), not zero1"),
        ("ddp8-qwz", "gather_precision = int8 needs sharding zero3 (fsdp, hsdp), not ddp"),
        ("zero2x8-qgz", "reduce_precision = int4 needs sharding zero3 (fsdp, hsdp), not zero2"),
        ("ddp8-synconce", "replica_sync = once needs sharding zero3"),
        ("ddp8-hiergather", "hierarchical_gather = True needs sharding zero3"),
        ("fsdp8-hpz4-noreshard", "backward_shard = 4 needs parameters that are freed"),
        ("fsdp8-hpz1", "backward_shard = 1 must be a whole number from 2"),
        ("fsdp8-bucket25", "bucket_mb = 25 needs ddp, zero1 or zero2"),
        ("mics8", "`mics8` needs replicas x shards"),
        ("qgz-reducebf16", "reduce_precision is set twice, at "),
        ("reduceeach-reduceonce", "reduce_each is set twice, at "),
        ("mics2x4-synconce", "replica_sync is set twice, at "),
    ],
)
def test_variants_that_do_not_go_with_the_rest(text, says):
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace(")", r"\)")):
        parse_strategy(text)


def test_variants_go_with_the_sharding_that_has_them():
    full = parse_strategy("hsdp2x8-hpz4-qwz-qgz-synconce-hiergather-reduceonce")
    assert str(full.with_(sharding="zero1")) == "zero1x2x8-mb1-reduceonce"
    assert str(full.with_(reshard_after_forward=False)) == (
        "mics2x8-mb1-noreshard-qwz-qgz-reduceonce"
    )
    assert str(parse_strategy("zero1x8-bucket25").with_(sharding="zero3")) == "fsdp8-mb1"
    # What is changed in the same breath is checked.
    with pytest.raises(InputError, match="backward_shard = 4 needs sharding zero3"):
        full.with_(sharding="zero2", backward_shard=4)


def test_words_of_a_launch_line():
    assert variant_words(parse_strategy("mics4x64-hpz8-qwz-qgz-reduceeach")) == [
        "all-gathers in int8",
        "gradients reduced in int4",
        "replicas synchronized once per step",
        "hierarchical all-gathers",
        "gradients reduced after every micro-batch",
        "backward all-gathers in groups of 8",
    ]
    assert variant_words(parse_strategy("ddp8-bucket25")) == ["buckets of 25 MiB"]
    assert variant_words(parse_strategy("hsdp4x64")) == []
