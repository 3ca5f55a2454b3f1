"""How is a search told on a page? The answer, pictures, the table, reasons; works offline.

    ranking_html(found)               # needs plotly, the extra `plot`, where there is a bar to draw

Computing is `explore.search`; the terminal's view is `report.ranking`, that on paper
`ranking_figure`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from scalewise.explore.search import objective_of
from scalewise.report import ranking_plots as plots
from scalewise.report import ranking_style as style
from scalewise.report.ranking import FRONT_SHOWN, headline, launch_facts
from scalewise.report.words import grouped, percent, provenance_line
from scalewise.step.estimate import NEAR_TIE

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 76em;
  margin: 1.5em auto; padding: 0 1.5em }
h1 { font-size: 1.35em } h2 { font-size: 1.05em; margin: 1.6em 0 .3em; break-after: avoid }
p.answer { font-size: 1.1em } p.note { color: #555; margin: .2em 0; max-width: 60em }
ul { margin: 0; padding-left: 1.2em } .source { color: #666; font-size: .9em }
.wide { overflow-x: auto } summary { cursor: pointer; margin: .5em 0 }
table { border-collapse: collapse; font-size: .92em; break-inside: auto }
th { text-align: right; font-weight: 600; border-bottom: 1px solid #999; padding: .2em .7em;
  vertical-align: bottom }
td { text-align: right; padding: .15em .7em; border-bottom: 1px solid #e6e6e6;
  font-variant-numeric: tabular-nums; white-space: nowrap }
th.text, td.text { text-align: left } tr { break-inside: avoid } tr.tie td { background: #eef5fa }
table.facts td { border: 0; padding: .05em 1.2em .05em 0; text-align: left; white-space: normal }
@media print {
  body { max-width: none; margin: 0; font-size: 11px }
  .modebar, .updatemenu-container { display: none } .wide { overflow: visible }
  th, td { padding: .1em .35em }
  .plotly-graph-div { break-inside: avoid }
}"""

HEADS = (
    "", "strategy", "tokens/s per accelerator", "80 % interval", "step, s", "MFU, %", "HFU, %",
    "exposed, %", "memory, GiB", "W", "J/token", "$/M tokens",
)  # fmt: skip


