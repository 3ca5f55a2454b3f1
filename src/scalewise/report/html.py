"""How does an estimate look in a notebook? One compact block of HTML, without scripts or links.

    estimate_html(e)       # what Jupyter shows for an Estimate
    estimate_page(e)       # the same as a file of its own

Colours are taken from what surrounds it, and bars have a middle tone, because notebooks do not say
whether they are light or dark. Every text is escaped: model names come from files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING

from scalewise.report.words import (
    footnote,
    gibibytes,
    headline,
    milliseconds,
    percent,
    plain,
    provenance_line,
    term_label,
    title,
)

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

STYLE = """\
.scalewise { font: 13px/1.45 system-ui, sans-serif; color: inherit; max-width: 60em }
.scalewise h4 { font-size: 1.05em; margin: .9em 0 .3em }
.scalewise table { border-collapse: collapse; background: none; margin: 0 }
.scalewise td { border: 0; padding: .1em .8em .1em 0; text-align: left; background: none;
  vertical-align: middle }
.scalewise td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.scalewise td.bar { width: 16em }
.scalewise td.bar div { background: #5b8def; height: .7em; min-width: 1px; border-radius: 2px }
.scalewise .dim { opacity: .7 }
.scalewise .bad { color: #d9534f; font-weight: bold }
.scalewise .warn { color: #b8860b }
.scalewise tr.total td { border-top: 1px solid rgba(128, 128, 128, .5); font-weight: bold }"""


def estimate_html(e: Estimate) -> str:
    """Tell one estimate as an HTML fragment.

    Args:
        e: The estimate.

    Returns:
        A `div` with its own style.
    """
    facts = "".join(
        f"<tr><td class='dim'>{escape(fact.name)}</td>"
        f"<td><b>{escape(fact.value)}</b>{escape(fact.detail)}</td></tr>"
        for fact in headline(e)
    )
    bad = f"<p class='bad'>Does not fit. {escape(e.infeasible)}</p>" if e.infeasible else ""
    terms = ((term_label(name), value) for name, value in e.terms.items())
    memory = ((plain(name), value) for name, value in e.memory.items())
    notes = "".join(f"<div class='warn'>{escape(each)}</div>" for each in e.warnings)
    chosen = ", ".join(e.defaults)
    chosen = f"<div class='dim'>Chosen for you: {escape(chosen)}</div>" if chosen else ""
    return (
        f"<div class='scalewise'><style>{STYLE}</style>"
        f"<h4>{escape(title(e))}</h4>{bad}<table>{facts}</table>"
        f"<h4>Where the step goes</h4>{_bars(terms, 'step', e.step_seconds, milliseconds)}"
        f"<h4>Memory of the fullest rank</h4>{_bars(memory, 'peak', e.memory_bytes, gibibytes)}"
        f"<p>{notes}{chosen}<span class='dim'>{escape(footnote(e))} "
        f"Numbers: {escape(provenance_line(e))}.</span></p></div>"
    )


def estimate_page(e: Estimate) -> str:
    """Tell one estimate as a page of its own.

    Args:
        e: The estimate.

    Returns:
        A whole HTML document.
    """
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title(e))}</title>"
        "<style>:root { color-scheme: light dark } body { margin: 2em }</style></head>"
        f"<body>{estimate_html(e)}</body></html>\n"
    )


def _bars(
    rows: Iterable[tuple[str, float]], name: str, total: float, show: Callable[[float], str]
) -> str:
    """Tell parts of a whole as a table with bars; zeros are left out."""
    lines = [
        f"<tr><td>{escape(label)}</td><td class='number'>{escape(show(value))}</td>"
        f"<td class='number'>{escape(percent(value / total))}</td>"
        f"<td class='bar'><div style='width: {100 * value / total:.1f}%'></div></td></tr>"
        for label, value in rows
        if value
    ]
    whole = (
        f"<tr class='total'><td>{escape(name)}</td><td class='number'>{escape(show(total))}</td>"
        "<td class='number'>100.0 %</td><td></td></tr>"
    )
    return f"<table>{''.join(lines)}{whole}</table>"
