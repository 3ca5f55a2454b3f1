"""Page of a study: verdicts first, then figure by figure; works offline and prints.

    study_page(answer, figures, pictures)         # needs the extra `plot`

On paper, and where scripts do not run, the figures are still pictures.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from scalewise._version import __version__
from scalewise.metrics import METRICS
from scalewise.report.draw_plotly import plot
from scalewise.report.figure import Figure
from scalewise.report.page import bullets, details, heading, lead, note, page, table
from scalewise.report.study_words import findings
from scalewise.study.claims import Judged, Verdict
from scalewise.study.files import Experiment
from scalewise.study.measures import AXES
from scalewise.study.plan import THIS_MACHINE
from scalewise.study.rows import Row, varying
from scalewise.study.run import Answer

MAX_ROWS = 400
"""Rows of one table on the page; the files beside it have all."""

_CLASSES: dict[Verdict, str] = {
    "holds": "yes",
    "holds with a difference": "partly",
    "does not hold": "no",
    "not told apart": "partly",
    "not judged": "none",
}

_HEAD = """<style>
h2 { padding-top: .8rem; border-top: 1px solid #ddd; margin-top: 2.4rem }
.finding { background: #f4f6f8; border-left: 4px solid #0072b2; padding: .5rem .9rem;
  margin: .8rem 0 }
table.verdicts { table-layout: fixed; width: 100% } table.verdicts td { overflow-wrap: break-word }
.w0 { width: 2.4rem } .w1 { width: 32% } .w2 { width: 11% } .w4 { width: 8.6rem }
.chip { display: inline-block; border: 1px solid; border-radius: .3rem; padding: .05rem .5rem;
  font-size: .82rem; font-weight: 600; line-height: 1.25 }
.yes { background: #e3f4ee; color: #00543d; border-color: #009e73 }
.partly { background: #fdf3dc; color: #6a4700; border-color: #e69f00 }
.no { background: #fbe6da; color: #7d3000; border-color: #d55e00 }
.none { background: #eee; color: #444; border-color: #999 }
.counts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0 }
.count { border: 1px solid; border-radius: .5rem; padding: .5rem 1rem; min-width: 9rem }
.count b { display: block; font-size: 1.7rem; line-height: 1.1 }
nav ol { columns: 2; font-size: .92rem; list-style: none; padding: 0 }
@media print {
  .plot, nav, details, .claims { display: none } .static { display: block }
  section.experiment { break-before: page } .finding { break-inside: avoid }
  a { color: inherit; text-decoration: none } .chip, .count { print-color-adjust: exact }
}
</style><noscript><style>.plot { display: none } .static { display: block }</style></noscript>"""


def study_page(
    answer: Answer,
    figures: Mapping[str, Sequence[Figure]],
    pictures: Mapping[str, bytes],
    *,
    command: str = "",
    fingerprint: str = "",
) -> str:
    """Return a study as one self-contained page.

    Args:
        answer: The answer.
        figures: Figures by experiment.
        pictures: SVG by name of the figure, for paper.
        command: Command that reproduces it.
        fingerprint: Hash of the physics and the constants.
    """
    study = answer.study
    names = {each.id: each.title for each in study.experiments}
    links = [*names.items(), ("assumptions", "Assumptions"), ("reproduce", "Reproduce")]
    contents = "".join(f"<li><a href='#{i}'>{escape(name)}</a></li>" for i, name in links)
    return page(
        study.title,
        lead(study.question),
        note(f"Source: {study.source}" if study.source else ""),
        note(_origin(answer)),
        _summary(answer, names),
        f"<nav><h3>Contents</h3><ol>{contents}</ol></nav>",
        *(_section(each, answer, figures[each.id], pictures) for each in study.experiments),
        _assumptions(answer, names),
        _reproduce(answer, command, fingerprint),
        head=_HEAD,
    )


def _origin(answer: Answer) -> str:
    """Return what is predicted and what is measured, and on which machine."""
    text = (
        f"Predicted by scalewise {__version__}, not measured, unless marked as published or "
        "measured."
    )
    if answer.measured is None:
        return text
    found = answer.measured.found
    where = f"{len(found.rows):,} points measured on {found.machine}."
    if len(answer.unpredicted) < len(answer.study.experiments):
        return f"{text} {where}"
    return (
        f"{where} Nothing is predicted: the catalog has no calibration {THIS_MACHINE} of this "
        "machine."
    )


def _summary(answer: Answer, names: Mapping[str, str]) -> str:
    """Return how many claims got each verdict, then claim by claim."""
    infeasible = sum(not row.feasible for row in answer.rows)
    counted = note(
        f"{len(answer.rows):,} points in {len(answer.study.experiments)} experiments; "
        f"{infeasible:,} of them are infeasible, each with its reason below."
    )
    if not answer.verdicts:
        text = "".join(
            f"<li><a href='#{each.id}'>{escape(each.title)}</a>: "
            f"{escape(' '.join(findings(each, answer.of(each))))}</li>"
            for each in answer.study.experiments
        )
        return f"{heading('Summary')}<ul>{text}</ul>{counted}"
    measured = [] if answer.measured is None else answer.measured.verdicts
    boxes = _boxes(answer.verdicts, "predicted: " if measured else "")
    boxes += _boxes(measured, "measured: ")
    rule = note(
        "A claim holds if the predicted number is within its tolerance (10% unless stated) or "
        "bound. It holds with a difference if direction and order of magnitude agree (a factor of "
        "3), or if the order is a tie. Otherwise it does not hold. See the assumptions before "
        "counting."
    )
    if measured:
        rule += note(
            "Measured numbers follow the same rules at both ends of their 95% interval, from "
            "repeats. A claim that holds at one end and fails at the other is not told apart."
        )
    verdicts = _verdicts(answer.verdicts, names, measured)
    return f"{heading('Summary')}<div class='counts'>{boxes}</div>{verdicts}{rule}{counted}"


def _boxes(verdicts: Iterable[Judged], label: str) -> str:
    """Return one box for each verdict, with its count."""
    tally = Counter(each.verdict for each in verdicts)
    return "".join(
        f"<div class='count {css}'><b>{tally[verdict]}</b>{escape(label + verdict)}</div>"
        for verdict, css in _CLASSES.items()
        if tally[verdict]
    )


def _verdicts(
    verdicts: Iterable[Judged], names: Mapping[str, str] | None, measured: Sequence[Judged] = ()
) -> str:
    """Return the table of claims; with the numbers of their experiments if names are given.

    Args:
        verdicts: Of the predictions.
        names: Titles by experiment, or None.
        measured: Of the measurements, in the same order; none without records.
    """
    rows = []
    for number_of_claim, each in enumerate(verdicts):
        place = ""
        if names is not None:
            number = escape(_number(names[each.experiment]))
            place = f"<td><a href='#{each.experiment}'>{number}</a></td>"
        both = [each, *measured[number_of_claim : number_of_claim + 1]]
        cells = "".join(
            f"<td><b>{escape(judged.ours)}</b></td>"
            f"<td><span class='chip {_CLASSES[judged.verdict]}'>{escape(judged.verdict)}</span>"
            "</td>"
            for judged in both
        )
        why = " ".join(dict.fromkeys(judged.why for judged in both if judged.why))
        rows.append(
            f"<tr>{place}<td>{escape(each.claim.statement)}"
            f"<div class='dim small'>{escape(each.claim.source)}</div></td>"
            f"<td>{escape(each.theirs)}</td>{cells}<td class='small'>{escape(why)}</td></tr>"
        )
    head = "<th class='w0'></th>" if names is not None else ""
    return (
        f"<table class='verdicts'><thead><tr>{head}<th class='w1'>claim</th>"
        "<th class='w2'>published</th><th class='w2'>predicted</th><th class='w4'>verdict</th>"
        + ("<th class='w2'>measured</th><th class='w4'>verdict</th>" if measured else "")
        + "<th>reason</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _number(title: str) -> str:
    """Return the number before a title, or the title itself."""
    number, dot, _ = title.partition(".")
    return number if dot and len(number) <= 4 else title


def _section(
    experiment: Experiment,
    answer: Answer,
    figures: Sequence[Figure],
    pictures: Mapping[str, bytes],
) -> str:
    """Return one experiment: finding, figures, claims, reasons and table."""
    rows = answer.drawn(experiment)
    about = f"<p>{escape(experiment.about)}</p>" if experiment.about else ""
    text = escape(" ".join(findings(experiment, rows)))
    drawn = "".join(_figure(each, place + 1, pictures) for place, each in enumerate(figures))
    judged = [each for each in answer.verdicts if each.experiment == experiment.id]
    measured = [
        each
        for each in (answer.measured.verdicts if answer.measured is not None else ())
        if each.experiment == experiment.id
    ]
    table_of = _verdicts(judged, None, measured)
    claims = f"<div class='claims'><h3>Claims</h3>{table_of}</div>" if judged else ""
    return (
        f"<section class='experiment' id='{experiment.id}'>{heading(experiment.title)}{about}"
        f"<div class='finding'>{text}</div>{drawn}{claims}"
        f"{bullets('Assumptions', experiment.assumptions, level=3)}"
        f"{bullets('Infeasible points', _infeasible(rows), level=3)}"
        f"{_table(experiment, rows)}</section>"
    )


def _figure(figure: Figure, number: int, pictures: Mapping[str, bytes]) -> str:
    """Return a figure twice: as a plot, and as a picture for paper."""
    picture = base64.b64encode(pictures[figure.name]).decode()
    sources = "".join(f" <span class='dim'>{escape(each)}.</span>" for each in figure.sources)
    return (
        f"<figure><div class='plot'>{plot(figure)}</div>"
        f"<img class='static' alt='{escape(figure.caption, quote=True)}' "
        f"src='data:image/svg+xml;base64,{picture}'>"
        f"<figcaption><b>Figure {number}.</b> {escape(figure.caption)}{sources}</figcaption>"
        "</figure>"
    )


def _table(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return the points behind the figures: axes that vary, then metrics."""
    axes = varying(rows)
    metrics = [METRICS[name] for name in experiment.shown]
    searched = any(row.strategy for row in rows)
    heads = [AXES[name].label for name in axes] + ["runs as"] * searched
    text = range(len(heads))
    cells = []
    for row in rows[:MAX_ROWS]:
        line = [AXES[name].show(row.axes[name]) if name in row.axes else "" for name in axes]
        line += [row.strategy] * searched
        if row.feasible:
            line += [metric.show(row.metrics.get(metric.name)) for metric in metrics]
        else:
            line.append(row.infeasible or "")
        cells.append(line)
    more = f"; the first {MAX_ROWS}" if len(rows) > MAX_ROWS else ""
    columns = [*heads, *(metric.axis for metric in metrics)]
    return details(f"Table of {len(rows):,} points{more}", table(columns, cells, text=text))


def _infeasible(rows: Sequence[Row]) -> list[str]:
    """Return the reasons of infeasible points by kind, each with an example."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row.infeasible is not None:
            kinds.setdefault(row.infeasible.partition(":")[0], []).append(row)
    lines = []
    for found in kinds.values():
        row = found[0]
        count = "1 point" if len(found) == 1 else f"{len(found):,} points"
        name, size = row.axes.get("strategy", ""), row.axes.get("accelerators", 0)
        lines.append(f"{count}, for example {name} on {size:,} GPUs: {row.infeasible}")
    return lines


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
        f"<section id='assumptions'>{heading('Assumptions')}"
        + bullets("Assumptions of the study", answer.study.assumptions, level=3)
        + (f"<h3>Sources of the numbers</h3><dl>{parts}</dl>" if parts else "")
        + bullets("Warnings, with their experiments", warnings, level=3)
        + bullets(
            "Measurements", [] if answer.measured is None else answer.measured.found.notes, level=3
        )
        + "</section>"
    )


def _reproduce(answer: Answer, command: str, fingerprint: str) -> str:
    marked = f", physics and constants {fingerprint}" if fingerprint else ""
    measured = ", measured points as measured.csv" if answer.measured is not None else ""
    return (
        f"<section id='reproduce'>{heading('Reproduce')}"
        f"<p>scalewise {__version__}{escape(marked)}. Beside this page: all points as points.csv "
        f"(and points.parquet){measured}, each figure as SVG and PNG in figures/, the study as "
        "study.toml.</p>"
        f"<pre>{escape(command)}</pre>"
        + details("Study file", f"<pre>{escape(answer.study.text)}</pre>")
        + "</section>"
    )
