"""A search as files: rows for other tools, a page."""

import csv
import io
import re
from dataclasses import replace

import pytest

from report_cases import is_offline, nothing_fits, priced, searched, small_search, without_scripts
from scalewise.errors import InputError
from scalewise.explore.search import Search
from scalewise.explore.space import Limits
from scalewise.report.search_files import COLUMNS, search_file, search_page, search_rows
from scalewise.strategy import parse_strategy
from scalewise.terms import TERMS


@pytest.fixture(scope="module")
def found():
    return small_search()


@pytest.fixture(scope="module")
def nothing():
    return nothing_fits()


def read(found):
    return list(csv.DictReader(io.StringIO(search_file(found, ".csv").decode())))


# Rows.


def test_one_row_per_strategy_of_the_ranking_and_then_of_the_front(found):
    lines = read(found)
    ranked = [str(e.strategy) for e in found.strategies]
    front = [str(e.strategy) for e in found.pareto]
    more = [name for name in front if name not in ranked]
    assert [row["strategy"] for row in lines] == ranked + more
    assert [row["rank"] for row in lines] == [str(n) for n in range(1, 9)] + [""] * len(more)
    assert {row["strategy"] for row in lines if row["front"] == "true"} == set(front)
    assert more
    assert {row["front"] for row in lines} == {"true", "false"}
    assert tuple(lines[0]) == tuple(COLUMNS)


def test_rows_hold_the_estimate_and_every_field_of_its_strategy(found):
    for row, e in zip(read(found), found.strategies, strict=False):
        assert float(row["step_seconds"]) == e.step_seconds
        assert (
            float(row["tokens_per_second_per_accelerator"]) == e.tokens_per_second_per_accelerator
        )
        assert float(row["low"]) == e.low < e.high == float(row["high"])
        assert float(row["exposed_fraction"]) == e.exposed_fraction
        assert float(row["usd_per_million_tokens"]) == e.usd_per_million_tokens
        assert float(row["recompute_seconds"]) == e.terms["recompute"]
        assert float(row["optimizer_seconds"]) == e.terms["optimizer"]
        assert float(row["optimizer_bytes"]) == e.memory["optimizer"]
        terms = sum(float(row[f"{name}_seconds"]) for name in TERMS)
        assert terms == pytest.approx(e.step_seconds, rel=1e-12)
        parts = sum(float(value) for name, value in row.items() if name.endswith("_bytes"))
        assert parts - e.memory_bytes == pytest.approx(e.memory_bytes, rel=1e-12)
        # The degrees alone say which strategy it is.
        s = parse_strategy(row["strategy"])
        for name in ("tp", "pp", "cp", "dp_replicate", "dp_shard", "micro_batch", "virtual_stages"):
            assert int(row[name]) == getattr(s, name)
        assert (row["sharding"], row["recompute"]) == (s.sharding, s.recompute)
        assert row["reshard_after_forward"] == str(s.reshard_after_forward).lower()
        assert int(row["num_microbatches"]) == e.num_microbatches
        assert (row["model"], row["cluster"], row["accelerators"], row["global_batch"]) == (
            "llama-2-7b", "dgx-h100", "16", "32",
        )  # fmt: skip


def test_ties_are_those_of_the_search(found):
    lines = search_rows(found)
    assert found.ties > 1
    assert [row["tie"] for row in lines[:8]] == list(map(found.is_tie, found.strategies))
    every = searched(top=1000)
    assert sum(row["tie"] for row in search_rows(every)) == every.ties == found.ties
    alone = replace(found, ties=1)
    assert not any(row["tie"] for row in search_rows(alone))


def test_what_is_not_known_is_empty():
    tpu = searched(cluster="gcp-tpu-v5e", limits=Limits(tp=(1, 2), pp=(1,), cp=(1,)))
    row = read(tpu)[0]
    assert row["watts_per_accelerator"] == row["joules_per_token"] == ""
    assert row["first_stage_layers"] == row["compiled"] == ""
    # The bars and the table need none of it either.
    assert "<td class='number'>-</td>" in search_page(tpu)


