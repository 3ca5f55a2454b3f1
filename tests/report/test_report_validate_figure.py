"""The scatter of predicted against measured: what is drawn, named and labeled."""

import pytest

from report_cases import is_offline
from scalewise.evidence.validate import Validation, Verdict
from scalewise.report.figure import PALETTE
from scalewise.report.validate_figure import scatter_figure, scatter_html


def verdict(source, measured, predicted, **changes):
    facts = {
        "id": f"{source}-{measured:g}", "source": source, "status": "ok", "quality": "ok",
        "dense": True, "stack": "megatron", "strategy": "ddp8-mb1",
        "measured_tokens_per_second": measured, "predicted_tokens_per_second": predicted,
        "low": 0.9 * predicted, "high": 1.1 * predicted, "error": predicted / measured - 1.0,
    }  # fmt: skip
    return Verdict(**{**facts, **changes})


@pytest.fixture
def validation():
    return Validation(rows=[
        verdict("zeta", 1000.0, 1100.0),
        verdict("alpha", 2000.0, 1900.0),
        verdict("alpha", 4000.0, 4000.0),
        verdict("graded", 1.0, 9.0, quality="incomplete"),
        verdict("moe", 1.0, 9.0, dense=False),
        Verdict(id="no", source="no", status="unsupported", quality="ok", dense=True),
    ])  # fmt: skip


@pytest.fixture
def panel(validation):
    return scatter_figure(validation).panels[0]


def test_one_trace_per_judged_source(panel):
    names = [trace.name for trace in panel.traces]
    assert names == ["within 25%", "within 10%", "equal", "alpha (2)", "zeta (1)"]


def test_points_are_measured_across_and_predicted_up(panel):
    alpha, zeta = panel.traces[3:]
    assert (alpha.xs, alpha.ys, alpha.mode) == ([2000.0, 4000.0], [1900.0, 4000.0], "points")
    assert (zeta.xs, zeta.ys) == ([1000.0], [1100.0])
    assert zeta.color != alpha.color
    assert zeta.marker != alpha.marker


def test_axes_say_what_and_in_which_unit(panel):
    assert panel.x.label == "measured throughput (tok/s/GPU)"
    assert panel.y.label == "predicted throughput (tok/s/GPU)"
    assert panel.x.log
    assert panel.y.log
    assert panel.x.span == panel.y.span == pytest.approx((0.7 * 1000, 1.4 * 4000))


def test_bands_are_fractions_of_the_diagonal(panel):
    wide, narrow, diagonal = panel.traces[:3]
    assert wide.high[0] / wide.xs[0] == pytest.approx(1.25)
    assert wide.low[1] / wide.xs[1] == pytest.approx(0.75)
    assert narrow.high[1] / narrow.xs[1] == pytest.approx(1.10)
    assert diagonal.xs == diagonal.ys


def test_hovering_shows_the_row(panel):
    assert panel.traces[4].hover == [
        "zeta-1000<br>ddp8-mb1 (megatron)<br>measured 1,000, predicted 1,100 [990-1,210]: +10.0%"
    ]


def test_the_title_is_the_headline(validation):
    # Errors of 10, 5 and 0%: 90th percentile 0.8 of the way from 5 to 10.
    assert scatter_figure(validation).title == (
        "Predicted against measured: 3 dense runs, median error 5.0%, 90th percentile 9%"
    )
    assert scatter_figure(validation, "mine").title == "mine"


def test_more_sources_than_colors_stay_distinct():
    rows = [verdict(f"s{i:02}", 100.0 + i, 100.0) for i in range(len(PALETTE) * 2)]
    (panel,) = scatter_figure(Validation(rows=rows)).panels
    looks = {(trace.color, trace.marker) for trace in panel.traces[3:]}
    assert len(looks) == len(rows)


def test_nothing_to_draw_says_so():
    figure = scatter_figure(Validation(rows=[]))
    assert len(figure.panels[0].traces) == 3
    assert figure.title == "Predicted against measured: no run has both"


def test_the_page_works_offline(validation):
    page = scatter_html(validation)
    assert is_offline(page)
    assert "alpha (2)" in page
    # The library itself is inside.
    assert len(page) > 1_000_000
