from dataclasses import replace

import pytest

from report_cases import CASES, priced
from scalewise.cli.common import drawn
from scalewise.report.waterfall import print_waterfall, printed, waterfall_html, waterfall_rows


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
    assert text.splitlines() == [
        "From peak to achieved, per accelerator",
        "  peak                            989.0 TFLOP/s  100.0 %  " + full * 30,
        "  kernel efficiency              -197.8 TFLOP/s  -20.0 %  " + " " * 24 + loss * 6,
        "  contention with communication  -247.2 TFLOP/s  -25.0 %  " + " " * 16 + loss * 8,
        "  stragglers                     -148.4 TFLOP/s  -15.0 %  " + " " * 12 + loss * 4,
        "  achieved                        395.6 TFLOP/s   40.0 %  " + full * 12,
    ]


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
    assert "contention with communication" in page
    assert '<script src="http' not in page
