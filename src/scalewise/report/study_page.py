"""How does a study read? One page: verdicts first, then figure by figure; works offline, prints.

    study_html(answer, marks)         # needs plotly and matplotlib, the extra `plot`

Scripts and pictures are inside the page. On paper, and where scripts do not run, the same figures
stand as drawings.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from scalewise._version import __version__
from scalewise.errors import require
from scalewise.report.study_plotly import study_plot
from scalewise.report.study_style import Drawing
from scalewise.report.study_words import findings
from scalewise.study.claims import Judged, Verdict
from scalewise.study.files import Experiment
from scalewise.study.measures import AXES, METRICS
from scalewise.study.rows import Row, varying
from scalewise.study.run import Answer

MOST_ROWS = 400
"""Rows of one table on the page; the rest is in the files beside it."""

_CLASSES: dict[Verdict, str] = {
    "holds": "yes",
    "holds with a difference": "partly",
    "does not hold": "no",
    "not judged": "none",
}

STYLE = """\
:root { color-scheme: light }
* { box-sizing: border-box }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: #1d1d1f;
  background: #fff; max-width: 72rem; margin: 0 auto; padding: 2rem 1.5rem 4rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .5rem; padding-top: .8rem; border-top: 1px solid #ddd }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem }
p { margin: .4rem 0 } a { color: #00589b } .dim { color: #5c5c61 } .small { font-size: .88rem }
.lead { font-size: 1.08rem; max-width: 60rem }
table { border-collapse: collapse; font-size: .86rem; width: 100% }
th { text-align: left; border-bottom: 2px solid #333; padding: .35rem .6rem .35rem 0;
  vertical-align: bottom }
td { border-bottom: 1px solid #e4e4e4; padding: .35rem .6rem .35rem 0; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
table.verdicts { table-layout: fixed } table.verdicts td { overflow-wrap: break-word }
table.verdicts td.number { white-space: normal } .w0 { width: 2.4rem } .w1 { width: 32% }
.w2 { width: 11% } .w3 { width: 11% } .w4 { width: 8.6rem }
.scroll { overflow-x: auto; max-height: 34rem; overflow-y: auto }
.chip { display: inline-block; border-radius: .3rem; padding: .05rem .5rem; font-size: .82rem;
  font-weight: 600; border: 1px solid; line-height: 1.25 }
.yes { background: #e3f4ee; color: #00543d; border-color: #009e73 }
.partly { background: #fdf3dc; color: #6a4700; border-color: #e69f00 }
.no { background: #fbe6da; color: #7d3000; border-color: #d55e00 }
.none { background: #eee; color: #444; border-color: #999 }
.counts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0 }
.count { border: 1px solid; border-radius: .5rem; padding: .5rem 1rem; min-width: 9rem }
.count b { display: block; font-size: 1.7rem; line-height: 1.1 }
figure { margin: 1.2rem 0 .4rem } figcaption { font-size: .9rem; color: #333 }
figure img { max-width: 100%; height: auto } .static { display: none }
.finding { background: #f4f6f8; border-left: 4px solid #0072b2; padding: .5rem .9rem;
  margin: .8rem 0 }
details { margin: .6rem 0 } summary { cursor: pointer; color: #00589b }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; line-height: 1.4 }
ul { margin: .3rem 0; padding-left: 1.3rem } nav ol { columns: 2; font-size: .92rem;
  list-style: none; padding: 0 }
@media print {
  @page { margin: 16mm 14mm }
  body { font-size: 10pt; max-width: none; padding: 0 }
  .plot, nav, details, .claims { display: none } .static { display: block }
  table { font-size: 8pt } .w1 { width: 30% } .w4 { width: 6.6rem } .small { font-size: 8pt }
  .scroll { max-height: none; overflow: visible }
  h2 { break-after: avoid } figure, tr, .finding { break-inside: avoid }
  section.experiment { break-before: page }
  a { color: inherit; text-decoration: none } .chip, .count { print-color-adjust: exact }
}"""


def study_html(
    answer: Answer,
    drawings: Mapping[str, Sequence[Drawing]],
    pictures: Mapping[str, bytes],
    *,
    command: str = "",
    fingerprint: str = "",
) -> str:
    """Tell a study as one self-contained page.

    Args:
        answer: What was found.
        drawings: Figures by experiment.
        pictures: SVG by name of the drawing, for paper.
        command: What reproduces it.
        fingerprint: Of the physics and the constants.
    """
    study = answer.study
    offline: Any = require("plotly.offline", "plot")
    script: str = offline.get_plotlyjs()
    names = {each.id: each.title for each in study.experiments}
    contents = "".join(
        f"<li><a href='#{each.id}'>{escape(each.title)}</a></li>" for each in study.experiments
    )
    sections = "".join(
        _section(each, answer, drawings[each.id], pictures) for each in study.experiments
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(study.title)}</title><style>{STYLE}</style>"
        "<noscript><style>.plot { display: none } .static { display: block }</style></noscript>"
        f"<script>{script}</script></head><body>"
        f"<header><h1>{escape(study.title)}</h1><p class='lead'>{escape(study.question)}</p>"
        + (f"<p class='dim'>Source: {escape(study.source)}</p>" if study.source else "")
        + f"<p class='dim small'>Predicted by scalewise {__version__}, not measured, unless marked "
        "as published or measured.</p></header>"
        + _summary(answer, names)
        + f"<nav><h3>Contents</h3><ol>{contents}<li><a href='#assumptions'>Assumptions and "
        f"calibrations</a></li><li><a href='#reproduce'>Reproduce</a></li></ol></nav>{sections}"
        + _assumptions(answer, names)
        + _reproduce(answer, command, fingerprint)
        + "</body></html>\n"
    )


def _summary(answer: Answer, names: Mapping[str, str]) -> str:
    """The verdicts: how many of each, then claim by claim."""
    points = len(answer.rows)
    missing = sum(not row.feasible for row in answer.rows)
    counted = (
        f"<p class='dim small'>{points:,} points in {len(answer.study.experiments)} experiments; "
        f"{missing:,} of them cannot run, each with its reason below.</p>"
    )
    if not answer.verdicts:
        told = "".join(
            f"<li><a href='#{each.id}'>{escape(each.title)}</a>: "
            f"{escape(' '.join(findings(each, answer.of(each))))}</li>"
            for each in answer.study.experiments
        )
        return f"<h2>Summary</h2><ul>{told}</ul>{counted}"
    tally = Counter(each.verdict for each in answer.verdicts)
    boxes = "".join(
        f"<div class='count {css}'><b>{tally[verdict]}</b>{escape(verdict)}</div>"
        for verdict, css in _CLASSES.items()
        if tally[verdict]
    )
    return (
        f"<h2>Summary: what of the claims holds</h2><div class='counts'>{boxes}</div>"
        + _verdicts(answer.verdicts, names)
        + "<p class='dim small'>A claim holds if our number lies within its tolerance (10 % unless "
        "stated) or bound; it holds with a difference if direction and order of magnitude agree "
        "(a factor of 3), or if who leads is a near-tie; otherwise it does not. Bounds that are "
        "our reading of words are marked as such; see <a href='#assumptions'>what was assumed</a> "
        "before counting.</p>" + counted
    )


def _verdicts(verdicts: Iterable[Judged], names: Mapping[str, str] | None) -> str:
    rows = []
    for each in verdicts:
        place = ""
        if names is not None:
            number = escape(_number(names[each.experiment]))
            place = f"<td><a href='#{each.experiment}'>{number}</a></td>"
        rows.append(
            f"<tr>{place}<td>{escape(each.claim.statement)}"
            f"<div class='dim small'>{escape(each.claim.source)}</div></td>"
            f"<td class='number'>{escape(each.theirs)}</td>"
            f"<td class='number'><b>{escape(each.ours)}</b></td>"
            f"<td><span class='chip {_CLASSES[each.verdict]}'>{escape(each.verdict)}</span></td>"
            f"<td class='small'>{escape(each.why)}</td></tr>"
        )
    head = "<th class='w0'></th>" if names is not None else ""
    return (
        f"<table class='verdicts'><thead><tr>{head}<th class='w1'>claim</th>"
        "<th class='number w2'>published</th><th class='number w3'>ours</th>"
        "<th class='w4'>verdict</th><th>why</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _number(title: str) -> str:
    """The number before a title, or the title itself."""
    number, dot, _ = title.partition(".")
    return number if dot and len(number) <= 4 else title


def _section(
    experiment: Experiment,
    answer: Answer,
    drawings: Sequence[Drawing],
    pictures: Mapping[str, bytes],
) -> str:
    rows = answer.of(experiment)
    about = f"<p>{escape(experiment.about)}</p>" if experiment.about else ""
    told = " ".join(findings(experiment, rows))
    figures = "".join(
        _figure(drawing, number + 1, pictures) for number, drawing in enumerate(drawings)
    )
    judged = [each for each in answer.verdicts if each.experiment == experiment.id]
    claims = f"<div class='claims'><h3>Claims</h3>{_verdicts(judged, None)}</div>" if judged else ""
    assumed = _list("Assumed here", experiment.assumptions)
    return (
        f"<section class='experiment' id='{experiment.id}'><h2>{escape(experiment.title)}</h2>"
        f"{about}<div class='finding'>{escape(told)}</div>{figures}{claims}{assumed}"
        f"{_missing(rows)}{_table(experiment, rows)}</section>"
    )


def _figure(drawing: Drawing, number: int, pictures: Mapping[str, bytes]) -> str:
    picture = base64.b64encode(pictures[drawing.name]).decode()
    sources = "".join(f" <span class='dim'>{escape(each)}.</span>" for each in drawing.sources)
    return (
        f"<figure><div class='plot'>{study_plot(drawing)}</div>"
        f"<img class='static' alt='{escape(drawing.caption, quote=True)}' "
        f"src='data:image/svg+xml;base64,{picture}'>"
        f"<figcaption><b>Figure {number}.</b> {escape(drawing.caption)}{sources}</figcaption>"
        "</figure>"
    )


def _table(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The points behind the figures: what varies, then the metrics, folded away."""
    axes = varying(rows)
    metrics = [METRICS[name] for name in experiment.shown]
    searched = any(row.strategy for row in rows)
    heads = [f"<th>{escape(AXES[name].label)}</th>" for name in axes]
    heads += ["<th>runs as</th>"] if searched else []
    heads += [f"<th class='number'>{escape(each.label)}</th>" for each in metrics]
    lines = []
    for row in rows[:MOST_ROWS]:
        cells = [
            f"<td>{escape(AXES[n].show(row.axes[n]) if n in row.axes else '')}</td>" for n in axes
        ]
        cells += [f"<td>{escape(row.strategy)}</td>"] if searched else []
        if row.feasible:
            cells += [
                f"<td class='number'>{escape(each.show(row.metrics.get(each.name)))}</td>"
                for each in metrics
            ]
        else:
            cells.append(
                f"<td colspan='{len(metrics)}' class='dim'>{escape(row.infeasible or '')}</td>"
            )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    more = f"; the first {MOST_ROWS}" if len(rows) > MOST_ROWS else ""
    return (
        f"<details><summary>The table behind it: {len(rows):,} points{more}</summary>"
        f"<div class='scroll'><table><thead><tr>{''.join(heads)}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _missing(rows: Sequence[Row]) -> str:
    """Why points are missing, by kind of reason, each with an example."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row.infeasible is not None:
            kinds.setdefault(row.infeasible.partition(":")[0], []).append(row)
    if not kinds:
        return ""
    told = []
    for found in kinds.values():
        row = found[0]
        count = "1 point" if len(found) == 1 else f"{len(found):,} points"
        name = str(row.axes.get("strategy", ""))
        size = row.axes.get("accelerators", 0)
        told.append(f"{count}, for example {name} on {size:,}: {row.infeasible}")
    return _list("Cannot run", told)


def _assumptions(answer: Answer, names: Mapping[str, str]) -> str:
    parts = "".join(
        f"<dt><b>{escape(part)}</b></dt>"
        + "".join(f"<dd class='small'>{escape(each)}</dd>" for each in sentences)
        for part, sentences in answer.provenance.items()
    )
    warnings = [
        f"{sentence} ({', '.join(_number(names[each]) for each in where)})"
        for sentence, where in answer.warnings.items()
    ]
    return (
        "<section id='assumptions'><h2>Assumptions and calibrations</h2>"
        + _list("Assumed throughout", answer.study.assumptions)
        + (f"<h3>Where the numbers come from</h3><dl>{parts}</dl>" if parts else "")
        + _list("To know before trusting a point (experiments in brackets)", warnings)
        + "</section>"
    )


def _reproduce(answer: Answer, command: str, fingerprint: str) -> str:
    marked = f", physics and constants {escape(fingerprint)}" if fingerprint else ""
    return (
        "<section id='reproduce'><h2>Reproduce</h2>"
        f"<p>scalewise {__version__}{marked}. Beside this page: all points as points.csv (and "
        "points.parquet), each figure as SVG and PNG in figures/, the study as study.toml.</p>"
        f"<pre>{escape(command)}</pre>"
        f"<details><summary>The study file</summary><pre>{escape(answer.study.text)}</pre>"
        "</details></section>"
    )


def _list(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in lines)
    return f"<h3>{escape(heading)}</h3><ul class='small'>{items}</ul>"
