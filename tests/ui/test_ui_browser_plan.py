"""The plan view in a browser: its table, its address, and the queue with its calendar."""

import tomllib

from ui_browser import until

ASKED = "model=llama-2-7b&clusters=dgx-h100,dgx-a100&counts=64,128&tokens=300B&deadline=30"
RUN = "run=name%3Da%26model%3Dllama-2-7b%26tokens%3D300B"


def test_the_table_has_the_digits_of_the_api(visit):
    seen = visit()
    page = seen.go("plan", ASKED)
    question = {"model": "llama-2-7b", "on": "dgx-h100,dgx-a100", "gpus": "64,128", "seq": "4096",
                "tokens": "300B", "deadline": "30d"}  # fmt: skip
    answer = seen.api("plan", {"question": question})
    assert page.inner_text("#says") == answer["plan"]["lead"][0]
    first = page.locator("#plans tbody tr").first.inner_text()
    for text in answer["shown"][0]["numbers"]:
        assert text in first
    assert "Goodput" in page.inner_text("#follows")
    # A limit and an order are part of the address.
    page.fill("#knobs [name=deadline]", "1")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#says').innerText.includes('within 1 day ')")
    page.select_option("#knobs [name=order]", "energy")
    until(page, "location.search.includes('order=energy')")
    assert "deadline=1&" in page.url
    # A word that is not understood is a sentence, and no table.
    page.fill("#knobs [name=clusters]", "dgx-h10")
    page.keyboard.press("Enter")
    page.wait_for_selector("#says .refused")
    assert not page.is_visible("#plans")
    seen.expected = "400"


def test_a_strategy_opens_its_estimate(visit):
    page = visit().go("plan", ASKED)
    name = page.locator("#plans tbody tr .link").first.inner_text()
    page.locator("#plans tbody tr .link").first.click()
    page.wait_for_selector("#step-time .term")
    until(page, "document.querySelector('[aria-label=Strategy]').value === arg", name)


def test_a_queue_is_built_pasted_and_kept_in_the_address(visit):
    page = visit().go("plan", f"{ASKED}&n=128&start=2027-01-04&{RUN}")
    page.wait_for_selector("#queue-figure .main-svg", state="attached")
    page.get_by_role("button", name="Add the answer").click()
    until(page, "document.querySelectorAll('#queue-table tbody tr').length === 2")
    page.fill("[aria-label='Name of llama-2-7b']", "second")
    page.keyboard.press("Tab")
    page.select_option("[aria-label='Run before second']", "a")
    until(page, "document.querySelector('#queue-lead').textContent.startsWith('2 runs')")
    page.click("#queue summary >> nth=0")
    page.fill("#queue textarea", 'model = "gpt2"\ntokens = "10B"\ngpus = 8')
    page.get_by_role("button", name="Add pasted runs").click()
    until(page, "document.querySelectorAll('#queue-table tbody tr').length === 3")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the queue as queue.toml").click()
    runs = tomllib.loads(saved.value.path().read_text())["run"]
    assert [(run["name"], run.get("after")) for run in runs] == [
        ("a", None), ("second", "a"), ("gpt2-3", None),
    ]  # fmt: skip
    lead = page.inner_text("#queue-lead")
    page.goto(page.url)
    until(page, "document.querySelector('#queue-lead')?.innerText === arg", lead)
    page.get_by_role("button", name="Remove second").click()
    until(page, "document.querySelectorAll('#queue-table tbody tr').length === 2")