def test_parquet_has_types_also_for_empty_columns(found, nothing):
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(io.BytesIO(search_file(found, ".parquet")))
    assert tuple(frame.columns) == tuple(COLUMNS)
    assert frame.schema["rank"] == frame.schema["first_stage_layers"] == polars.Int64
    assert frame.schema["tie"] == frame.schema["compiled"] == polars.Boolean
    assert frame.schema["gemm_seconds"] == frame.schema["logits_bytes"] == polars.Float64
    assert frame.schema["schedule"] == frame.schema["reduce_precision"] == polars.String
    assert frame["step_seconds"][:8].to_list() == [e.step_seconds for e in found.strategies]
    empty = polars.read_parquet(io.BytesIO(search_file(nothing, ".parquet")))
    assert empty.schema == frame.schema
    assert empty.height == 0


# The page.


def test_the_page_has_everything_and_works_offline(found):
    page = search_page(found, defaults=("sequence <4096>",))
    text = without_scripts(page)
    for wanted in (
        str(found.best.strategy),
        f"{found.evaluated:,} strategies evaluated",
        f">{found.feasible:,}</td>",
        f"Launch {found.best.strategy}",
        "sequence &lt;4096&gt;",
        "Predicted by Scalewise",
        "2,048 tokens",
        "32 sequences",
        found.why()[0],
        *found.infeasible,
    ):
        assert wanted in text, wanted
    assert "<4096>" not in text
    # One library, inside; nothing is fetched.
    assert page.count("Plotly.newPlot(") >= 3
    assert page.count("plotly.js v") == 1
    assert is_offline(page)
    table = re.findall(r"<td class='number'>(\d+)</td><td>(?:= )?([^<]+)</td>", text)
    ranked = [(str(n + 1), str(e.strategy)) for n, e in enumerate(found.strategies)]
    assert table[: len(ranked)] == ranked
    assert text.count("<tr class='tie'>") >= min(found.ties, 8)


def test_launch_facts_are_split_outside_brackets_only():
    one = Search(
        by="time", evaluated=1, feasible=1, infeasible={}, strategies=[priced("hsdp")], ties=1
    )
    page = search_page(one)
    assert "<li>DP 64 (FSDP, 4 replicas x 16 shards)</li>" in page
    assert "<li>micro-batch 2</li>" in page


def test_a_page_without_a_front_and_without_a_map_has_only_bars(found):
    page = search_page(replace(found, pareto=[], best_by_tp_pp={}))
    assert page.count("Plotly.newPlot(") == 1
    assert "Pareto front" not in page
    one = search_page(replace(found, pareto=found.pareto[:1], best_by_tp_pp={}))
    assert f"One strategy is best in all objectives: {found.pareto[0].strategy}." in one


def test_where_nothing_fits_the_page_names_the_nearest(nothing):
    page = search_page(nothing)
    assert "No strategy fits" in page
    assert f"Nearest: {nothing.nearest.strategy}, memory: needs" in page
    assert "llama-3.1-405b" in page
    assert "Plotly" not in page
    assert search_file(nothing, ".csv").decode().splitlines() == [",".join(COLUMNS)]


def test_a_search_of_nothing_is_still_a_page():
    empty = Search(by="time", evaluated=0, feasible=0, infeasible={}, strategies=[], ties=0)
    assert "No strategy fits" in search_page(empty)
    assert "0 strategies evaluated" in search_page(empty)


def test_an_interrupted_search_says_so(found):
    assert "best strategies so far" in search_page(replace(found, interrupted=True))
    assert "best strategies so far" not in search_page(found)


# Pictures.


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_same_search_gives_the_same_bytes(found, ending, start):
    pytest.importorskip("matplotlib")
    image = search_file(found, ending)
    assert image.startswith(start)
    assert image == search_file(found, ending)


def test_nothing_to_draw_is_a_sentence(nothing):
    with pytest.raises(InputError, match="no strategy fits"):
        search_file(nothing, ".svg")
