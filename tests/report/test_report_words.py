from dataclasses import replace

import msgspec
import pytest

from scalewise.report import words
from scalewise.step.terms import Terms


def test_headline_says_every_number_with_its_unit(literal):
    assert [fact.name + ": " + fact.value + fact.detail for fact in words.headline(literal)] == [
        "throughput: 8,190 (7,000 - 9,500) tokens/s per accelerator, 16.8M in total",
        "step: 1 s for 16.8M tokens: 4,096 sequences of 4,096, 1 micro step",
        "MFU: 40.0 % (causal), 396 of 989 TFLOP/s per accelerator",
        "memory: 40.0 (35.0 - 45.0) of 80.0 GiB on the fullest accelerator",
        "power: 620 W per accelerator, 1.2 kW with its share of the site, 0.15 J/token",
        "price: $0.102 per million tokens, $6,144/h at $3.00 per accelerator",
    ]


def test_recomputed_flops_are_named(literal):
    told = words.headline(replace(literal, hfu=0.5))[2]
    assert told.detail.endswith("; HFU 50.0 %")


def test_what_is_not_known_is_said(literal):
    unknown = replace(literal, watts_per_accelerator=None, usd_per_million_tokens=None)
    power, price = words.headline(unknown)[4:6]
    assert power.value == price.value == "not known"
    assert "--set cluster.usd_per_hour" in price.detail


def test_a_budget_adds_the_whole_run(literal):
    work = msgspec.structs.replace(literal.workload, tokens=2048 * 8192.0 * 86400 * 10)
    told = words.headline(replace(literal, workload=work))[-1]
    assert told.name == "whole run"
    assert told.value == "10.0 days"
    # 6,144 dollars an hour for 240 hours; 0.15 J for each of 1.45e13 tokens.
    assert told.detail == " for 14.5T tokens without failures, $1.47M, 604 MWh"


def test_footnote_names_the_convention(literal):
    assert words.footnote(literal) == (
        "(low - high) holds 80 % of cases. MFU counts causal FLOPs: 6 FLOP per matmul parameter, "
        "and the attention that the mask leaves."
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(7993.98, "7,990"), (85.64, "85.6"), (1.0, "1.00"), (0.01234, "0.0123"), (0, "0"),
     (999999, "1,000,000")],
)  # fmt: skip
def test_grouped(value, text):
    assert words.grouped(value) == text


def test_breakdowns_never_print_zero_for_something():
    assert words.milliseconds(1e-6) == "< 0.1 ms"
    assert words.milliseconds(1.0248) == "1,024.8 ms"
    assert words.gibibytes(1e6) == "< 0.1 GiB"
    assert words.percent(1e-5) == "< 0.1 %"
    assert words.percent(0.2377) == "23.8 %"


def test_bars():
    assert words.bar(0.5, 8) == "\u2588" * 4
    assert words.bar(0.5, 8, blocks=False) == "####"
    assert words.bar(1 / 16, 8) == "\u258c"
    assert words.bar(1e-9, 8) == "\u258f"
    assert words.bar(1e-9, 8, blocks=False) == "#"
    assert words.bar(0.0, 8) == words.bar(-1.0, 8) == ""
    assert len(words.bar(7.0, 8)) == 8


def test_every_term_has_words():
    for name in Terms.__dataclass_fields__:
        assert name in words.TERM_NAMES


def test_counts_have_plurals():
    assert words.counted(1, "rank") == "1 rank"
    assert words.counted(2048, "rank") == "2,048 ranks"
