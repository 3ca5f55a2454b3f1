"""The page in a real browser: it says what the API says, and everybody can use it."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from waiting import PATIENCE

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"

VIEWS = {
    "estimate": "#where .term",
    "scale": "#curve .main-svg",
    "search": "#ranking tbody tr",
    "timeline": "#panels svg",
    "evidence": "#near tbody tr",
    "study": "#list .card",
    "assumptions": "#rows tbody tr",
}
"""What must be there before a view counts as shown."""

SIZES = {"desktop": (1280, 900), "large": (1920, 1080), "phone": (390, 844)}
MILLISECONDS = 1000 * PATIENCE
FEW = "sizes=8..256"
"""The search that checks a curve in the background is short on few accelerators."""


class Visit:
    """One browser window that was let in, and what went wrong in it."""

    def __init__(self, browser, address, size="desktop", scheme="light"):
        wide, tall = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": wide, "height": tall}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(MILLISECONDS)
        self.problems = []
        self.expected = None
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._heard)
        self.elsewhere = []
        self.page.on("request", self._asked)
        self.base = address.split("/?")[0]
        self.page.goto(address)

    def _heard(self, message):
        # What a test provokes, the browser notes by itself, and some time later.
        provoked = self.expected is not None and self.expected in message.text
        if message.type in ("error", "warning") and not provoked:
            self.problems.append(message.text)

    def _asked(self, request):
        web = urlsplit(request.url).scheme in ("http", "https")
        if web and not request.url.startswith(self.base):
            self.elsewhere.append(request.url)

    def go(self, view, query=""):
        self.page.goto(f"{self.base}/?view={view}&{query}")
        self.page.wait_for_selector(VIEWS[view], state="attached")
        return self.page

    def turn(self, view):
        """Go to another view of the page that is open, as a user does."""
        if not self.page.query_selector("#tabs a"):
            self.go("estimate", FEW)
        self.page.click(f"#tabs a[data-view={view}]")
        self.page.wait_for_selector(VIEWS[view], state="attached")
        return self.page

    def api(self, path, body):
        """What the API says, asked with the cookie of the page."""
        response = self.context.request.post(f"{self.base}/api/{path}", data=body)
        assert response.ok, response.text()
        return response.json()

    def close(self):
        self.context.close()


@pytest.fixture(scope="module")
def windows(browser, address):
    """One window for each size and scheme: opening them takes longer than what is looked at."""
    opened = {}

    def window(size, scheme):
        if (size, scheme) not in opened:
            opened[size, scheme] = Visit(browser, address, size, scheme)
        return opened[size, scheme]

    yield window
    for each in opened.values():
        each.close()


@pytest.fixture
def visit(browser, address):
    visits = []

    def open_(size="desktop", scheme="light"):
        visits.append(Visit(browser, address, size, scheme))
        return visits[-1]

    yield open_
    for each in visits:
        each.close()
        assert each.problems == []
        assert each.elsewhere == [], "the page must work offline"


def until(page, test, arg=None):
    """Wait for a condition; a function, because the page's policy allows no eval of text."""
    page.wait_for_function(f"(arg) => {test}", arg=arg)


