import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.errors import InputError
from scalewise.explore.space import Limits
from scalewise.explore.templates import choices, fill, parse_template


@pytest.mark.parametrize(
    ("template", "size", "batch", "strategy"),
    [
        ("fsdp", 8, 16, "fsdp8-mb2"),
        ("ddp", 8, 16, "ddp8-mb2"),
        ("zero1", 64, 64, "zero1x64-mb1"),
        ("zero2-tp2", 64, 64, "zero2x32-tp2-mb2"),
        ("hsdp64", 8, 16, "fsdp8-mb2"),
        ("hsdp64", 64, 128, "fsdp64-mb2"),
        ("hsdp64", 512, 1024, "hsdp8x64-mb2"),
        ("hsdp64-tp2", 512, 1024, "hsdp4x64-tp2-mb4"),
        ("tp2", 16, 32, "fsdp8-tp2-mb4"),
        ("fsdp-tp2-mb4-acfull", 16, 64, "fsdp8-tp2-mb4-acfull"),
        ("tp8-pp8-zero1", 128, 256, "zero1x2-tp8-pp8-mb4"),
        ("FSDP-mb1", 8, 16, "fsdp8-mb1"),
        ("fsdp-ga4", 8, 64, "fsdp8-mb2-ga4"),
        ("fsdp8-mb1", 8, 64, "fsdp8-mb1"),
    ],
)
def test_templates_take_the_ranks_that_are_left(template, size, batch, strategy):
    assert str(fill(parse_template(template), size, batch)) == strategy


@pytest.mark.parametrize(
    ("template", "size", "batch", "said"),
    [
        ("tp8-pp8", 8, 16, "tp 8 x cp 1 x pp 8 = 64 does not divide 8"),
        ("hsdp64", 96, 96, "groups of 64 do not divide 96"),
        ("fsdp", 64, 32, "32 sequences are not a multiple of 64"),
        ("fsdp-mb4", 8, 16, "not a multiple of micro-batch 4 x 8"),
        ("fsdp64", 8, 8, "its size is fixed"),
        ("fsdp-ga3", 8, 16, "2 sequences per rank are not a multiple of 3"),
    ],
)
def test_what_does_not_fit_says_why(template, size, batch, said):
    with pytest.raises(InputError, match=said):
        fill(parse_template(template), size, batch)


@pytest.mark.parametrize(
    "text", ["", "fsdp-ddp", "fsdp-hsdp8", "fsdp-fsdp8", "hsdp0", "hsdp", "foo", "tp2-tp4"]
)
def test_wrong_templates_are_refused(text):
    with pytest.raises(InputError):
        parse_template(text)


def test_choices_are_the_divisors():
    found = choices(parse_template("fsdp"), 8, 96)
    assert [each.micro_batch for each in found] == [1, 2, 3, 4, 6, 12]


@given(
    st.sampled_from(["fsdp", "hsdp16", "ddp", "tp2-pp2", "zero1-cp2"]),
    st.integers(1, 4096),
    st.integers(1, 64),
)
def test_a_filled_template_uses_every_accelerator_and_the_whole_batch(template, size, each):
    try:
        strategy = fill(parse_template(template), size, size * each)
    except InputError:
        return
    assert strategy.accelerators == size
    assert size * each % (strategy.micro_batch * strategy.data_parallel) == 0


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("best", Limits()),
        ("BEST-tp2", Limits(tp=(2,))),
        ("best-tp2-tp4-pp1", Limits(tp=(2, 4), pp=(1,))),
        ("best-fsdp-mb1-acnone", Limits(sharding=("zero3",), micro_batch=(1,),
                                        recompute=("none",))),
        ("best-zero1-1f1b-v2-cp4", Limits(sharding=("zero1",), schedule=("1f1b",),
                                          virtual_stages=(2,), cp=(4,))),
    ],
)  # fmt: skip
def test_best_may_be_held_to_something(text, limits):
    template = parse_template(text)
    assert template.limits == msgspec.structs.replace(limits, overlap=(True,))
    assert template.label == text.lower()


@pytest.mark.parametrize("text", ["best-hsdp8", "best-fsdp8", "best-nosp", "best-", "best-tp0"])
def test_best_cannot_be_held_to_everything(text):
    with pytest.raises(InputError):
        parse_template(text)


def test_a_given_strategy_is_not_searched():
    assert parse_template("fsdp").limits is None


@pytest.mark.parametrize(
    ("text", "multiple"), [("fsdp", 1), ("tp2-pp4", 8), ("hsdp64", 64), ("hsdp64-tp2", 128)]
)
def test_sizes_are_multiples(text, multiple):
    assert parse_template(text).multiple == multiple


@pytest.mark.parametrize("size", [0, -8])
def test_a_size_below_one_is_refused(size):
    with pytest.raises(InputError, match=f"gpus = {size} must be at least 1"):
        choices(parse_template("fsdp"), size, 64)
