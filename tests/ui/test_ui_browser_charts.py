"""Charts of the web UI in a browser: sketches, files, lines that move, filters, the timeline."""

import re
from contextlib import nullcontext

import pytest
from axe_playwright_python.sync_playwright import Axe

from ui_browser import FEW, SHOTS, SIZES, settled, until
from waiting import PATIENCE


def test_data_and_figures_are_saved(visit):
    page = visit().go("scale", FEW)
    settled(page)
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"curve,"), ("JSON", b"[")):
        with page.expect_download() as caught:
            page.get_by_role("button", name=re.compile(f"Save scale-.* as {kind}")).click()
        content = caught.value.path().read_bytes()
        assert content.startswith(start), kind
    page.click("#share")
    page.wait_for_selector("dialog pre")
    assert "scalewise estimate llama-2-7b --on dgx-h100" in page.inner_text("dialog")


def test_first_paint_is_fast(visit):
    """The documented time with a margin, as tests share the machine."""
    seen = visit()
    page = seen.go("scale", FEW)
    settled(page)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < 3000


def test_without_plotly_the_curve_is_sketched(visit):
    seen = visit()
    seen.expected = "ERR_FAILED"
    seen.context.route("**/plotly.min.js", lambda route: route.abort())
    with seen.page.expect_response("**/api/scale") as caught:
        seen.page.goto(f"{seen.base}/?view=scale&{FEW}")
    page, curves = seen.page, caught.value.json()["curves"]
    page.wait_for_selector("#curve .sketch .line", state="attached")
    groups = "[...document.querySelectorAll('#curve .sketch .points')]"
    run = [sum(not p["infeasible"] for p in curve["points"]) for curve in curves]
    assert page.evaluate(f"{groups}.map((g) => g.children.length)")[: len(curves)] == run == [6, 6]
    words = page.locator("#curve .sketch text").all_text_contents()
    for word in ("8", "16", "64", "256", "GPUs", "ideal", "best", "current"):
        assert word in words
    label = page.get_by_role("img", name="throughput (tok/s/GPU) over GPUs")
    assert label.count() == 1
    # Higher values are drawn higher.
    rates = [p["tokens_per_second_per_accelerator"] for p in curves[0]["points"]]
    tops = f"[...{groups}[0].children].map((p) => p.getBoundingClientRect().top)"
    heights = [-top for top in page.evaluate(tops)]
    assert sorted(range(6), key=rates.__getitem__) == sorted(range(6), key=heights.__getitem__)
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("Save scale-.* as CSV")).click()
    assert saved.value.path().read_bytes().startswith(b"curve,")
    page.get_by_role("button", name=re.compile("Save scale-.* as SVG")).click()
    until(page, "document.querySelector('#toast').innerText.startsWith('No image')")


SKETCHED = {"scale": ["curve"], "search": ["front", "map"], "assumptions": ["tornado", "upgrades"]}


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("view", SKETCHED)
def test_the_chart_replaces_its_sketch(visit, view, size):
    """Same marks, same size: nothing moves when Plotly has loaded."""
    held = []
    seen = visit(size=size)
    page = seen.page
    seen.context.route("**/plotly.min.js", lambda route: held.append(route))
    # Measured runs come after the curve, and are sketched as well.
    later = nullcontext()
    if view == "scale":
        later = page.expect_response("**/api/overlay*", timeout=PATIENCE * 1000.0)
    with later:
        page.goto(f"{seen.base}/?view={view}&{FEW}")
    for figure in SKETCHED[view]:
        page.wait_for_selector(f"#{figure} .sketch")
    page.wait_for_load_state("load")
    until(page, "!document.querySelector('.chart.waiting')")
    page.wait_for_timeout(500)
    count = """(id) => document.querySelectorAll(
        `#${id} .points path, #${id} .bar, #${id} .cell`).length"""
    tall = "(id) => document.getElementById(id).getBoundingClientRect().height"
    before = {id_: (page.evaluate(count, id_), page.evaluate(tall, id_)) for id_ in SKETCHED[view]}
    page.screenshot(path=SHOTS / f"sketch-{view}-{SIZES[size][0]}.png", full_page=True)
    for route in held:
        route.continue_()
    drawn = """(id) => document.querySelector(`#${id} .chart`).data.reduce((sum, t) => sum + (
        t.type === "heatmap" ? t.z.flat().filter((v) => v !== null).length
        : t.type === "bar" ? t.x.filter((v) => v !== null).length
        : t.mode.includes("markers") ? t.x.length : 0), 0)"""
    for figure in SKETCHED[view]:
        page.wait_for_selector(f"#{figure} .main-svg", state="attached")
        assert page.locator(f"#{figure} .sketch").count() == 0
        assert (page.evaluate(drawn, figure), page.evaluate(tall, figure)) == before[figure]
        assert before[figure][0] > 0