def settled(page):
    """Wait until all charts are drawn that do not wait for a long answer."""
    open_ = ".chart.waiting, .chart .sketch"
    until(page, f"!document.querySelector('{open_}') || document.querySelector('#scatter')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_loads_and_is_accessible(windows, view, scheme):
    seen = windows("desktop", scheme)
    page = seen.go(view, FEW)
    settled(page)
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
    page.screenshot(path=SHOTS / f"{view}-1280-{scheme}.png")
    assert (seen.problems, seen.elsewhere) == ([], [])


@pytest.mark.parametrize("size", ["large", "phone"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_its_window(windows, view, size):
    seen = windows(size, "light" if size == "large" else "dark")
    page = seen.turn(view)
    settled(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= SIZES[size][0], "nothing may stick out to the right"
    page.screenshot(path=SHOTS / f"{view}-{SIZES[size][0]}.png")
    assert (seen.problems, seen.elsewhere) == ([], [])


def headline(page):
    return page.locator(".figure strong").first.inner_text()


def test_the_answer_is_there_before_any_script(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert re.search(r"s per step, .* of the time waits on the network\.", page.inner_text("main"))
    context.close()


def test_the_slider_changes_the_numbers_to_what_the_api_says(visit):
    seen = visit()
    page = seen.go("estimate")
    before = headline(page)
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.figure strong').textContent !== arg", before)
    assert "n=512" in page.url
    told = seen.api("estimate", {"gpus": "512", "seq": "4096", "batch": "1024"})
    step = told["headline"]["step_seconds"][0]
    assert headline(page) == f"{step * 1e3:.0f} ms"
    assert page.input_value("[aria-label=Strategy]") == told["question"]["strategy"]
    shares = page.locator("#where .fall:not(.thin) li:not(.total) .pc").all_inner_texts()
    assert sum(float(text.split()[0]) for text in shares) == pytest.approx(100.0, abs=0.6)
    # What moved, and by how much.
    assert "accelerators 256 \u2192 512" in page.inner_text("#answer")
    assert page.locator(".figure .delta").count() >= 3


def test_a_shared_address_restores_the_state(visit):
    first = visit()
    page = first.go("scale", FEW)
    page.get_by_label("Weak: batch grows").check(force=True)
    page.get_by_label("MFU", exact=True).check(force=True)
    page.fill("[aria-label=Accelerators]", "128")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('n=128')")
    until(page, "document.querySelector('#says').textContent.includes('128 \u2192 256')")
    shared, said = page.url, page.inner_text("#says")
    second = visit()
    second.page.goto(shared)
    until(second.page, "document.querySelector('#says')?.innerText === arg", said)
    assert second.page.get_by_label("Weak: batch grows").is_checked()
    assert second.page.get_by_label("MFU", exact=True).is_checked()
    assert second.page.input_value("[aria-label=Accelerators]") == "128"


def test_infeasible_input_shows_its_reason_and_a_way_out(visit):
    page = visit().go("estimate", "model=llama-3-70b&n=8&batch=1024&seq=4096")
    text = page.inner_text("#answer")
    assert "Does not fit." in text
    assert "GiB of 79.6 GiB" in text
    page.get_by_role("button", name="Do that").first.click()
    page.wait_for_selector(".figure strong")
    assert "n=16" in page.url


def test_a_wrong_word_is_told_at_its_field(visit):
    seen = visit()
    page = seen.go("estimate")
    seen.expected = "400 (Bad Request)"
    page.fill("[aria-label=Strategy]", "fsdp256-zz9")
    page.keyboard.press("Tab")
    page.wait_for_selector(".refused")
    assert "zz9" in page.inner_text(".refused")
    page.fill("[aria-label='Sequences per step']", "0")
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-label='Sequences per step'][aria-invalid]")


def test_names_are_found_as_people_type_them_and_powers_by_arrows(visit):
    page = visit().go("estimate")
    page.wait_for_load_state("networkidle")
    page.fill("[aria-label=Model]", "llama 2 13")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('model=llama-2-13b')")
    page.focus("[aria-label=Accelerators]")
    page.keyboard.press("ArrowUp")
    until(page, "location.search.includes('n=512')")
    page.keyboard.press("ArrowDown")
    until(page, "location.search.includes('n=256')")


def test_a_term_is_explained_with_formula_and_source(visit):
    page = visit().go("estimate")
    page.locator("#where .term").first.click()
    page.wait_for_selector("dialog .formula")
    text = page.inner_text("dialog")
    assert "Source:" in text
    assert "= " in text
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_plans_are_pinned_and_compared(visit):
    page = visit().go("estimate", "n=64&batch=512")
    page.click("#pin-plan")
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelectorAll('.compare thead th').length === 3")
    until(page, "document.querySelector('.compare')?.innerText.includes('128 \u00d7')")
    assert "pin=" in page.url
    assert "64 \u00d7 dgx-h100" in page.inner_text(".compare")


def test_four_plans_are_pinned_and_no_more(visit):
    page = visit().go("estimate", "n=8&batch=512")
    for count in range(1, 5):
        page.click("#pin-plan")
        until(page, "document.querySelectorAll('.compare thead th').length === arg + 2", count)
        assert page.inner_text("#pin-plan") in ("This plan is pinned", "Four plans are pinned")
        page.focus("#slider")
        page.keyboard.press("ArrowRight")
        until(page, "new URLSearchParams(location.search).get('n') === arg", str(8 * 2**count))
    until(page, "document.querySelector('.compare')?.innerText.includes('128 \u00d7')")
    assert page.is_disabled("#pin-plan")
    assert page.inner_text("#pin-plan") == "Four plans are pinned"
    # Every column but the first says how far it is from the plan on screen.
    row = page.locator(".compare tbody tr").nth(3)
    assert row.locator(".delta").count() == 4
    # An address with all of them brings all of them back.
    page.goto(page.url)
    until(page, "document.querySelectorAll('.compare thead th').length === 6")
    page.get_by_role("button", name="remove plan 4").click()
    until(page, "document.querySelectorAll('.compare thead th').length === 5")
    assert page.is_enabled("#pin-plan")


def test_a_changed_assumption_moves_every_view(visit):
    seen = visit()
    page = seen.go("assumptions")
    field = page.get_by_label("Value of cluster.usd_per_hour")
    field.fill("5.90")
    field.press("Enter")
    until(page, "location.search.includes('set=cluster.usd_per_hour')")
    page.wait_for_selector("#rows tr.here")
    page.click("#tabs a[data-view=estimate]")
    page.wait_for_selector(".under .note")
    told = seen.api(
        "estimate", {"seq": "4096", "batch": "1024", "sets": ["cluster.usd_per_hour=5.90"]}
    )
    assert f"${told['headline']['usd'][0]:,.0f}" in page.inner_text("#answer")


def test_data_and_figures_can_be_taken_away(visit):
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


def test_the_keyboard_is_enough(visit):
    page = visit().go("estimate", FEW)
    page.keyboard.press("2")
    page.wait_for_selector(VIEWS["scale"], state="attached")
    page.keyboard.press("3")
    page.wait_for_selector(VIEWS["search"], state="attached")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Model"
    page.keyboard.press("Escape")
    page.go_back()
    page.wait_for_selector(VIEWS["scale"], state="attached")


def test_the_phone_has_its_inputs_in_a_sheet(visit):
    page = visit(size="phone").go("estimate")
    assert not page.is_visible("[aria-label=Accelerators]")
    page.click(".brief")
    page.fill("[aria-label=Accelerators]", "64")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('n=64')")
    page.screenshot(path=SHOTS / "sheet-390.png")
    page.get_by_role("button", name="Show the answer").click()
    assert not page.is_visible("[aria-label=Accelerators]")
    until(page, "document.querySelector('.brief').innerText.includes('on 64 ')")


def test_numbers_paint_at_once_and_charts_soon(visit):
    """Within the promise on a quiet machine; with room here, where tests share it."""
    seen = visit()
    page = seen.go("scale", FEW)
    settled(page)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < 3000


def test_without_the_chart_library_the_curve_is_still_there(visit):
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
    for word in ("8", "16", "64", "256", "accelerators", "ideal", "best", "this plan"):
        assert word in words
    label = page.get_by_role("img", name="tokens per second and accelerator against accelerators")
    assert label.count() == 1
    # The values go the way of the curve: more is higher.
    rates = [p["tokens_per_second_per_accelerator"] for p in curves[0]["points"]]
    tops = f"[...{groups}[0].children].map((p) => p.getBoundingClientRect().top)"
    heights = [-top for top in page.evaluate(tops)]
    assert sorted(range(6), key=rates.__getitem__) == sorted(range(6), key=heights.__getitem__)
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("Save scale-.* as CSV")).click()
    assert saved.value.path().read_bytes().startswith(b"curve,")
    page.get_by_role("button", name=re.compile("Save scale-.* as SVG")).click()
    until(page, "document.querySelector('#toast').innerText.startsWith('No picture')")


SKETCHED = {"scale": ["curve"], "search": ["front", "map"], "assumptions": ["tornado", "upgrades"]}


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("view", SKETCHED)
def test_the_chart_takes_the_place_of_its_sketch(visit, view, size):
    """As many marks, in the same room: nothing moves when the library has come."""
    held = []
    seen = visit(size=size)
    page = seen.page
    seen.context.route("**/plotly.min.js", lambda route: held.append(route))
    page.goto(f"{seen.base}/?view={view}&{FEW}")
    for figure in SKETCHED[view]:
        page.wait_for_selector(f"#{figure} .sketch")
    page.wait_for_load_state("load")
    until(page, "!document.querySelector('.chart.waiting')")
    page.wait_for_timeout(500)  # later answers, measured runs for instance, are sketched as well
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


def test_scripts_stay_small():
    import gzip

    from scalewise.ui.page import STATIC

    assert sum(len(gzip.compress(f.read_bytes())) for f in STATIC.glob("*.js")) < 100_000


def test_evidence_is_data_to_look_through(visit):
    page = visit().go("evidence", "framework=llm-foundry")
    page.wait_for_selector("#scatter .main-svg", state="attached")
    assert "predicted and judged" in page.inner_text("#stats")
    before = page.inner_text("#stats .errors")
    page.select_option("#knobs select >> nth=0", "a100-sxm-80gb")
    until(page, "document.querySelector('#stats .errors').innerText !== arg", before)
    assert "chip=a100-sxm-80gb" in page.url
    page.select_option("#knobs select >> nth=1", "levanter")
    until(page, "document.querySelector('#stats').innerText.includes('No run has all')")


def test_a_study_runs_with_its_figures(visit):
    page = visit().go("study")
    page.get_by_role("button", name="Quick look at compare-clusters").click()
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


def test_perfetto_is_opened_and_handed_a_trace(visit, perfetto, tmp_path):
    """A stand-in at Perfetto's address shakes hands as Perfetto's page does."""
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
    told = seen.api("timeline", {"gpus": "8", "batch": "16", "strategy": "fsdp8-mb2"})
    query = "SELECT COUNT(*) AS n, MAX(ts + dur) AS last FROM slice WHERE dur > 0"
    with perfetto.open(file) as processor:
        (row,) = processor.query(query)
    assert row.n > 100
    assert row.last / 1e9 == pytest.approx(told["step_seconds"], rel=1e-3)


def test_a_bar_lights_up_the_term_that_counts_it(visit):
    page = visit().go("timeline", "n=16&batch=64&strategy=fsdp16-mb2")
    page.wait_for_selector("#formula .formula")
    lanes = page.locator(".lanes").first
    assert "ends at" in lanes.inner_text()
    lanes.focus()
    page.keyboard.press("ArrowRight")
    lit = "[...document.querySelectorAll('#terms .lit')].map((e) => e.dataset.key)"
    assert "gemm" in page.evaluate(lit)
    assert "compute, forward, micro batch 0" in page.inner_text(".tip")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".tip").startswith("data parallel, gather")
    assert page.evaluate(lit)[0] == "data_parallel_gather"
    text = page.inner_text("#formula")
    assert "Exposed parameter gathers" in text
    assert "Source:" in text
    # The pointer does the same, and from the term it goes back to its bars.
    page.locator("#panels .bar-of").first.hover()
    assert "gemm" in page.evaluate(lit)
    page.focus("#terms [data-key=optimizer]")
    assert page.evaluate(lit) == ["optimizer"]
    assert page.locator("#panels.picking .bar-of.lit").count() >= 1
    # The formula once more, with the numbers of this plan in place of its letters.
    assert re.search(r"T = b P / B\n= [\d.,]+ \u00d7 .* / .* [GT]B/s", page.inner_text("#formula"))
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found] == []


def test_deadline_and_budget_are_lines_that_move(visit):
    page = visit().go("scale", f"{FEW}&metric=days&deadline=3")
    page.wait_for_selector(".grip")
    assert page.get_attribute(".grip", "aria-valuetext") == "deadline 3 days"
    told = page.inner_text("#window")
    assert re.fullmatch(r"[\d,]+ to [\d,]+ accelerators stay within 3 days\.", told)
    page.focus(".grip")
    page.keyboard.press("PageDown")
    until(page, "location.search.includes('deadline=2.47')")
    # The keyboard stays where it was.
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
    until(page, "document.querySelector('#window').innerText.startsWith('No size stays within')")
    assert "the cheapest, " in page.inner_text("#window")
    # A line that is not there yet waits to be moved.
    page.get_by_label("Rent", exact=True).check(force=True)
    page.fill("[data-field=budget]", "")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.grip')?.innerText.includes('set a budget')")


def test_the_rule_of_the_knee_moves(visit):
    page = visit().go("scale", f"{FEW}&metric=returned&knee=0.9")
    page.wait_for_selector(".grip")
    page.focus(".grip")
    page.keyboard.press("ArrowDown")
    until(page, "location.search.includes('knee=0.85')")
    until(page, "document.querySelector('.grip').innerText.includes('stop below 85 %')")


def test_own_runs_stand_beside_published_ones(visit):
    page = visit().go("scale", FEW)
    names = "[...(document.querySelector('#curve .chart').data || [])].map((t) => t.name)"
    until(page, f"{names}.includes('measured here (1)')")
    assert any(name.startswith("measured, published (") for name in page.evaluate(names) if name)
    assert "1 of 2 runs measured here belongs on this curve" in page.inner_text("#bias")
    assert re.search(r"predictions are [+\u2212][\d.]+ % off", page.inner_text("#bias"))
    page.click("#tabs a[data-view=evidence]")
    page.wait_for_selector("#own tbody tr")
    assert page.locator("#own tbody tr").count() == 2
    caption = page.inner_text("#caption")
    assert "Stars, measured here: 1 run, median error" in caption
    assert re.search(r"Open diamonds, in no fit: \d+ runs, median error [\d.]+ %", caption)
    assert page.inner_text("#own").count("cpu") >= 1


def test_evidence_is_filtered_by_strategy_and_source(visit):
    page = visit().go("evidence", "split=pipeline&source=nanotron")
    page.wait_for_selector("#scatter .main-svg", state="attached")
    traces = page.evaluate("document.querySelector('#scatter .chart').data.map((t) => t.name)")
    assert any(name.startswith("nanotron (") for name in traces)
    assert not any(name.startswith("llm-foundry (") for name in traces)
