"""HTML pages that work offline: one skeleton, one style sheet, a few blocks.

    page("Title", plots(figure), bullets("Warnings", warnings), source="Predicted by ...")

Plotly is embedded once in a page that has plots; nothing is fetched. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from scalewise.errors import require
from scalewise.report.draw_plotly import plot
from scalewise.report.figure import Figure

STYLE = """\
:root { color-scheme: light } * { box-sizing: border-box }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: #222;
  background: #fff; max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.5rem 3rem }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .5rem }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem; break-after: avoid }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem } p { margin: .4rem 0 } a { color: #00589b }
.lead { font-size: 1.08rem; max-width: 62rem } .dim, .source { color: #5c5c61 }
.small, .source { font-size: .88rem } .source { margin-top: 1.6rem }
ul { margin: .2rem 0; padding-left: 1.2rem } .scroll { overflow: auto; max-height: 40rem }
table { border-collapse: collapse; font-size: .9rem }
th { font-weight: 600; border-bottom: 1px solid #777; padding: .25rem .7rem .25rem 0;
  vertical-align: bottom; text-align: left }
td { border-bottom: 1px solid #e6e6e6; padding: .2rem .7rem .2rem 0; vertical-align: top }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.tie td { background: #eef5fa } table.facts td { border: 0; padding: .05rem 1.2rem .05rem 0 }
details { margin: .6rem 0 } summary { cursor: pointer; color: #00589b }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; line-height: 1.4 }
figure { margin: 1rem 0 .4rem } figcaption { font-size: .9rem }
figure img { max-width: 100%; height: auto } .static { display: none }
@media print {
  @page { margin: 16mm 14mm } body { font-size: 10pt; max-width: none; padding: 0 }
  .scroll { max-height: none; overflow: visible } .modebar, .updatemenu-container { display: none }
  table, .small { font-size: 8pt } figure, tr, .plotly-graph-div { break-inside: avoid }
}"""


def page(title: str, *parts: str, source: str = "", head: str = "") -> str:
    """Return a self-contained page.

    Args:
        title: Heading, and title of the window.
        parts: Blocks of HTML, in order.
        source: Last line: what the numbers come from.
        head: Further elements of the head.

    Raises:
        MissingExtraError: If there is a plot and plotly is not installed.
    """
    body = "".join(parts)
    library = ""
    if "plotly-graph-div" in body:
        offline: Any = require("plotly.offline", "plot")
        library = f"<script>{offline.get_plotlyjs()}</script>"
    last = f"<p class='source'>{escape(source)}</p>" if source else ""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>{head}{library}</head>"
        f"<body><h1>{escape(title)}</h1>{body}{last}</body></html>\n"
    )


def figure_page(figure: Figure, *parts: str, source: str = "") -> str:
    """Return the page of one figure: title, lead, plot, further blocks, notes."""
    notes = "".join(note(text) for text in figure.notes)
    plots = plot(figure) if figure.panels else ""
    return page(figure.title, lead(figure.lead), plots, *parts, notes, source=source)


def lead(text: str) -> str:
    """The answer, as the first paragraph."""
    return f"<p class='lead'>{escape(text)}</p>" if text else ""


def note(text: str) -> str:
    """A small paragraph."""
    return f"<p class='dim small'>{escape(text.strip())}</p>" if text.strip() else ""


def heading(text: str) -> str:
    """A heading inside the page."""
    return f"<h2>{escape(text)}</h2>"


def bullets(name: str, lines: Iterable[str], *, level: int = 2) -> str:
    """A heading and a list; empty without lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h{level}>{escape(name)}</h{level}><ul>{items}</ul>" if items else ""


def facts(name: str, pairs: Mapping[str, str]) -> str:
    """A heading and a table of names and values; empty without pairs."""
    if not pairs:
        return ""
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in pairs.items())
    return f"{heading(name)}<table class='facts'><tbody>{rows}</tbody></table>"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Sequence[int] = (0,),
    marked: Sequence[int] = (),
) -> str:
    """A table that scrolls where it is too wide.

    Args:
        heads: Heads of the columns; empty for a table without heads.
        rows: Texts of the cells; a short row is one wide last cell.
        text: Columns that are no numbers, from 0.
        marked: Rows with a colored background, from 0.
    """

    def kind(place: int) -> str:
        return "" if place in text else " class='number'"

    head = "".join(f"<th{kind(place)}>{escape(name)}</th>" for place, name in enumerate(heads))
    lines = []
    for number, row in enumerate(rows):
        cells = [f"<td{kind(place)}>{escape(cell)}</td>" for place, cell in enumerate(row)]
        if len(row) < len(heads):
            cells[-1] = (
                f"<td colspan='{len(heads) - len(row) + 1}' class='dim'>{escape(row[-1])}</td>"
            )
        style = " class='tie'" if number in marked else ""
        lines.append(f"<tr{style}>{''.join(cells)}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f"<div class='scroll'><table>{top}<tbody>{''.join(lines)}</tbody></table></div>"


def details(summary: str, body: str, *, opened: bool = False) -> str:
    """A block that opens at a click."""
    state = " open" if opened else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{body}</details>"
