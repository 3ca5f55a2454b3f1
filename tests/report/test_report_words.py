from dataclasses import replace

import msgspec
import pytest

from report_cases import priced
from scalewise.report import words
from scalewise.terms import TERMS

GIB = 2.0**30


def test_headline_has_every_number_with_its_unit(literal):
    assert [tuple(fact) for fact in words.headline(literal)] == [
        ("throughput", "8,190 tok/s/GPU [7,000-9,500]", "16.8M tok/s total"),
        ("step time", "1.00 s", "16.8M tokens: 4,096 x 4,096, grad accum 1"),
        ("MFU", "40.0% (causal)", "396 of 989 TFLOP/s per GPU"),
        (
            "communication",
            "2.0% exposed + 25.0% contention",
            "27.0% together; 800 ms per rank, 780 ms overlapped",
        ),
        ("peak memory", "40.0 GiB [35.0-45.0]", "fits in 80.0 GiB"),
        ("power", "620 W/GPU", "1.20 kW/GPU facility, 0.150 J/token"),
        ("cost", "$0.102/M tokens", "$6,144/h at $3.00/GPU-h (market 2026-05)"),
    ]


def test_padding_makes_tokens_useful(literal):
    work = msgspec.structs.replace(literal.workload, lengths="600", batching="padded")
    facts = {fact.name: fact for fact in words.headline(replace(literal, workload=work))}
    assert facts["throughput"].value.startswith("8,190 useful tok/s/GPU [")
    detail = "2.46M useful tokens: 4,096 x 4,096 padded (15%), grad accum 1"
    assert facts["step time"].detail == detail
    whole = msgspec.structs.replace(literal.workload, lengths="4096")
    facts = {fact.name: fact for fact in words.headline(replace(literal, workload=whole))}
    assert facts["throughput"].value.startswith("8,190 tok/s/GPU [")
    assert facts["step time"].detail == "16.8M tokens: 4,096 x 4,096 packed, grad accum 1"


def test_title_is_the_question(literal):
    assert words.title(literal) == (
        "llama-2-7b (6.74B) | 2,048x h100-sxm-80gb (dgx-h100) | fsdp2048-mb2 | bf16 | "
        "stack megatron"
    )


def test_tpus_have_chips():
    facts = {fact.name: fact for fact in words.headline(priced("tpu"))}
    assert " tok/s/chip [" in facts["throughput"].value
    assert facts["MFU"].detail.endswith("TFLOP/s per chip")
    assert facts["communication"].detail.endswith(" overlapped")


def test_hfu_follows_mfu_where_something_is_recomputed(literal):
    assert words.headline(replace(literal, hfu=0.5))[2].detail.endswith("; HFU 50.0%")


def test_one_gpu_does_not_communicate(literal):
    alone = replace(literal, comm_seconds=dict.fromkeys(literal.comm_seconds, 0.0))
    assert "communication" not in [fact.name for fact in words.headline(alone)]


@pytest.mark.parametrize(
    ("fit", "detail"),
    [
        (0.999, "fits in 80.0 GiB"),
        (0.864, "fits in 80.0 GiB with 86% chance"),
        (0.31, "of 80.0 GiB (chance to fit 31%)"),
        (0.001, "of 80.0 GiB (chance to fit <1%)"),
    ],
)
def test_memory_has_its_chance_to_fit(literal, fit, detail):
    assert words.headline(replace(literal, fit=fit))[4].detail == detail


def test_memory_above_capacity_is_likely_out_of_memory(literal):
    large = replace(
        literal, memory_bytes=82.4 * GIB, memory_low=69.2 * GIB, memory_high=94.7 * GIB,
        memory_capacity=79.6 * GIB, fit=0.31, infeasible="memory: needs 82.4 GiB of 79.6 GiB",
    )  # fmt: skip
    assert words.verdict(large) == (
        "LIKELY OUT OF MEMORY: 82.4 GiB [69.2-94.7] of 79.6 GiB (chance to fit 31%)"
    )
    # A run that is known to have run is demanded less of; the number is the same.
    assert words.verdict(replace(large, infeasible=None)) == words.verdict(large)


def test_other_verdicts(literal):
    assert words.verdict(literal) is None
    assert words.verdict(replace(literal, infeasible="batch: 3 x 2")) == "CANNOT RUN: batch: 3 x 2"
    demanded = replace(literal, fit=0.7, infeasible="memory: needs 40.0 GiB of 80.0 GiB")
    assert words.verdict(demanded) == (
        "MAY RUN OUT OF MEMORY: 40.0 GiB [35.0-45.0] of 80.0 GiB (chance to fit 70%), 50% demanded"
    )


def test_unknown_power_and_price(literal):
    unknown = replace(literal, watts_per_accelerator=None, usd_per_million_tokens=None)
    power, cost = words.headline(unknown)[5:7]
    assert tuple(power) == ("power", "unknown", "no published power of h100-sxm-80gb")
    assert tuple(cost) == ("cost", "unknown", "no price of dgx-h100: set one with --price")


def test_a_budget_adds_the_whole_run(literal):
    tokens = 2048 * 8192.0 * 86400 * 10
    work = msgspec.structs.replace(literal.workload, tokens=tokens, goodput="off")
    # 6,144 dollars an hour for 240 hours; 0.15 J for each of 1.45e13 tokens.
    assert tuple(words.headline(replace(literal, workload=work))[-1]) == (
        "whole run", "10.0 days [6.64-15.1]", "14.5T tokens without failures, $1.47M, 604 MWh",
    )  # fmt: skip


def test_footnote_names_the_convention(literal):
    assert words.footnote(literal) == (
        "[low-high]: 80% prediction interval. MFU (causal): 6 FLOP per GEMM parameter, plus "
        "attention under the causal mask."
    )


def test_breakdowns_never_print_zero_for_something():
    assert words.milliseconds(1e-6) == "<0.1 ms"
    assert words.milliseconds(1.0248) == "1,024.8 ms"
    assert words.gibibytes(1e6) == "<0.1 GiB"
    assert words.percent(1e-5) == "<0.1%"
    assert words.percent(0.2377) == "23.8%"


def test_bars():
    assert words.bar(0.5, 8) == "\u2588" * 4
    assert words.bar(0.5, 8, blocks=False) == "####"
    assert words.bar(1 / 16, 8) == "\u258c"
    assert words.bar(1e-9, 8) == "\u258f"
    assert words.bar(1e-9, 8, blocks=False) == "#"
    assert words.bar(0.0, 8) == words.bar(-1.0, 8) == ""
    assert len(words.bar(7.0, 8)) == 8


def test_every_term_has_a_label():
    assert all(words.term_label(name) == term.label for name, term in TERMS.items())


def test_counts_have_plurals():
    assert words.counted(1, "rank") == "1 rank"
    assert words.counted(2048, "rank") == "2,048 ranks"
    assert words.counted(2, "micro-batch") == "2 micro-batches"
