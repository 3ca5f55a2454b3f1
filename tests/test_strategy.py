"""Strategies: one spelling, read and written; what multiplies out and what is refused."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draws import any_strategy, wild
from scalewise.errors import InputError
from scalewise.strategy import Strategy, format_strategy, parse_strategy
from scalewise.workload import Workload


def only(**fields):
    """A strategy in which just these fields depart from the defaults."""
    return Strategy(**fields)


@pytest.mark.parametrize(
    ("spelling", "strategy"),
    [
        ("ddp8", only(sharding="ddp", dp_replicate=8)),
        ("dp8", only(sharding="ddp", dp_replicate=8)),
        ("zero1x64", only(sharding="zero1", dp_shard=64)),
        ("zero2x64", only(sharding="zero2", dp_shard=64)),
        ("zero1x4x16", only(sharding="zero1", dp_replicate=4, dp_shard=16)),
        ("zero3x64", only(dp_shard=64)),
        ("fsdp64", only(dp_shard=64)),
        ("hsdp4x64", only(dp_replicate=4, dp_shard=64)),
        ("tp8", only(tp=8)),
        ("tp8-nosp", only(tp=8, sequence_parallel=False)),
        ("cp4", only(cp=4)),
        ("cp4ring", only(cp=4)),
        ("cp4ag", only(cp=4, cp_method="allgather")),
        ("pp8", only(pp=8)),
        ("pp8-v4", only(pp=8, virtual_stages=4, schedule="interleaved")),
        ("pp8-v2-zbv", only(pp=8, virtual_stages=2, schedule="zbv")),
        ("pp8-gpipe", only(pp=8, schedule="gpipe")),
        ("pp8-zbh1", only(pp=8, schedule="zbh1")),
        ("pp4-first3-last2", only(pp=4, first_stage_layers=3, last_stage_layers=2)),
        ("ep8", only(ep=8)),
        ("ep8-etp2", only(ep=8, etp=2)),
        ("etp4", only(etp=4)),
        ("acnorm", only(recompute_modules="norm")),
        ("aclatent", only(recompute_modules="latent")),
        ("acact", only(recompute_modules="activation")),
        ("acmlp", only(recompute_modules="mlp")),
        ("acmlp-acfull-acnorm", only(recompute="full", recompute_modules="norm+mlp")),
        ("noepoverlap", only(overlap_ep=False)),
        ("mb2-ga16", only(micro_batch=2, num_microbatches=16)),
        ("acsel", only(recompute="selective")),
        ("acfull", only(recompute="full")),
        ("acattn", only(recompute="attention")),
        ("acop", only(recompute="op")),
        ("ac1of4", only(recompute="1of4")),
        ("ac17of32", only(recompute="17of32")),
        ("noreshard-pf2", only(reshard_after_forward=False, prefetch=2)),
        ("pf0", only(prefetch=0)),
        ("fp8", only(precision="fp8")),
        ("nvfp4", only(precision="nvfp4")),
        ("fp8row", only(precision="fp8row")),
        ("fp8block-gatherfp8", only(precision="fp8block", gather_precision="fp8")),
        ("fp8attn", only(attention_precision="fp8")),
        ("compiled", only(compiled=True)),
        ("eager", only(compiled=False)),
        ("reducebf16", only(reduce_precision="bf16")),
        ("reducefp32", only(reduce_precision="fp32")),
        ("nodpoverlap", only(overlap_dp=False)),
        ("notpoverlap", only(overlap_tp=False)),
        ("noppoverlap", only(overlap_pp=False)),
        ("  FSDP8-MB2 ", only(dp_shard=8, micro_batch=2)),
        ("mb2-tp2-fsdp8", only(dp_shard=8, tp=2, micro_batch=2)),
    ],
)
def test_every_token_sets_its_fields_and_nothing_else(spelling, strategy):
    assert parse_strategy(spelling) == strategy


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("fsdp256-tp2-pp4-mb2", "fsdp256-tp2-pp4-mb2"),
        ("mb2-pp4-tp2-fsdp256", "fsdp256-tp2-pp4-mb2"),
        ("tp8", "fsdp1-tp8-mb1"),
        ("dp8", "ddp8-mb1"),
        ("zero3x8", "fsdp8-mb1"),
        ("fsdp4x8", "hsdp4x8-mb1"),
        ("hsdp1x8", "fsdp8-mb1"),
        ("zero1x1x8", "zero1x8-mb1"),
        ("pp4-v2", "fsdp1-pp4-v2-mb1"),
        ("pp4-v2-interleaved", "fsdp1-pp4-v2-mb1"),
        ("pp4-v2-1f1b", "fsdp1-pp4-v2-1f1b-mb1"),
        ("pp4-1f1b", "fsdp1-pp4-mb1"),
        ("cp1", "fsdp1-mb1"),
        ("cp2ring", "fsdp1-cp2-mb1"),
        ("pf1", "fsdp1-mb1"),
        (
            "noepoverlap-noppoverlap-reducefp32-eager-fp8-pf0-noreshard-acmlp-acact-acsel-ga4-mb2-"
            "etp4-ep2-last1-first3-gpipe-pp4-cp2ag-nosp-tp2-hsdp2x8-nodpoverlap-notpoverlap",
            "hsdp2x8-tp2-nosp-cp2ag-pp4-gpipe-first3-last1-ep2-etp4-mb2-ga4-acsel-acact-acmlp-"
            "noreshard-pf0-fp8-eager-reducefp32-nodpoverlap-notpoverlap-noppoverlap-noepoverlap",
        ),
    ],
)
def test_canonical_spelling(written, canonical):
    assert str(parse_strategy(written)) == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unknown part ''"),
        ("fsdp8--mb2", "unknown part ''"),
        ("fsdp", "unknown part 'fsdp'"),
        ("tp8.5", "unknown part 'tp8.5'"),
        ("fsdp8-foo3", "unknown part 'foo3'"),
        ("tp8x2", "unknown part 'tp8x2'"),
        ("tp2-tp4", "tp is set twice, at "),
        ("ddp8-fsdp8", "sharding is set twice, at "),
        ("acsel-acfull", "recompute is set twice, at "),
        ("ac1of4-acop", "recompute is set twice, at "),
        ("ac4of4", "recompute 4of4 must be K of N blocks with 1 <= K < N <= 1023"),
        ("ac0of4", "recompute 0of4 must be K of N blocks"),
        ("ac01of4", "recompute 01of4 must be K of N blocks"),
        ("ac1of1024", "recompute 1of1024 must be K of N blocks"),
        ("ac4", "unknown part 'ac4'"),
        ("pp4-gpipe-zbv", "schedule is set twice, at "),
        ("ddp8x2", "takes one number"),
        ("hsdp8", "needs replicas x shards"),
        ("tp0", "tp = 0"),
        ("fsdp99999999", "dp_shard = 99999999"),
        ("mb0", "micro_batch = 0"),
        ("ga0", "num_microbatches = 0"),
        ("pp4-first0", "first_stage_layers = 0"),
        ("pf65", "prefetch = 65"),
        ("v2", "virtual_stages = 2 needs a pipeline"),
        ("pp4-interleaved", "needs virtual_stages"),
    ],
)
def test_refusals_quote_what_is_wrong(text, says):
    with pytest.raises(InputError) as caught:
        parse_strategy(text)
    assert says in str(caught.value)
    assert caught.value.hint


def test_unknown_token_gets_a_suggestion():
    with pytest.raises(InputError) as caught:
        parse_strategy("fspd8")
    assert "`fsdp`" in caught.value.hint


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ("activation+latent", "recompute_modules = activation.latent is out of order"),
        ("norm+norm", "out of order"),
        ("moe", "unknown recompute module moe"),
        (3, "unknown recompute module int"),
    ],
)
def test_modules_are_distinct_words_in_order(modules, says):
    with pytest.raises(InputError, match=says) as caught:
        Strategy(recompute_modules=modules)
    assert caught.value.hint


def test_ddp_shards_nothing():
    with pytest.raises(InputError, match="dp_shard = 2"):
        Strategy(sharding="ddp", dp_shard=2)


def test_products():
    strategy = parse_strategy("hsdp2x8-tp4-cp2-pp4-ep8")
    assert strategy.data_parallel == 16
    # ep lies inside the data-parallel ranks and multiplies nothing.
    assert strategy.accelerators == 2 * 8 * 4 * 2 * 4 == 512


def test_with_changes_and_checks_again():
    strategy = parse_strategy("fsdp8-tp2-mb2")
    assert strategy.with_(tp=4, recompute="full") == parse_strategy("fsdp8-tp4-mb2-acfull")
    assert strategy == parse_strategy("fsdp8-tp2-mb2")
    with pytest.raises(InputError, match="tp = 0"):
        strategy.with_(tp=0)


def test_with_an_unknown_field_is_an_input_error():
    with pytest.raises(InputError):
        Strategy().with_(tensor_parallel=2)


def test_mesh_names_all_factors_and_what_is_left():
    strategy = parse_strategy("hsdp2x4-tp2-cp2-pp2")
    strategy.check_mesh(64)
    with pytest.raises(InputError) as caught:
        strategy.check_mesh(128)
    for part in ("dp_replicate 2", "dp_shard 4", "tp 2", "cp 2", "pp 2", "= 64", "128"):
        assert part in str(caught.value)
    assert "must be 16" in caught.value.hint
    with pytest.raises(InputError) as caught:
        strategy.check_mesh(100)
    assert "8 does not divide 100" in caught.value.hint


@pytest.mark.parametrize(
    ("spelling", "global_batch", "steps"),
    [("fsdp8-mb2", 16, 1), ("fsdp8-mb2", 128, 8), ("hsdp2x4-tp8-mb1-ga3", 24, 3)],
)
def test_micro_steps_reach_the_global_batch(spelling, global_batch, steps):
    workload = Workload(seq_len=128, global_batch=global_batch)
    assert parse_strategy(spelling).microbatches_of(workload) == steps


@pytest.mark.parametrize(
    ("spelling", "global_batch", "says"),
    [
        ("fsdp8-mb2", 24, "not a multiple of micro_batch 2 x data-parallel ranks 8 = 16"),
        ("fsdp8-mb2", 8, "not a multiple"),
        ("fsdp8-mb2-ga3", 32, "gives a global batch of 48, not 32"),
    ],
)
def test_micro_steps_refuse_another_batch(spelling, global_batch, says):
    workload = Workload(seq_len=128, global_batch=global_batch)
    with pytest.raises(InputError, match=says):
        parse_strategy(spelling).microbatches_of(workload)


@given(any_strategy())
def test_spelling_round_trips(strategy):
    assert parse_strategy(str(strategy)) == strategy


@given(any_strategy(), st.randoms())
def test_order_of_tokens_does_not_matter(strategy, random):
    tokens = str(strategy).split("-")
    random.shuffle(tokens)
    assert parse_strategy("-".join(tokens)) == strategy


TOKENS = (
    "fsdp", "hsdp", "ddp", "zero1x", "x", "tp", "cp", "ag", "pp", "v", "mb", "ga", "pf", "first",
    "last", "ep", "etp", "acact", "-", "-", "0", "1", "2", "8", "64", "9999999999", "acsel",
    "acfull", "ac", "of",
    "interleaved", "gpipe", "zbv", "fp8", "eager", "nosp", "\u0663", "\u00b2", " ",
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(TOKENS), max_size=12).map("".join)))
@example("tp" + "9" * 5000)
@example("fsdp8-first" + "9" * 400)
@example("hsdp" + "9" * 5000 + "x2")
@example("cp\u00b2")
def test_any_text_is_read_or_refused(text):
    try:
        strategy = parse_strategy(text)
    except InputError:
        return
    assert parse_strategy(str(strategy)) == strategy


@given(st.sampled_from(Strategy.__struct_fields__), wild())
@example("tp", 10**5000)
@example("tp", True)
@example("micro_batch", 2.0)
@example("prefetch", "a")
@example("prefetch", 1.5)
@example("prefetch", True)
@example("prefetch", math.nan)
@example("num_microbatches", True)
@example("first_stage_layers", 10**400)
@example("sharding", "zero9")
@example("sharding", [])
@example("sharding", 10**5000)
@example("precision", -(10**5000))
@example("reshard_after_forward", 10**5000)
@example("schedule", "2f2b")
@example("recompute", "some")
@example("recompute", "1of1")
@example("recompute", ["full"])
@example("cp_method", None)
@example("precision", "fp7")
@example("reduce_precision", "fp8")
@example("compiled", "yes")
@example("reshard_after_forward", "yes")
@example("reshard_after_forward", 1)
@example("reshard_after_forward", 2)
@example("overlap_dp", None)
def test_wild_fields_give_a_sound_strategy_or_an_input_error(field, value):
    try:
        strategy = Strategy(**{field: value})
    except InputError:
        return
    # Whatever is accepted can be spelled and is read back the same, so it is of its kind; only
    # switches may come as 0 and 1, which Python takes for False and True.
    assert parse_strategy(format_strategy(strategy)) == strategy
    if isinstance(getattr(Strategy(), field), bool) or field == "compiled":
        assert value in (None, True, False)
    else:
        assert not isinstance(value, bool | float)
