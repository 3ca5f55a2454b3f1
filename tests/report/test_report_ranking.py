"""A search as files: rows for other tools, a page, a figure."""

import csv
import io
import re
from dataclasses import replace

import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.search import Search, objective_of, search
from scalewise.explore.space import Limits
from scalewise.model import load_model
from scalewise.report import ranking_plots as plots
from scalewise.report import ranking_style as style
from scalewise.report.ranking import KINDS
from scalewise.report.ranking_data import COLUMNS, ranking_csv, ranking_parquet, rows
from scalewise.report.ranking_figure import ranking_drawing, ranking_image
from scalewise.report.ranking_page import ranking_html
from scalewise.step.terms import TERM_NAMES
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

WORK = Workload(sequence=2048, global_batch=32)
LIMITS = Limits(tp=(1, 2), pp=(1, 2), cp=(1,), micro_batch=(1, 2))


def searched(model="llama-2-7b", cluster="dgx-h100", limits=LIMITS, **asked):
    return search(load_model(model), load_cluster(cluster, 16), WORK, limits=limits, **asked)


@pytest.fixture(scope="module")
def found():
    return searched(pareto=("time", "memory"), by_mesh=True, top=8)


@pytest.fixture(scope="module")
def nothing():
    return searched("llama-3.1-405b", limits=Limits(tp=(1,), pp=(1,)))


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


# Rows.


def test_one_row_per_strategy_of_the_ranking_and_then_of_the_front(found):
    told = read(ranking_csv(found))
    ranked = [str(e.strategy) for e in found.strategies]
    front = [str(e.strategy) for e in found.pareto]
    more = [name for name in front if name not in ranked]
    assert [row["strategy"] for row in told] == ranked + more
    assert [row["rank"] for row in told] == [str(n) for n in range(1, 9)] + [""] * len(more)
    assert {row["strategy"] for row in told if row["front"] == "true"} == set(front)
    assert more
    assert {row["front"] for row in told} == {"true", "false"}
    assert tuple(told[0]) == COLUMNS


def test_rows_hold_the_estimate_and_every_field_of_its_strategy(found):
    for row, e in zip(read(ranking_csv(found)), found.strategies, strict=False):
        assert float(row["step_seconds"]) == e.step_seconds
        assert (
            float(row["tokens_per_second_per_accelerator"]) == e.tokens_per_second_per_accelerator
        )
        assert float(row["low"]) == e.low < e.high == float(row["high"])
        assert float(row["exposed_share"]) == e.exposed_share
        assert float(row["usd_per_million_tokens"]) == e.usd_per_million_tokens
        assert float(row["recompute_seconds"]) == e.terms["recompute"]
        assert float(row["optimizer_seconds"]) == e.terms["optimizer"]
        assert float(row["optimizer_bytes"]) == e.memory["optimizer"]
        terms = sum(float(row[f"{name}_seconds"]) for name in TERM_NAMES)
        assert terms == pytest.approx(e.step_seconds, rel=1e-12)
        parts = sum(float(value) for name, value in row.items() if name.endswith("_bytes"))
        assert parts - e.memory_bytes == pytest.approx(e.memory_bytes, rel=1e-12)
        # The degrees alone say which strategy it is.
        s = parse_strategy(row["strategy"])
        for name in ("tp", "pp", "cp", "dp_replicate", "dp_shard", "micro_batch", "virtual_stages"):
            assert int(row[name]) == getattr(s, name)
        assert (row["sharding"], row["recompute"]) == (s.sharding, s.recompute)
        assert row["reshard"] == str(s.reshard).lower()
        assert int(row["micro_steps"]) == e.micro_steps
        assert (row["model"], row["cluster"], row["accelerators"], row["global_batch"]) == (
            "llama-2-7b", "dgx-h100", "16", "32",
        )  # fmt: skip


def test_ties_are_those_of_the_search(found):
    told = rows(found)
    assert found.ties > 1
    assert sum(row["tie"] for row in told[:8]) == min(found.ties, 8)
    alone = replace(found, ties=1)
    assert not any(row["tie"] for row in rows(alone))


def test_what_is_not_known_is_empty():
    tpu = searched(cluster="gcp-tpu-v5e", limits=Limits(tp=(1, 2), pp=(1,), cp=(1,)))
    row = read(ranking_csv(tpu))[0]
    assert row["watts_per_accelerator"] == row["joules_per_token"] == ""
    assert row["first_stage_layers"] == row["compiled"] == ""
    # The bars and the table need none of it either.
    assert "<td>-</td>" in ranking_html(tpu)


