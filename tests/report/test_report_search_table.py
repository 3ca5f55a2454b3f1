"""A search in the terminal."""

from dataclasses import replace

import pytest

from scalewise.ask.defaults import Default
from scalewise.catalog import load_cluster
from scalewise.cli.common import drawn
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.model import load_model
from scalewise.report.search_table import (
    evaluated_words,
    headline,
    launch_facts,
    print_search,
    tie_words,
)
from scalewise.report.words import interval
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

WORK = Workload(seq_len=2048, global_batch=32)
LIMITS = Limits(tp=(1, 2), pp=(1, 2), cp=(1,), micro_batch=(1, 2))


def searched(model="llama-2-7b", cluster="dgx-h100", gpus=16, limits=LIMITS, work=WORK, **asked):
    return search(load_model(model), load_cluster(cluster, gpus), work, limits=limits, **asked)


@pytest.fixture(scope="module")
def found():
    return searched(pareto=("time", "memory"), stack="megatron")


@pytest.fixture(scope="module")
def nothing():
    limits = Limits(tp=(1, 2, 4, 8), sharding=("ddp", "zero1"))
    work = Workload(seq_len=2048, global_batch=48)
    return searched("falcon-40b", "dgx-a100", 8, limits, work, stack="megatron")


def text_of(found, **options):
    return drawn(lambda out: print_search(found, out, **options)).splitlines()


def test_question_best_ties_ranking(found):
    lines = text_of(found)
    best = found.best
    assert lines[0] == (
        "llama-2-7b (6.74B) | 16x h100-sxm-80gb (dgx-h100) | batch 32 x 2,048 | bf16 | "
        "stack megatron"
    )
    ends = interval(best.low, best.high)
    assert lines[1].startswith(f"Best: {best.strategy}   11,200 tok/s/GPU {ends}   366 ms ")
    assert " strategies tie (=: at least 1 chance in 3 to be the better one); " in lines[2]
    head = next(place for place, line in enumerate(lines) if line.startswith("    strategy "))
    assert lines[head].split()[:9] == [
        "strategy", "tok/s/GPU", "step", "s", "MFU", "%", "exposed", "%", "GiB",
    ]  # fmt: skip
    assert lines[head].split()[-3:] == ["W/GPU", "$/M", "tok"]
    assert lines[head + 1].startswith(f"  = {best.strategy} ")
    assert sum(line.startswith("  = ") for line in lines) >= 2
    assert any(line.startswith("    ") and "fsdp" in line for line in lines[head + 1 :])


def test_most_ties_are_left_out_of_a_short_ranking(found):
    step = found.best.step_seconds
    equal = [replace(e, step_seconds=step) for e in found.strategies[:7]]
    others = [e for e in found.strategies[7:] if not found.is_tie(e)] or [found.loser]
    tied = replace(found, strategies=equal + others, ties=7, simplest=equal[4], safest=None)
    lines = text_of(tied)
    # What is called the simplest is in the table.
    assert [line.split()[1] for line in lines if line.startswith("  = ")] == [
        str(equal[place].strategy) for place in (0, 1, 4)
    ]
    assert "  ... (4 more ties)" in lines
    long = replace(tied, strategies=tied.strategies + 20 * [found.loser])
    assert not any("more ties" in line for line in text_of(long))


def test_reasons_launch_counts_defaults_and_interval(found):
    lines = text_of(found, defaults=[Default(flag="--stack", value="megatron", why="usual")])
    assert any(line.startswith(f"Why not {found.strategies[1].strategy}: ") for line in lines)
    assert any(line.startswith("Launch: DP 16 (") for line in lines)
    assert any(line.startswith(f"Evaluated {found.evaluated:,}: ") for line in lines)
    assert "Defaults: --stack megatron (usual)" in lines
    assert lines[-1] == "[low-high]: 80% prediction interval"


def test_the_front_is_sorted_by_its_first_objective(found):
    lines = text_of(found)
    place = lines.index("Pareto front: time, memory")
    steps = [float(line.split()[2]) for line in lines[place + 2 : place + 2 + len(found.pareto)]]
    assert steps == sorted(steps)


def test_the_safest_is_named_with_its_chance(found):
    assert not any(line.startswith("Safest") for line in text_of(replace(found, safest=None)))
    safe = replace(
        found.strategies[5], fit=0.99, memory_bytes=10 * 2.0**30,
        step_seconds=1.013 * found.best.step_seconds,
    )  # fmt: skip
    lines = text_of(replace(found, safest=safe))
    assert f"Safest within 2%: {safe.strategy} (chance to fit 99%), 10.0 GiB, 1.3% slower" in lines
    other = replace(safe, strategy=parse_strategy("ddp16-mb1"))
    assert any(line.startswith("  = ddp16-mb1 ") for line in text_of(replace(found, safest=other)))
    same = replace(found, safest=found.best)
    assert not any(line.startswith("Safest") for line in text_of(same))


def test_a_chance_to_fit_that_is_not_certain_is_in_the_first_lines(found):
    best = replace(found.best, fit=0.93)
    assert headline(replace(found, strategies=[best])).endswith(" GiB (chance to fit 93%)")
    assert headline(found).endswith(" of 79.6 GiB")


def test_where_nothing_fits_the_nearest_has_its_memory(nothing):
    assert nothing.best is None
    lines = text_of(nothing)
    assert lines[1].startswith(f"No strategy fits. Nearest: {nothing.nearest.strategy}, 89.3 GiB [")
    assert " of 80.0 GiB (chance to fit 24%)" in lines[1]
    assert "None" not in "".join(lines)
    assert evaluated_words(nothing).endswith(
        f"0 fit, {nothing.evaluated:,} out of memory (chance to fit below 90%)"
    )


def test_nothing_at_all(found):
    empty = replace(
        found, strategies=[], nearest=None, ties=0, simplest=None, loser=None, pareto=[],
        infeasible={"batch: micro-batch x data-parallel ranks": 7}, evaluated=7, feasible=0,
    )  # fmt: skip
    assert text_of(empty) == ["No strategy fits", "Evaluated 7: 0 fit, 7 batch not divisible"]


def test_ties(found):
    alone = replace(found, ties=1)
    assert tie_words(alone) == ""
    best_is_simplest = replace(found, simplest=found.best)
    assert tie_words(best_is_simplest).endswith("; the best one is also the simplest")
    assert tie_words(replace(found, ties=200)).startswith("200 or more strategies tie")


def test_launch_facts():
    limits = Limits(pp=(2,), schedule=("interleaved",), cp=(1,), sharding=("zero1",))
    e = searched(limits=limits).best
    text = launch_facts(e)
    assert f"PP 2 interleaved ({e.strategy.virtual_stages} virtual stages)" in text
    assert f"micro-batch {e.strategy.micro_batch}, grad accum {e.num_microbatches}" in text
    assert "(ZeRO-1)" in text


@pytest.mark.parametrize("columns", ["80", "100", "140"])
def test_it_fits_the_terminal(found, nothing, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    for each in (found, nothing):
        assert max(map(len, text_of(each, changes=("cluster.pue = 1.3",)))) <= int(columns)
