"""The web UI in a browser: its numbers are those of the API, and it is accessible."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from ui_browser import FEW, SHOTS, SIZES, VIEWS, Visit, settled, until


@pytest.fixture(scope="module")
def windows(browser, address):
    """One window for each size and scheme, as opening one is slow."""
    opened = {}

    def window(size, scheme):
        if (size, scheme) not in opened:
            opened[size, scheme] = Visit(browser, address, size, scheme)
        return opened[size, scheme]

    yield window
    for each in opened.values():
        each.close()


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
    answer = seen.api("estimate", {"gpus": "512", "seq": "4096", "batch": "1024"})
    step = answer["headline"]["step_seconds"][0]
    assert headline(page) == f"{step * 1e3:.0f} ms"
    assert page.input_value("[aria-label=Strategy]") == answer["question"]["strategy"]
    shares = page.locator("#step-time .fall:not(.thin) li:not(.total) .pc").all_inner_texts()
    assert sum(float(text.rstrip("%")) for text in shares) == pytest.approx(100.0, abs=0.6)
    # What changed, and by how much.
    assert "GPUs 256 \u2192 512" in page.inner_text("#answer")
    assert page.locator(".figure .delta").count() >= 3


def test_a_shared_address_restores_the_state(visit):
    first = visit()
    page = first.go("scale", FEW)
    page.get_by_label("Weak: batch per GPU").check(force=True)
    page.get_by_label("MFU", exact=True).check(force=True)
    page.fill("[aria-label=GPUs]", "64")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('n=64')")
    until(page, "document.querySelector('#says').textContent.includes('64 \u2192 128')")
    shared, said = page.url, page.inner_text("#says")
    second = visit()
    second.page.goto(shared)
    until(second.page, "document.querySelector('#says')?.innerText === arg", said)
    assert second.page.get_by_label("Weak: batch per GPU").is_checked()
    assert second.page.get_by_label("MFU", exact=True).is_checked()
    assert second.page.input_value("[aria-label=GPUs]") == "64"


def test_infeasible_input_shows_its_reason_and_a_fix(visit):
    page = visit().go("estimate", "model=llama-3-70b&n=8&batch=1024&seq=4096")
    text = page.inner_text("#answer")
    assert "Likely out of memory: needs" in text
    assert "GiB of 79.6 GiB" in text
    page.get_by_role("button", name="Apply").first.click()
    page.wait_for_selector(".figure strong")
    assert re.search(r"[?&]n=(16|32)&", page.url)


def test_an_error_marks_its_field(visit):
    seen = visit()
    page = seen.go("estimate")
    seen.expected = "400 (Bad Request)"
    page.fill("[aria-label=Strategy]", "fsdp256-zz9")
    page.keyboard.press("Tab")
    page.wait_for_selector(".refused")
    assert "zz9" in page.inner_text(".refused")
    page.fill("[aria-label='Global batch']", "0")
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-label='Global batch'][aria-invalid]")


def test_fields_outside_the_sentence_are_inputs_and_part_of_the_address(visit):
    seen = visit()
    page = seen.go("estimate", "model=mixtral-8x7b&n=64")
    assert "exposed EP" in page.inner_text("#step-time")
    page.click(".further summary")
    page.fill("[aria-label=Imbalance]", "1.5")
    page.keyboard.press("Tab")
    until(page, "location.search.includes('imbalance=1.5')")
    until(page, "document.querySelector('.further summary').innerText.includes('imbalance 1.5')")
    seen.expected = "400 (Bad Request)"
    page.fill("[aria-label=Imbalance]", "uneven")
    page.keyboard.press("Tab")
    page.wait_for_selector("[aria-label=Imbalance][aria-invalid]")


def test_names_are_found_by_parts_and_arrows_step_through_powers_of_two(visit):
    page = visit().go("estimate")
    page.wait_for_load_state("networkidle")
    page.fill("[aria-label=Model]", "llama 2 13")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('model=llama-2-13b')")
    page.focus("[aria-label=GPUs]")
    page.keyboard.press("ArrowUp")
    until(page, "location.search.includes('n=512')")
    page.keyboard.press("ArrowDown")
    until(page, "location.search.includes('n=256')")


def test_a_term_is_explained_with_formula_and_source(visit):
    page = visit().go("estimate")
    page.locator("#step-time .term").first.click()
    page.wait_for_selector("dialog .formula")
    text = page.inner_text("dialog")
    assert "Source:" in text
    assert "= " in text
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_configurations_are_pinned_and_compared(visit):
    page = visit().go("estimate", "n=64&batch=512")
    page.click("#pin-plan")
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelectorAll('.compare thead th').length === 3")
    until(page, "document.querySelector('.compare')?.innerText.includes('128 \u00d7')")
    assert "pin=" in page.url
    assert "64 \u00d7 dgx-h100" in page.inner_text(".compare")


def test_at_most_four_configurations_are_pinned(visit):
    page = visit().go("estimate", "n=8&batch=512")
    for count in range(1, 5):
        page.click("#pin-plan")
        until(page, "document.querySelectorAll('.compare thead th').length === arg + 2", count)
        assert page.inner_text("#pin-plan") in ("Pinned", "Four configurations are pinned")
        page.focus("#slider")
        page.keyboard.press("ArrowRight")
        until(page, "new URLSearchParams(location.search).get('n') === arg", str(8 * 2**count))
    until(page, "document.querySelector('.compare')?.innerText.includes('128 \u00d7')")
    assert page.is_disabled("#pin-plan")
    assert page.inner_text("#pin-plan") == "Four configurations are pinned"
    # Every column but the first shows its difference from the current configuration.
    row = page.locator(".compare tbody tr").nth(3)
    assert row.locator(".delta").count() == 4
    # The address restores all of them.
    page.goto(page.url)
    until(page, "document.querySelectorAll('.compare thead th').length === 6")
    page.get_by_role("button", name="remove pin 4").click()
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
    answer = seen.api(
        "estimate", {"gpus": "256", "batch": "1024", "sets": ["cluster.usd_per_hour=5.90"]}
    )
    assert f"${answer['headline']['usd'][0]:,.0f}" in page.inner_text("#answer")


def test_views_and_fields_are_reached_by_keyboard(visit):
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
    assert not page.is_visible("[aria-label=GPUs]")
    page.click(".brief")
    page.fill("[aria-label=GPUs]", "64")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('n=64')")
    page.screenshot(path=SHOTS / "sheet-390.png")
    page.get_by_role("button", name="Show results").click()
    assert not page.is_visible("[aria-label=GPUs]")
    until(page, "document.querySelector('.brief').innerText.includes('on 64')")