def test_parquet_has_types_also_for_empty_columns(found, nothing):
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(io.BytesIO(ranking_parquet(found)))
    assert tuple(frame.columns) == COLUMNS
    assert frame.schema["rank"] == frame.schema["first_stage_layers"] == polars.Int64
    assert frame.schema["tie"] == frame.schema["compiled"] == polars.Boolean
    assert frame.schema["gemm_seconds"] == frame.schema["logits_bytes"] == polars.Float64
    assert frame.schema["schedule"] == frame.schema["reduce_precision"] == polars.String
    assert frame["step_seconds"][:8].to_list() == [e.step_seconds for e in found.strategies]
    empty = polars.read_parquet(io.BytesIO(ranking_parquet(nothing)))
    assert empty.schema == frame.schema
    assert empty.height == 0


# What is shown.


def test_every_term_has_a_kind_and_a_colour_from_dark_to_light():
    named = [name for terms in KINDS.values() for name in terms]
    assert sorted(named) == sorted(TERM_NAMES)
    for terms in KINDS.values():
        shades = [sum(int(style.COLOURS[name][k : k + 2], 16) for k in (1, 3, 5)) for name in terms]
        assert shades == sorted(set(shades))


def test_segments_add_up_to_the_step(found):
    drawn = style.drawn(found)
    for parts in (style.kinds(drawn), style.segments(drawn), style.segments(drawn, small=0.02)):
        for row in drawn:
            total = sum(part.seconds(row.estimate) for part in parts)
            assert total == pytest.approx(row.estimate.step_seconds, rel=1e-12)
    fine, coarse = style.segments(drawn), style.segments(drawn, small=0.02)
    assert len(coarse) < len(fine)
    assert any(part.label.startswith("other ") for part in coarse)
    order = [name for terms in KINDS.values() for name in terms]
    places = [order.index(part.terms[0]) for part in fine]
    assert places == sorted(places)


def test_the_simplest_and_the_loser_have_a_bar(found):
    drawn = style.drawn(found, most=1)
    assert drawn[0].label == f"1 = {found.best.strategy}"
    assert drawn[0].note.startswith("best")
    assert [row.estimate for row in drawn if "simplest" in row.note] == [found.simplest]
    assert [row.estimate for row in drawn if "no near-tie" in row.note] == [found.loser]
    assert drawn[-1].label == f"...   {found.loser.strategy}"


@pytest.mark.parametrize(
    ("by", "value", "text"),
    [
        ("time", 15.66, "15.7 s"),
        ("tokens", 5e-3, "5,000 us"),
        ("cost", 2.1932, "$2.19"),
        ("energy", 3.9, "3.90 J"),
        ("memory", 75.2 * 2**30, "75.2 GiB"),
    ],
)
def test_objectives_in_their_units(by, value, text):
    assert style.QUANTITIES[by].text(value) == text


# Pictures.


def test_bars_have_the_lengths_of_the_terms(found):
    figure = plots.bars_figure(found)
    drawn = style.drawn(found)
    shown = [bar for bar in figure.data if bar.visible]
    hidden = [bar for bar in figure.data if not bar.visible]
    assert [bar.name for bar in shown] == ["compute", "communication", "waiting"]
    assert [bar.name for bar in hidden] == [part.label for part in style.segments(drawn)]
    for bars in (shown, hidden):
        for place, row in enumerate(drawn):
            assert sum(bar.x[place] for bar in bars) == pytest.approx(row.estimate.step_seconds)
    by_kind, by_term = figure.layout.updatemenus[0].buttons
    assert list(by_kind.args[0]["visible"]) == [bar in shown for bar in figure.data]
    assert list(by_term.args[0]["visible"]) == [bar in hidden for bar in figure.data]
    assert "seconds" in figure.layout.xaxis.title.text


def test_the_front_is_drawn_against_what_it_was_traded_for(found):
    assert plots.front_axes(found)[0] == "memory"
    figure = plots.front_figure(found)
    points = figure.data[0]
    assert list(points.x) == sorted(e.step_seconds for e in found.pareto)
    assert list(points.y) == sorted((e.memory_bytes / 2**30 for e in found.pareto), reverse=True)
    assert figure.layout.yaxis.title.text.endswith("GiB")
    best = figure.data[-1]
    assert best.name == "best by time"
    assert best.x == (found.best.step_seconds,)
    assert str(found.best.strategy) in best.text[0]


