import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec

from scalewise.report.estimate_html import estimate_html, estimate_page


class Balance(HTMLParser):
    """Checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_fragment_is_balanced_and_self_contained(literal):
    text = estimate_html(literal)
    checker = Balance()
    checker.feed(text)
    assert checker.open == []
    for outside in ("<script", "http://", "https://", "<link", "@import", "url("):
        assert outside not in text


def test_fragment_has_the_headline_and_bars_by_size(literal):
    text = estimate_html(literal)
    assert "<b>8,190 tok/s/GPU [7,000-9,500]</b></td><td>16.8M tok/s total" in text
    terms, memory = text.split("Peak memory (worst rank)")
    assert re.findall(r"width: ([\d.]+)%", terms) == ["50.0", "25.0", "15.0", "10.0"]
    assert re.findall(r"width: ([\d.]+)%", memory) == ["75.0", "25.0"]


def test_everything_is_escaped(literal):
    evil = "<img src=x onerror=alert(1)>"
    e = replace(
        literal,
        model=msgspec.structs.replace(literal.model, name=evil),
        infeasible=evil,
        warnings=(evil,),
        defaults=(evil,),
    )
    for text in (estimate_html(e), estimate_page(e)):
        assert "<img" not in text
        assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 4


def test_infeasible_is_shown(literal):
    assert "class='bad'" not in estimate_html(literal)
    assert "CANNOT RUN: no room" in estimate_html(replace(literal, infeasible="no room"))
    assert "LIKELY OUT OF MEMORY: 40.0 GiB" in estimate_html(replace(literal, fit=0.3))


def test_a_prompt_shows_one_line(literal):
    assert repr(literal) == (
        "<Estimate llama-2-7b on 2,048x h100-sxm-80gb (dgx-h100), fsdp2048-mb2: 8,190 tok/s/GPU "
        "[7,000-9,500], 1.00 s, MFU 40.0%, 40.0 of 80.0 GiB>"
    )
    assert repr(replace(literal, fit=0.3)).endswith("GiB; LIKELY OUT OF MEMORY>")


def test_notebooks_get_the_fragment(literal):
    assert literal._repr_html_() == estimate_html(literal)


def test_page_follows_light_and_dark(literal):
    page = estimate_page(literal)
    assert page.startswith("<!doctype html>")
    assert "color-scheme: light dark" in page
