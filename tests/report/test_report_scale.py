import io
import re

import msgspec
import pytest
from rich.console import Console

from report_cases import many_groups, one_group, only
from scalewise.ask.defaults import Default
from scalewise.catalog import load_cluster
from scalewise.explore.scale import scale
from scalewise.explore.sizes import Rule
from scalewise.model import load_model
from scalewise.ranges import ratio_range
from scalewise.report import scale_words as words
from scalewise.report.scale_table import print_curves


@pytest.fixture(scope="module")
def one():
    return one_group()


@pytest.fixture(scope="module")
def many():
    return many_groups()


# Words


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "llama-2-7b, dgx-h100, seq 4,096, fsdp"),
        ({"model": "llama-2-7b"}, "dgx-h100, seq 4,096, fsdp"),
        ({"model": "llama-2-7b", "seq_len": 4096}, "dgx-h100, fsdp"),
        ({"model": "llama-2-7b", "seq_len": 4096, "label": "fsdp"}, "dgx-h100"),
        ({"cluster": "dgx-h100", "seq_len": 4096, "label": "fsdp"}, "llama-2-7b"),
        ({"model": "llama-2-7b", "cluster": "dgx-h100", "seq_len": 4096}, "fsdp"),
        ({"model": "llama-2-7b", "cluster": "dgx-h100", "seq_len": 4096, "label": "fsdp"}, "fsdp"),
    ],
)
def test_names_say_what_differs_and_nothing_else(many, fields, name):
    kept = only(many, **fields)
    assert words.curve_name(kept.curves[0], kept) == name


def test_titles(one, many):
    assert words.title(one) == (
        "llama-2-7b (6.74B) | dgx-h100, 64-8,192 GPUs | weak, 2 x 4,096 per GPU | bf16 | "
        "stack megatron"
    )
    assert words.title(many) == (
        "llama-2-7b (6.74B), llama-2-13b (13.0B) | dgx-h100, dgx-v100, 16-64 GPUs | "
        "weak, 2 x 4,096 / 8,192 per GPU | bf16, fp16 | stack megatron"
    )
    strong = Rule(kind="strong", batch=1024, seq_len=4096)
    assert " | strong, batch 1,024 x 4,096 | " in words.title(
        msgspec.structs.replace(one, rules=(strong,))
    )
    assert words.source_line(one).startswith("Predicted, not measured: scalewise ")
    assert "stack megatron" in words.source_line(one)


def test_the_best_at_the_largest_size(one, many):
    (line,) = words.best_lines(one)
    best, other = (curve.points[-1] for curve in (one.curves[1], one.curves[0]))
    level = words.interval(best.low, best.high)
    low, high = ratio_range(best.basis, other.basis)
    ratio = words.gain_interval(low - 1.0, high - 1.0)
    assert line == (
        f"Best at 8,192 GPUs: hsdp64, 11,000 tok/s/GPU {level}, +422% {ratio} over fsdp."
    )
    assert words.best_lines(one, share=0.05)[0].endswith(" No knee up to 8,192.")
    assert words.knee_line(one) == ("fsdp at 8,192 (marginal 9.0%); tp2 at 8,192 (marginal 23.9%)")
    # One line for each model and sequence length, at most two.
    lines = words.best_lines(many)
    assert len(lines) == 2
    assert all(line.startswith("Best at 64 GPUs: llama-2-") for line in lines)
    assert words.best_lines(only(one, label="ddp")) == ["No strategy can run at any of these sizes"]


def test_a_strategy_that_was_searched_has_its_name(many):
    mine = only(
        many, model="llama-2-7b", cluster="dgx-h100", seq_len=4096, label="best-tp2-pp1-mb1"
    )
    assert words.best_lines(mine)[0].startswith(
        f"Best at 64 GPUs: best-tp2-pp1-mb1 ({mine.curves[0].points[-1].strategy}), "
    )


def test_knees(one):
    lines = words.knee_sentences(one)
    assert lines[0] == "fsdp: knee at 8,192 GPUs, marginal efficiency 9.0%, below 50%"
    assert lines[1].startswith("hsdp64: no knee up to 8,192 GPUs, marginal efficiency 95.6%")
    assert lines[4] == "ddp: no knee, fewer than two sizes can run"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"chance": 0.95}, "tp2 > fsdp from 768 GPUs"),
        ({"chance": 0.78}, "tp2 > fsdp from 768 GPUs (chance 78% at 2,048)"),
        ({"chance": 0.6}, "tp2 > fsdp from 768 GPUs (tie)"),
    ],
)
def test_crossovers_in_words(one, change, text):
    found = msgspec.structs.replace(
        one.crossovers[0], winner="tp2", loser="fsdp", accelerators=768, gain=0.02, last=2048,
        last_gain=0.05,
    )  # fmt: skip
    found = msgspec.structs.replace(found, **change)
    assert words.crossover_sentences(msgspec.structs.replace(one, crossovers=(found,))) == [text]


def test_crossovers_of_one_loser_at_one_size_are_joined(one):
    first = msgspec.structs.replace(
        one.crossovers[0], winner="a", loser="c", accelerators=16, chance=0.99
    )
    second = msgspec.structs.replace(first, winner="b")
    third = msgspec.structs.replace(first, accelerators=128)
    line = words.crossover_line(msgspec.structs.replace(one, crossovers=(first, second, third)))
    assert line == "a, b > c from 16 GPUs; a > c from 128"
    assert words.crossover_line(msgspec.structs.replace(one, crossovers=())) == ""


