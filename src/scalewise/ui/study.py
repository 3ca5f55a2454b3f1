"""The study view: shipped studies, their verdicts and figures.

listing()["studies"][0]["name"]
study_answer(StudyRequest(name="what-to-buy"))["verdicts"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.report.draw_plotly import plotly_figure
from scalewise.report.study_figure import study_figure
from scalewise.report.study_words import findings
from scalewise.study.files import Experiment, load_study, shipped
from scalewise.study.overlays import marks_of
from scalewise.study.plan import plan, reduced
from scalewise.study.run import Answer, run_study
from scalewise.ui.requests import StudyRequest

if TYPE_CHECKING:
    from scalewise.report.figure import Figure
    from scalewise.study.rows import Row
    from scalewise.study.run import Runner

MAX_ROWS = 400
"""Rows of one experiment's table."""


def listing() -> dict[str, Any]:
    """The shipped studies, with what each of them asks."""
    lines = []
    for name in shipped():
        study = load_study(name)
        lines.append(
            {
                "name": name,
                "title": study.title,
                "question": study.question,
                "experiments": len(study.experiments),
                "claims": sum(len(each.claims) for each in study.experiments),
                "points": sum(len(plan(each)) for each in study.experiments),
                "quick_points": sum(len(plan(each)) for each in reduced(study).experiments),
            }
        )
    return {"studies": lines}


def study_answer(request: StudyRequest, runner: Runner | None = None) -> dict[str, Any]:
    """Run a study.

    Args:
        request: Which, and how much of it.
        runner: Computes its points; by default one after the other.

    Raises:
        InputError: If there is no such study.
    """
    if request.name not in shipped():
        raise InputError(
            f"there is no study `{request.name}`", hint=did_you_mean(request.name, shipped())
        )
    study = load_study(request.name)
    if request.quick:
        study = reduced(study)

    answer = run_study(study, runner)
    return {
        "name": request.name,
        "quick": request.quick,
        "title": study.title,
        "question": study.question,
        "source": study.source,
        "seconds": answer.seconds,
        "verdicts": [
            {
                "experiment": each.experiment,
                "statement": each.claim.statement,
                "source": each.claim.source,
                "verdict": each.verdict,
                "ours": each.ours,
                "theirs": each.theirs,
                "why": each.why,
            }
            for each in answer.verdicts
        ],
        "experiments": [_experiment(each, answer) for each in study.experiments],
        "warnings": answer.warnings,
        "assumptions": list(study.assumptions),
    }


def _figure(experiment: Experiment, number: int, rows: list[Row]) -> dict[str, Any] | None:
    """One figure, as Plotly's own JSON."""
    figure = study_figure(experiment, number, rows, marks_of(experiment, rows))
    if not figure.panels:
        return None
    return {"caption": experiment.figures[number].caption} | drawn(figure)


def drawn(figure: Figure) -> dict[str, Any]:
    """A figure of a report, as Plotly's own JSON."""
    plain: dict[str, Any] = msgspec.json.decode(plotly_figure(figure).to_json())
    plain["layout"].pop("template", None)
    return {"name": figure.name, "data": plain["data"], "layout": plain["layout"]}


def _experiment(experiment: Experiment, answer: Answer) -> dict[str, Any]:
    rows = answer.of(experiment)
    try:
        says = findings(experiment, rows)
    except (ValueError, KeyError, IndexError):
        # A quick look may leave a figure without the points its sentence is about.
        says = []
    return {
        "id": experiment.id,
        "title": experiment.title,
        "about": experiment.about,
        "figures": [
            figure
            for number in range(len(experiment.figures))
            if (figure := _figure(experiment, number, rows)) is not None
        ],
        "findings": says,
        "metrics": list(experiment.shown),
        "rows": [
            {
                "axes": row.axes,
                "metrics": row.metrics,
                "strategy": row.strategy,
                "infeasible": row.infeasible,
            }
            for row in rows[:MAX_ROWS]
        ],
        "left_out": max(len(rows) - MAX_ROWS, 0),
    }