def test_the_map_shows_the_best_of_every_mesh(found):
    heat = plots.mesh_figure(found).data[0]
    assert (heat.x, heat.y) == (("1", "2"), ("1", "2"))
    least = min(e.step_seconds for e in found.by_mesh.values())
    for row, tp in enumerate((1, 2)):
        for column, pp in enumerate((1, 2)):
            e = found.by_mesh[tp, pp]
            behind = 100 * (objective_of(e, "time") / least - 1)
            assert heat.z[row][column] == pytest.approx(min(behind, 100.0))
            assert heat.text[row][column] == style.QUANTITIES["time"].text(e.step_seconds)
            assert str(e.strategy) in heat.hovertext[row][column]
    # A mesh without a strategy stays empty.
    some = {mesh: e for mesh, e in found.by_mesh.items() if mesh != (2, 2)}
    assert plots.mesh_figure(replace(found, by_mesh=some)).data[0].z[1][1] is None


# The page.


def test_the_page_tells_everything_and_works_offline(found):
    page = ranking_html(found, chosen=("sequence <4096>",))
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for wanted in (
        f"{found.best.strategy} is best",
        f"{found.examined:,} strategies tried",
        f"<td>{found.feasible:,}</td>",
        "memory: the fullest rank does not fit",
        f"To launch {found.best.strategy}",
        "micro batch",
        "sequence &lt;4096&gt;",
        "Predicted by Scalewise",
        "2,048 tokens",
        "32 sequences",
        found.why()[0],
    ):
        assert wanted in text, wanted
    assert "<4096>" not in text
    # One library, inside; nothing is fetched.
    assert page.count("Plotly.newPlot(") >= 3
    assert not re.search(r"<(script|link|img)[^>]*\b(src|href)=", page)
    table = re.findall(r"<tr( class=tie)?><td>(\d+)</td><td class=text>(?:= )?([^<]+)</td>", text)
    ranked = [(place, name) for _, place, name in table[: len(found.strategies)]]
    assert ranked == [(str(n + 1), str(e.strategy)) for n, e in enumerate(found.strategies)]


def test_launch_facts_are_parted_outside_brackets_only(found):
    piped = searched("llama-2-7b", limits=Limits(pp=(2,), schedule=("interleaved",), cp=(1,)))
    page = ranking_html(piped)
    assert re.search(r"<li>pipeline 2 \(interleaved, \d+ chunks per stage\)</li>", page)


def test_a_page_without_a_front_and_without_a_map_has_only_bars(found):
    page = ranking_html(replace(found, pareto=[], by_mesh={}))
    assert page.count("Plotly.newPlot(") == 1
    assert "Not beaten" not in page
    one = ranking_html(replace(found, pareto=found.pareto[:1], by_mesh={}))
    assert f"One strategy is best in all of them at once: {found.pareto[0].strategy}." in one


def test_where_nothing_fits_the_page_says_what_is_nearest(nothing):
    page = ranking_html(nothing)
    assert "No strategy fits." in page
    assert f"Nearest: <b>{nothing.nearest.strategy}</b>, memory: needs" in page
    assert "llama-3.1-405b" in page
    assert "Plotly" not in page
    assert ranking_csv(nothing).splitlines() == [",".join(COLUMNS)]


def test_a_search_of_nothing_is_still_a_page():
    empty = Search(by="time", examined=0, feasible=0, infeasible={}, strategies=[], ties=0)
    assert "No strategy fits." in ranking_html(empty)
    assert "0 strategies tried" in ranking_html(empty)


def test_a_stopped_search_says_so(found):
    assert "best so far" in ranking_html(replace(found, interrupted=True))
    assert "best so far" not in ranking_html(found)


# The figure.


def test_the_figure_has_units_an_ordered_legend_and_a_source(found):
    pytest.importorskip("matplotlib")
    figure = ranking_drawing(found)
    (axis,) = figure.axes
    drawn = style.drawn(found)
    assert axis.get_xlabel().startswith("seconds per step")
    assert [tick.get_text() for tick in axis.get_yticklabels()] == [row.label for row in drawn]
    parts = style.segments(drawn, small=style.SMALL)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == sorted(part.label for part in parts)
    assert [bars.get_label() for bars in axis.containers] == [part.label for part in parts]
    for place, row in enumerate(drawn):
        ends = [bars.patches[place].get_x() + bars.patches[place].get_width()
                for bars in axis.containers]  # fmt: skip
        assert max(ends) == pytest.approx(row.estimate.step_seconds)
    caption = figure._supxlabel.get_text()
    assert "Predicted by Scalewise" in caption
    assert "stack megatron" in caption


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_search_gives_the_same_bytes(found, kind, start):
    pytest.importorskip("matplotlib")
    image = ranking_image(found, kind)
    assert image.startswith(start)
    assert image == ranking_image(found, kind)


def test_nothing_to_draw_is_a_sentence(nothing):
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no strategy fits"):
        ranking_image(nothing, "svg")
