"""A search as figures: bars by term, the map of TP and PP degrees, the Pareto front."""

from dataclasses import replace

import pytest

from report_cases import nothing_fits, small_search, small_search_of_experts
from scalewise.explore.objectives import objective_of
from scalewise.report import search_figure as figures
from scalewise.report.draw_plotly import plot
from scalewise.terms import COLORS, TERMS


@pytest.fixture(scope="module")
def found():
    return small_search()


def test_segments_add_up_to_the_step(found):
    drawn = figures.bars(found)
    fine, coarse = figures.segments(drawn, small=0.0), figures.segments(drawn, small=0.02)
    for parts in (figures.kinds(drawn), fine, coarse):
        for row in drawn:
            total = sum(part.seconds(row.estimate) for part in parts)
            assert total == pytest.approx(row.estimate.step_seconds, rel=1e-12)
    assert len(coarse) < len(fine)
    assert any(part.label.startswith("other ") for part in coarse)
    order = list(COLORS)
    places = [order.index(TERMS[part.terms[0]].kind) for part in fine]
    assert places == sorted(places)


def test_the_simplest_and_the_best_without_a_tie_have_a_bar(found):
    drawn = figures.bars(found, maximum=1)
    assert drawn[0].label == f"1 = {found.best.strategy}"
    assert drawn[0].note.startswith("best")
    assert [row.estimate for row in drawn if "simplest" in row.note] == [found.simplest]
    assert [row.estimate for row in drawn if "non-tie" in row.note] == [found.loser]
    assert drawn[-1].label == f"...   {found.loser.strategy}"


@pytest.mark.parametrize(
    ("by", "value", "text"),
    [
        ("time", 15.66, "15.7 s"),
        ("tokens", 5e-3, "5,000 us"),
        ("cost", 2.1932, "$2.19"),
        ("energy", 3.9, "3.90 J/token"),
        ("memory", 75.2 * 2**30, "75.2 GiB"),
    ],
)
def test_objectives_in_their_units(by, value, text):
    assert figures.objective_text(by, value) == text


def test_bars_have_the_lengths_of_the_terms(found):
    figure = figures.search_figure(found)
    (panel,) = figure.panels
    drawn = figures.bars(found)
    assert figure.views == ["by kind", "by term"]
    by_view = {v: [t for t in panel.traces if t.view == v] for v in figure.views}
    assert [t.name for t in by_view["by kind"]] == ["compute", "communication", "waiting"]
    assert [t.name for t in by_view["by term"]] == [p.label for p in figures.segments(drawn)]
    for traces in by_view.values():
        for place, row in enumerate(drawn):
            total = sum(trace.ys[place] for trace in traces)
            assert total == pytest.approx(row.estimate.step_seconds)
    assert panel.y.label == "step time (s)"
    assert panel.x.values == [row.label for row in drawn]
    # The longest bar decides the axis, not the sum of both views.
    assert max(panel.values) == pytest.approx(max(r.estimate.step_seconds for r in drawn), rel=0.02)
    assert "stack megatron" in figure.notes[-1]


def test_without_a_strategy_there_is_nothing_to_draw():
    assert not figures.search_figure(nothing_fits()).panels


def test_the_front_is_drawn_against_every_other_objective(found):
    assert figures.front_axes(found) == ["memory"]
    (panel,) = figures.front_figure(found).panels
    (points,) = panel.traces
    assert points.xs == sorted(e.step_seconds for e in found.pareto)
    assert points.ys == sorted((e.memory_bytes / 2**30 for e in found.pareto), reverse=True)
    assert panel.y.label.endswith("(GiB)")
    best = panel.marks[0]
    assert (best.name, best.xs) == ("best by time", [found.best.step_seconds])
    assert str(found.best.strategy) in best.hover[0]


def test_the_map_shows_the_best_of_every_mesh(found):
    (panel,) = figures.mesh_figure(found).panels
    assert (panel.x.values, panel.y.values) == ([1, 2], [1, 2])
    minimum = min(e.step_seconds for e in found.best_by_tp_pp.values())
    for trace, tp in zip(panel.traces, (1, 2), strict=True):
        assert (trace.name, trace.xs) == (str(tp), [1, 2])
        for place, pp in enumerate((1, 2)):
            e = found.best_by_tp_pp[tp, pp]
            above = 100 * (objective_of(e, "time") / minimum - 1)
            assert trace.ys[place] == pytest.approx(min(above, 100.0))
            assert trace.texts[place] == figures.objective_text("time", e.step_seconds)
            assert str(e.strategy) in trace.hover[place]
    assert panel.frame == (found.best.strategy.pp, found.best.strategy.tp)
    # A mesh without a strategy stays empty.
    some = {mesh: e for mesh, e in found.best_by_tp_pp.items() if mesh != (2, 2)}
    (panel,) = figures.mesh_figure(replace(found, best_by_tp_pp=some)).panels
    assert panel.traces[1].xs == [1]


def test_cells_say_how_experts_are_split():
    found = small_search_of_experts()
    figure = figures.mesh_figure(found)
    texts = [text for trace in figure.panels[0].traces for text in trace.texts]
    assert len(texts) == len(found.best_by_tp_pp) > 1
    assert {text.split("\n")[1] for text in texts} <= {"EP 4", "EP 8"}
    assert "<br>EP " in plot(figure).replace("\\u003c", "<").replace("\\u003e", ">")