def test_evidence_is_filtered_by_chip_and_framework(visit):
    page = visit().go("evidence", "framework=llm-foundry")
    page.wait_for_selector("#scatter .main-svg", state="attached")
    assert "median error" in page.inner_text("#stats")
    before = page.inner_text("#stats .errors")
    page.select_option("#knobs select >> nth=0", "a100-sxm-80gb")
    until(page, "document.querySelector('#stats .errors').innerText !== arg", before)
    assert "chip=a100-sxm-80gb" in page.url
    page.select_option("#knobs select >> nth=1", "levanter")
    until(page, "document.querySelector('#stats').innerText.includes('No run matches')")


def test_a_study_runs_with_its_figures(visit):
    page = visit().go("study")
    page.get_by_role("button", name="Run compare-clusters quick").click()
    page.wait_for_selector("#answer-study .main-svg", state="attached")
    assert "points in" in page.inner_text("#answer-study")
    assert "study=compare-clusters" in page.url


STAND_IN = """<!doctype html><title>stand-in</title><script>
addEventListener("message", (event) => {
  if (event.data === "PING") { event.source.postMessage("PONG", event.origin); return; }
  const bytes = new Uint8Array(event.data.perfetto.buffer);
  window.got = { title: event.data.perfetto.title, name: event.data.perfetto.fileName,
    origin: event.origin, bytes: Array.from(bytes) };
});
</script>"""


def test_perfetto_receives_the_trace(visit, perfetto, tmp_path):
    """A stand-in at Perfetto's address answers the handshake."""
    seen = visit()
    seen.context.route(
        "https://ui.perfetto.dev/**",
        lambda route: route.fulfill(body=STAND_IN, content_type="text/html"),
    )
    page = seen.go("timeline", "n=8&batch=16&strategy=fsdp8-mb2")
    with page.expect_popup() as caught:
        page.get_by_role("button", name="Open in Perfetto").click()
    other = caught.value
    assert other.url == "https://ui.perfetto.dev/"
    other.wait_for_function("() => window.got")
    got = other.evaluate("window.got")
    assert got["origin"] == seen.base
    assert got["title"] == "fsdp8-mb2, predicted"
    file = tmp_path / got["name"]
    file.write_bytes(bytes(got["bytes"]))
    answer = seen.api("timeline", {"gpus": "8", "batch": "16", "strategy": "fsdp8-mb2"})
    query = "SELECT COUNT(*) AS n, MAX(ts + dur) AS last FROM slice WHERE dur > 0"
    with perfetto.open(file) as processor:
        (row,) = processor.query(query)
    assert row.n > 100
    assert row.last / 1e9 == pytest.approx(answer["step_seconds"], rel=1e-3)


def test_a_bar_highlights_its_terms(visit):
    page = visit().go("timeline", "n=16&batch=64&strategy=fsdp16-mb2")
    page.wait_for_selector("#formula .formula")
    lanes = page.locator(".lanes").first
    assert "ends at" in lanes.inner_text()
    lanes.focus()
    page.keyboard.press("ArrowRight")
    lit = "[...document.querySelectorAll('#terms .lit')].map((e) => e.dataset.key)"
    assert "gemm" in page.evaluate(lit)
    assert "compute, forward, micro" in page.inner_text(".tip")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".tip").startswith("data parallel, all-gather")
    assert page.evaluate(lit)[0] == "dp_all_gather"
    text = page.inner_text("#formula")
    assert "exposed all-gather" in text
    assert "Source:" in text
    # The pointer does the same, and a term highlights its bars.
    page.locator("#panels .bar-of").first.hover()
    assert "gemm" in page.evaluate(lit)
    page.focus("#terms [data-key=optimizer]")
    assert page.evaluate(lit) == ["optimizer"]
    assert page.locator("#panels.picking .bar-of.lit").count() >= 1
    # The formula with numbers in place of its letters.
    formula = r"b \u00d7 r \u00d7 P / B\n= [\d.,]+ \u00d7 .* / .* [GT]B/s"
    assert re.search(formula, page.inner_text("#formula"))
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found] == []