def ranking_html(found: Search, *, chosen: Sequence[str] = ()) -> str:
    """Tell a search as a self-contained page.

    Args:
        found: What was found.
        chosen: What was chosen for the user.

    Raises:
        MissingExtraError: If plotly is needed and not installed.
    """
    name = escape(style.title(found))
    stopped = "<p><b>Stopped before the end: this is the best so far.</b></p>"
    body = [
        f"<h1>{name}</h1>",
        stopped if found.interrupted else "",
        f"<p class='answer'>{escape(headline(found))}</p>",
        _winner(found) if found.best is not None else _nearest(found),
        _rest(found),
        _facts("What was asked", style.inputs(found)),
        _list("Chosen for you", chosen),
        _list("Warnings", _warnings(found)),
        f"<p class='source'>{escape(_sources(found))}</p>",
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{name}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _winner(found: Search) -> str:
    """Pictures, table and reasons of a search that found something."""
    best = found.best
    assert best is not None
    parts = [
        "<h2>Where the step of each goes</h2>",
        _note(
            "A click on a name in the legend hides it, a double click shows it alone. "
            + (f"Dotted: {100 * NEAR_TIE:.1f} % above the best." if found.ties > 1 else "")
        ),
        _plot(plots.bars_figure(found), library=True),
        "<h2>Ranking</h2>",
        ranking_table(found, found.strategies),
        _list("Why the others lost", [f"{sentence}." for sentence in found.why()]),
        f"<h2>To launch {escape(str(best.strategy))}</h2><ul>"
        + "".join(f"<li>{escape(fact)}</li>" for fact in _facts_of(launch_facts(best)))
        + "</ul>",
    ]
    if len(found.by_mesh) > 1:
        parts += [
            "<h2>The best of every tensor-parallel and pipeline degree</h2>",
            _note(
                f"{style.QUANTITIES[found.by].label.capitalize()}, of the best strategy with these "
                "two degrees and whatever else suits them. Framed: the winner. Empty: nothing "
                "fits, or it was not allowed."
            ),
            _plot(plots.mesh_figure(found)),
        ]
    if found.pareto:
        parts.append(_front(found))
    return "".join(parts)


def _front(found: Search) -> str:
    """The front as a picture where it is a trade, and as a table."""
    parts = ["<h2>Not beaten in all of the objectives asked for</h2>"]
    if len(found.pareto) == 1:
        only = found.pareto[0].strategy
        parts.append(_note(f"One strategy is best in all of them at once: {only}."))
        return "".join(parts)
    if plots.front_axes(found):
        parts.append(_plot(plots.front_figure(found)))
    ordered = sorted(found.pareto, key=lambda e: objective_of(e, "time"))
    few = " open" if len(ordered) <= FRONT_SHOWN else ""
    return (
        f"{''.join(parts)}<details{few}><summary>All {len(ordered)} strategies of the front, by "
        f"step time</summary>{ranking_table(found, ordered)}</details>"
    )


def _facts_of(sentence: str) -> list[str]:
    """Part a list at its commas, but not inside brackets."""
    return re.split(r", (?![^(]*\))", sentence)


def _nearest(found: Search) -> str:
    e = found.nearest
    if e is None:
        return ""
    return f"<p>Nearest: <b>{escape(str(e.strategy))}</b>, {escape(e.infeasible or '')}</p>"


def ranking_table(found: Search, rows: Sequence[Estimate]) -> str:
    """One line per strategy; near-ties of the best are marked."""
    head = "".join(
        f"<th{' class=text' if name == 'strategy' else ''}>{name}</th>" for name in HEADS
    )
    lines = []
    for place, e in enumerate(rows):
        tie = style.is_tie(found, e)
        cells = [
            f"{place + 1}",
            ("= " if tie else "") + str(e.strategy),
            f"{e.tokens_per_second_per_accelerator:,.0f}",
            f"{e.low:,.0f} - {e.high:,.0f}",
            f"{e.step_seconds:.3f}",
            f"{100 * e.mfu:.1f}",
            f"{100 * e.hfu:.1f}",
            f"{100 * e.exposed_share:.1f}",
            f"{e.memory_bytes * 2**-30:.1f}",
            _known(e.watts_per_accelerator),
            _known(e.joules_per_token),
            _known(e.usd_per_million_tokens),
        ]
        told = "".join(
            f"<td{' class=text' if column == 1 else ''}>{escape(cell)}</td>"
            for column, cell in enumerate(cells)
        )
        lines.append(f"<tr{' class=tie' if tie else ''}>{told}</tr>")
    return (
        f"<div class='wide'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _rest(found: Search) -> str:
    """What became of all that was tried."""
    reasons = sorted(found.infeasible.items(), key=lambda item: -item[1])
    counts = [("can run", found.feasible), *reasons]
    lines = "".join(
        f"<tr><td>{count:,}</td><td>{percent(count / max(found.examined, 1))}</td>"
        f"<td class='text'>{escape(reason)}</td></tr>"
        for reason, count in counts
    )
    return f"<h2>{found.examined:,} strategies tried</h2><table><tbody>{lines}</tbody></table>"


def _warnings(found: Search) -> tuple[str, ...]:
    e = style.asked_of(found)
    return () if e is None else e.warnings


def _sources(found: Search) -> str:
    e = style.asked_of(found)
    told = style.source_line(found)
    return told if e is None else f"{told} Numbers: {provenance_line(e)}."


def _plot(figure: Any, *, library: bool = False) -> str:
    """A figure as a part of the page; the library is embedded once, with the first of them."""
    config = {"displaylogo": False, "responsive": True}
    part: str = figure.to_html(include_plotlyjs=library, full_html=False, config=config)
    return part


def _facts(heading: str, facts: dict[str, str]) -> str:
    if not facts:
        return ""
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items()
    )
    return f"<h2>{escape(heading)}</h2><table class='facts'><tbody>{lines}</tbody></table>"


def _list(heading: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(heading)}</h2><ul>{items}</ul>" if items else ""


def _note(text: str) -> str:
    return f"<p class='note'>{escape(text.strip())}</p>"


def _known(value: float | None) -> str:
    return "-" if value is None else grouped(value)
