from dataclasses import replace

import pytest

from report_cases import CASES, is_offline, priced
from scalewise.cli.common import drawn
from scalewise.report.estimate_waterfall import (
    print_waterfall,
    printed,
    waterfall_figure,
    waterfall_html,
    waterfall_rows,
)


def shown(text):
    return float(text.removesuffix(" TFLOP/s").replace(",", ""))


@pytest.mark.parametrize("name", CASES)
def test_printed_losses_add_up_to_what_is_achieved(name):
    e = priced(name)
    texts = [shown(text) for text in printed(e)]
    assert texts[0] == pytest.approx(e.peak_flops / 1e12, abs=0.05)
    assert texts[-1] == pytest.approx(e.tflops, abs=0.05)
    assert sum(texts[:-1]) == pytest.approx(texts[-1], abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_rows_add_up(name):
    rows = waterfall_rows(priced(name))
    assert rows[0].name == "peak"
    assert rows[-1].name == "achieved"
    assert sum(row.tflops for row in rows[:-1]) == pytest.approx(rows[-1].tflops, rel=1e-9)
    assert rows[-2].left == pytest.approx(rows[-1].share, rel=1e-9)


def test_text(literal):
    text = drawn(lambda out: print_waterfall(literal, out))
    full, loss = "\u2588", "\u2592"
    lines = [line.rstrip() for line in text.strip().splitlines()]
    assert lines[0] == "Peak to achieved, per GPU"
    assert [line.split("TFLOP/s")[0].split() for line in lines[1:]] == [
        ["peak", "989.0"],
        ["kernel", "efficiency", "-197.8"],
        ["contention", "-247.2"],
        ["stragglers", "-148.4"],
        ["achieved", "395.6"],
    ]
    fractions = [float(line.split("TFLOP/s")[1].split("%")[0]) for line in lines[1:]]
    assert fractions == [100.0, -20.0, -25.0, -15.0, 40.0]
    bars = [line.split("%")[1][2:] for line in lines[1:]]
    assert bars == [full * 30, " " * 24 + loss * 6, " " * 16 + loss * 8, " " * 12 + loss * 4,
                    full * 12]  # fmt: skip


def test_losses_float_between_what_is_left_before_and_after(literal):
    (panel,) = waterfall_figure(literal).panels
    bars = {
        x: (start, start + length, trace.name)
        for trace in panel.traces
        for x, start, length in zip(trace.xs, trace.base, trace.ys, strict=True)
    }
    assert bars["peak"] == (0.0, pytest.approx(989.0), "peak, achieved")
    assert bars["kernel efficiency"][:2] == pytest.approx((791.2, 989.0))
    assert bars["contention"] == (pytest.approx(543.95), pytest.approx(791.2),
                                  "lost to communication")  # fmt: skip
    assert bars["stragglers"][2] == "lost to waiting"
    assert list(panel.x.values) == ["peak", "kernel efficiency", "contention", "stragglers",
                                    "achieved"]  # fmt: skip
    assert panel.ends == printed(literal)


def test_a_generous_convention_shows_as_a_gain(literal):
    # PaLM counts attention that nobody computes: then kernels seem better than perfect.
    rows = waterfall_rows(replace(literal, mfu=0.7, tflops=692.3))
    assert rows[1].name == "kernel efficiency"
    assert rows[1].tflops == pytest.approx(0.1 * 989)
    assert printed(replace(literal, mfu=0.7, tflops=692.3))[1] == "+98.9 TFLOP/s"


def test_page_works_offline_and_escapes(literal):
    pytest.importorskip("plotly")
    import msgspec

    model = msgspec.structs.replace(literal.model, name="<script>x</script>")
    page = waterfall_html(replace(literal, model=model))
    assert "<script>x</script>" not in page
    assert "contention" in page
    assert is_offline(page)
