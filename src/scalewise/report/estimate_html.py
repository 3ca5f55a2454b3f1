"""An estimate in a notebook: one line as its repr, and a block of HTML without scripts or links.

    estimate_line(e)       # what a prompt shows for an Estimate
    estimate_html(e)       # what Jupyter shows
    estimate_page(e)       # the same as a file of its own

Colors are those of the surroundings, and bars have a middle tone, because notebooks do not say
whether they are light or dark. Every text is escaped: model names come from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from scalewise.report.words import (
    cluster_words,
    convention_words,
    gibibytes,
    headline,
    interval_words,
    milliseconds,
    percent,
    provenance_line,
    rate_words,
    title,
    verdict,
)
from scalewise.terms import MEMORY_PARTS, TERMS
from scalewise.units import GIB, format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from collections.abc import Callable

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


def estimate_line(e: Estimate) -> str:
    """Return one estimate as one line: question, throughput, step time, MFU, memory."""
    parts = (
        f"{e.model.name} on {cluster_words(e.cluster)}, {e.strategy}: {rate_words(e)}",
        format_seconds(e.step_seconds),
        f"MFU {format_percent(e.mfu)}",
        f"{grouped(e.memory_bytes / GIB)} of {grouped(e.memory_capacity / GIB)} GiB",
    )
    bad = verdict(e)
    return f"<Estimate {', '.join(parts)}{'' if bad is None else '; ' + bad.partition(':')[0]}>"


def estimate_html(e: Estimate) -> str:
    """Return one estimate as an HTML fragment: a `div` with its own style."""
    facts = "".join(
        f"<tr><td class='dim'>{escape(fact.name)}</td><td><b>{escape(fact.value)}</b></td>"
        f"<td>{escape(fact.detail)}</td></tr>"
        for fact in headline(e)
    )
    bad = verdict(e)
    line = f"<p class='bad'>{escape(bad)}</p>" if bad else ""
    times = {TERMS[name].label: value for name, value in e.terms.items()}
    sizes = {MEMORY_PARTS[name].label: value for name, value in e.memory.items()}
    notes = "".join(f"<div class='warn'>{escape(each)}</div>" for each in e.warnings)
    defaults = ", ".join(map(str, e.defaults))
    chosen = f"<div class='dim'>Defaults: {escape(defaults)}</div>" if defaults else ""
    words = f"{interval_words(e)}. MFU ({e.convention}): {convention_words(e.convention)}."
    return (
        f"<div class='scalewise'><style>{STYLE}</style>"
        f"<h4>{escape(title(e))}</h4>{line}<table>{facts}</table>"
        f"<h4>Step time</h4>{_bars(times, milliseconds)}"
        f"<h4>Peak memory (worst rank)</h4>{_bars(sizes, gibibytes)}"
        f"<p>{notes}{chosen}<span class='dim'>{escape(words)} "
        f"Sources: {escape(provenance_line(e))}.</span></p></div>"
    )


def estimate_page(e: Estimate) -> str:
    """Return one estimate as an HTML document."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title(e))}</title>"
        "<style>:root { color-scheme: light dark } body { margin: 2em }</style></head>"
        f"<body>{estimate_html(e)}</body></html>\n"
    )


def _bars(parts: Mapping[str, float], show: Callable[[float], str]) -> str:
    """Return parts of a whole as a table with bars, sorted by size; zeros are left out."""
    total = sum(parts.values())
    lines = [
        f"<tr><td>{escape(label)}</td><td class='number'>{escape(show(value))}</td>"
        f"<td class='number'>{escape(percent(value / total))}</td>"
        f"<td class='bar'><div style='width: {100 * value / total:.1f}%'></div></td></tr>"
        for label, value in sorted(parts.items(), key=lambda item: -item[1])
        if value
    ]
    whole = (
        f"<tr class='total'><td>total</td><td class='number'>{escape(show(total))}</td>"
        "<td class='number'>100.0%</td><td></td></tr>"
    )
    return f"<table>{''.join(lines)}{whole}</table>"