def test_causes(one):
    assert words.cause_sentences(only(one, label="fsdp")) == [
        "fsdp -15.9% up to 1,024 GPUs (contention with all-gathers, ring latency), then -78.1% "
        "(exposed all-gather, ring latency)"
    ]
    # What all losses share is said once.
    two = msgspec.structs.replace(only(one, label="fsdp"), sizes=(64, 1024))
    first = msgspec.structs.replace(two.curves[0], points=two.curves[0].points[:2])
    assert words.cause_line(msgspec.structs.replace(two, curves=(first,))) == (
        "contention with all-gathers. fsdp -15.9% (ring latency)"
    )


def test_gaps(one):
    lines = words.missing_sentences(one)
    assert lines[0].startswith("tp8-pp16 at 64: mesh: ")
    assert lines[1] == "ddp at 64-8,192: memory: needs 135.1 GiB of 79.6 GiB"


@pytest.mark.parametrize(
    ("strategy", "spelling"),
    [
        ("hsdp8x64-tp2-mb4", "hsdp64-tp2-mb4"),
        ("fsdp512-pp2-zbv-mb4-noreshard", "fsdp-pp2-zbv-mb4-noreshard"),
        ("zero1x128-tp2-mb4", "zero1-tp2-mb4"),
        ("ddp8-mb1", "ddp-mb1"),
    ],
)
def test_strategies_without_their_total(strategy, spelling):
    assert words.open_spelling(strategy) == spelling


def test_best_names_its_strategies(many):
    (line,) = words.best_sentences(only(many, model="llama-2-7b", cluster="dgx-h100",
                                        seq_len=4096))  # fmt: skip
    assert line.startswith("best-tp2-pp1-mb1: ")
    assert "tp2-mb1" in line
    assert " at 16" in line
    assert line.endswith(" evaluated)")


# Terminal


def printed(curves, width=100, **options):
    page = io.StringIO()
    print_curves(curves, Console(file=page, width=width, no_color=True), **options)
    return page.getvalue().splitlines()


def test_terminal_has_the_answer_two_tables_and_causes(one):
    lines = printed(one)
    assert lines[1].startswith("Best at 8,192 GPUs: hsdp64, 11,000 tok/s/GPU [")
    assert lines[2] == "Knee: fsdp at 8,192 (marginal 9.0%); tp2 at 8,192 (marginal 23.9%)"
    head = "at 8,192 tok/s/GPU MFU % exposed % efficiency % [low-high] marginal % tok/J $/M tok"
    words_of = [" ".join(line.split()) for line in lines]
    place = words_of.index(head)
    # The interval of the efficiency is that of a ratio; its ends are the catalog's.
    plain = [re.sub(r" \[\d+-\d+\]", "", line) for line in words_of[place + 1 : place + 5]]
    assert plain == [
        "hsdp64 11,000 47.7 2.0 95.9 95.6 8.78 0.0744",
        "tp8-pp16 3,690 16.0 43.5 76.8 73.5 3.12 0.2221",
        "tp2 3,610 15.6 62.8 31.9 23.9 3.03 0.2271",
        "fsdp 2,110 9.2 76.9 18.4 9.0 1.79 0.3881",
    ]
    assert "  tok/s/GPU      64   1,024   8,192" in lines
    assert "  tp8-pp16        -   4,800   3,690" in lines
    assert any(
        line.startswith("Crossovers: hsdp64 > fsdp from 128 GPUs; tp2 > fsdp from 384")
        for line in lines
    )
    assert any(line.startswith("Cause: fsdp -15.9% up to 1,024 GPUs") for line in lines)
    assert "Cannot run: ddp at 64-8,192: memory: needs 135.1 GiB of 79.6 GiB" in lines


@pytest.mark.parametrize("width", [80, 100, 140])
def test_terminal_keeps_its_width_and_30_lines(one, many, width):
    default = Default(flag="--seq", value="4096", why="usual for pre-training")
    for curves in (one, many):
        lines = printed(curves, width, defaults=[default])
        assert max(map(len, lines)) <= width
        if width >= 100:
            assert len(lines) <= 30
        assert "Defaults: --seq 4096 (usual for pre-training)" in lines


def test_every_size_is_printed_on_demand(many):
    lines = printed(many, 200, table=True)
    head = next(line for line in lines if line.lstrip().startswith("strategy"))
    for column in ("GPUs", "mb", "tok/s", "[low-high]", "MFU %", "exposed %", "efficiency %",
                   "marginal %", "loss %", "GiB", "W", "tok/J", "$/M tok"):  # fmt: skip
        assert column in head
    assert "llama-2-13b, dgx-v100, seq 8,192" in lines
    assert not any(line.lstrip().startswith("strategy ") for line in printed(many, 200))


def test_a_budget_has_days_and_cost(many):
    rules = tuple(msgspec.structs.replace(rule, tokens=2e12) for rule in many.rules)
    asked = scale(load_model("llama-2-7b"), load_cluster("dgx-h100"), rules[0], ["fsdp"], [64],
                  stack="megatron")  # fmt: skip
    head, row = printed(asked)[3:5]
    assert head.split()[-5:] == ["days", "run", "$", "goodput", "%"]
    # $142,677 for a run that never stops.
    assert row.endswith(" $143,443        99.5")