def test_deadline_and_budget_are_lines_that_move(visit):
    page = visit().go("scale", f"{FEW}&metric=days&deadline=3")
    page.wait_for_selector(".grip")
    assert page.get_attribute(".grip", "aria-valuetext") == "deadline 3 days"
    answer = page.inner_text("#window")
    assert re.fullmatch(r"[\d,]+ to [\d,]+ GPUs meet 3 days\.", answer)
    page.focus(".grip")
    page.keyboard.press("PageDown")
    until(page, "location.search.includes('deadline=2.47')")
    # Focus stays on the line.
    assert page.evaluate("document.activeElement.className") == "grip"
    box = page.locator(".grip").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"], box["y"] - 120, steps=4)
    page.mouse.up()
    until(page, "Number(new URLSearchParams(location.search).get('deadline')) > 4")
    assert page.input_value("[data-field=deadline]") in page.url
    page.fill("[data-field=budget]", "1")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#window').innerText.startsWith('No number of GPUs meets')")
    assert "the cheapest, " in page.inner_text("#window")
    # Without a budget, the line offers to set one.
    page.get_by_label("Cost", exact=True).check(force=True)
    page.fill("[data-field=budget]", "")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.grip')?.innerText.includes('set a budget')")


def test_the_knee_line_moves(visit):
    page = visit().go("scale", f"{FEW}&metric=returned&knee=0.9")
    page.wait_for_selector(".grip")
    page.focus(".grip")
    page.keyboard.press("ArrowDown")
    until(page, "location.search.includes('knee=0.85')")
    until(page, "document.querySelector('.grip').innerText.includes('knee below 85%')")


def test_own_runs_are_shown_with_published_ones(visit):
    page = visit().go("scale", FEW)
    names = "[...(document.querySelector('#curve .chart').data || [])].map((t) => t.name)"
    until(page, f"{names}.includes('measured here (1)')")
    assert any(name.startswith("measured, published (") for name in page.evaluate(names) if name)
    assert "1 of 2 runs measured here match this curve" in page.inner_text("#bias")
    assert re.search(r"median error [+\u2212][\d.]+%", page.inner_text("#bias"))
    page.click("#tabs a[data-view=evidence]")
    page.wait_for_selector("#own tbody tr")
    assert page.locator("#own tbody tr").count() == 2
    caption = page.inner_text("#caption")
    assert "Stars: measured here: 1 run, median error" in caption
    assert re.search(r"Open diamonds: in no fit: \d+ runs, median error [\d.]+%", caption)
    assert page.inner_text("#own").count("cpu") >= 1


def test_evidence_is_filtered_by_strategy_and_source(visit):
    page = visit().go("evidence", "split=pipeline&source=nanotron")
    page.wait_for_selector("#scatter .main-svg", state="attached")
    traces = page.evaluate("document.querySelector('#scatter .chart').data.map((t) => t.name)")
    assert any(name.startswith("nanotron (") for name in traces)
    assert not any(name.startswith("llm-foundry (") for name in traces)


def test_any_quantity_is_on_the_axis_of_the_scale_view(visit):
    seen = visit()
    seen.expected = "status of 400"
    page = seen.go("scale", "n=64&curves=fsdp,hsdp8&over=network=100..400Gbit/s")
    settled(page)
    page.wait_for_selector("#curve .main-svg")
    assert page.inner_text("#says").startswith("Best at 400 Gbit/s: ")
    assert page.locator("#points tbody tr").count() == 6
    label = "throughput (tok/s/GPU) over network per node"
    assert page.get_by_role("img", name=label).count() == 1
    page.fill("[data-field=over]", "seq=2048,4096; tp=1,2")
    page.press("[data-field=over]", "Tab")
    until(page, "document.querySelectorAll('#points tbody tr').length === 8")
    page.wait_for_selector("#curve .heatmaplayer image, #curve .hm")
    assert "over=seq" in page.url
    page.fill("[data-field=over]", "sequence=2048")
    page.press("[data-field=over]", "Tab")
    until(page, "document.querySelector('#says').innerText.includes('unknown quantity')")
    page.fill("[data-field=over]", "")
    page.press("[data-field=over]", "Tab")
    until(page, "document.querySelector('#says').innerText.includes('Strong scaling')")
