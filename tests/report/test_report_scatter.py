"""The scatter of predicted against measured: what is drawn, named and labelled."""

import re

import pytest

from scalewise.evidence.validate import Validation, Verdict
from scalewise.report.scatter import PALETTE, scatter_figure, scatter_html


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
def figure(validation):
    return scatter_figure(validation)


def test_one_trace_per_judged_source(figure):
    names = [trace.name for trace in figure.data]
    assert names == ["within 25%", "within 10%", "equal", "alpha (2)", "zeta (1)"]


def test_points_are_measured_across_and_predicted_up(figure):
    alpha, zeta = figure.data[3:]
    assert (list(alpha.x), list(alpha.y)) == ([2000.0, 4000.0], [1900.0, 4000.0])
    assert (list(zeta.x), list(zeta.y)) == ([1000.0], [1100.0])
    assert zeta.marker.color != alpha.marker.color
    assert zeta.marker.symbol != alpha.marker.symbol


def test_axes_say_what_and_in_which_unit(figure):
    layout = figure.layout
    assert layout.xaxis.title.text == "measured, tokens/s per accelerator"
    assert layout.yaxis.title.text == "predicted, tokens/s per accelerator"
    assert layout.xaxis.type == layout.yaxis.type == "log"
    assert layout.xaxis.range == layout.yaxis.range
    # 0.7 x 1000 to 1.4 x 4000.
    assert layout.xaxis.range == pytest.approx((2.8451, 3.7482), abs=1e-4)


def test_bands_are_shares_of_the_diagonal(figure):
    wide, narrow, diagonal = figure.data[:3]
    assert wide.y[0] / wide.x[0] == pytest.approx(1.25)
    assert wide.y[3] / wide.x[3] == pytest.approx(0.75)
    assert narrow.y[1] / narrow.x[1] == pytest.approx(1.10)
    assert list(diagonal.x) == list(diagonal.y)


def test_hovering_tells_the_row(figure):
    assert figure.data[4].text[0] == (
        "zeta-1000<br>ddp8-mb1 (megatron)<br>measured 1,000, predicted 1,100 (990 to 1,210): +10.0%"
    )


def test_the_title_is_the_headline(figure, validation):
    # Errors of 10, 5 and 0 %: 90th percentile 0.8 of the way from 5 to 10.
    assert figure.layout.title.text == (
        "Predicted against measured: 3 dense runs, median error 5.0 %, 90th percentile 9 %"
    )
    assert scatter_figure(validation, "mine").layout.title.text == "mine"


def test_more_sources_than_colours_stay_distinct():
    rows = [verdict(f"s{i:02}", 100.0 + i, 100.0) for i in range(len(PALETTE) * 2)]
    looks = {
        (trace.marker.color, trace.marker.symbol)
        for trace in scatter_figure(Validation(rows=rows)).data[3:]
    }
    assert len(looks) == len(rows)


def test_nothing_to_draw_says_so():
    figure = scatter_figure(Validation(rows=[]))
    assert len(figure.data) == 3
    assert figure.layout.title.text == "Predicted against measured: no run has both"


def test_the_page_works_offline(validation):
    page = scatter_html(validation)
    # Scripts are blanked first: the library's own text speaks of tags.
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert tags.count("<script") >= 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", tags)
    assert "alpha (2)" in page
    # The library itself is inside.
    assert len(page) > 1_000_000
