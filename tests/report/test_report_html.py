import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec

from scalewise.report.html import estimate_html, estimate_page


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


def test_fragment_says_the_headline_and_draws_bars(literal):
    text = estimate_html(literal)
    assert "<b>8,190 (7,000 - 9,500) tokens/s per accelerator</b>" in text
    terms, memory = text.split("Memory of the fullest rank")
    assert re.findall(r"width: ([\d.]+)%", terms) == ["50.0", "10.0", "25.0", "15.0"]
    assert re.findall(r"width: ([\d.]+)%", memory) == ["25.0", "75.0"]


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


def test_infeasible_is_said(literal):
    assert "Does not fit" not in estimate_html(literal)
    assert "Does not fit. no room" in estimate_html(replace(literal, infeasible="no room"))


def test_notebooks_get_the_fragment(literal):
    assert literal._repr_html_() == estimate_html(literal)


def test_page_follows_light_and_dark(literal):
    page = estimate_page(literal)
    assert page.startswith("<!doctype html>")
    assert "color-scheme: light dark" in page
