"""The scale view over any quantity: curves or a map, with knees, crossovers and causes.

answer = over_answer(OverRequest(over=("seq=4096..65536",)))
answer["series"][0]["cells"][-1]["point"]["mfu"], answer["words"]["best"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.ask.axes import parse_over
from scalewise.ask.over import over
from scalewise.errors import InputError
from scalewise.report import over_words
from scalewise.report.over_files import over_dict
from scalewise.ui.inputs import inputs
from scalewise.ui.requests import OverRequest, no_files

if TYPE_CHECKING:
    from scalewise.explore.axis import Sweep
    from scalewise.explore.scale import Run

MAX_TASKS = 120
"""Points of one answer."""


def over_answer(request: OverRequest, run: Run | None = None) -> dict[str, Any]:
    """Draw the curves or the map.

    Args:
        request: What is asked.
        run: Answers the tasks; by default one after the other.

    Raises:
        InputError: If a word is not understood, or there are too many points.
    """
    question = request.question
    quantities = [parse_over(text) for text in request.over]
    count = len(set(request.templates))
    for each in quantities:
        count *= len(each.axis.texts)
        for place in range(len(each.axis.texts)):
            no_files(each.put(msgspec.structs.replace(question, strategy="fsdp"), place))
    if count > MAX_TASKS:
        raise InputError(
            f"over: {count:,} points are too many for one answer",
            hint=f"at most {MAX_TASKS}: fewer values or strategies",
            field="over",
        )
    tokens = inputs(question).workload.tokens
    asked = msgspec.structs.replace(
        question,
        strategy=",".join(dict.fromkeys(each.strip() for each in request.templates)),
        tokens=question.tokens or tokens,
    )
    with np.errstate(all="ignore"):
        found = over(asked, request.over, run=run)
    sweep = found.sweep
    answer = over_dict(found, share=request.knee)
    for plain, axis in zip(answer["axes"], sweep.axes, strict=True):
        plain["shown"] = [axis.show(place) for place in range(len(axis.texts))]
    for plain, series in zip(answer["series"], sweep.series, strict=True):
        plain["name"] = sweep.name(series)
        for cell in plain["cells"]:
            if cell["point"] is not None:
                cell["point"].pop("terms")
    return {
        **answer,
        "title": over_words.title(found),
        "tokens": tokens,
        "words": words(sweep, request.knee),
    }


def words(sweep: Sweep, knee: float) -> dict[str, list[str]]:
    """What the curves say, in sentences."""
    lines = {
        "best": over_words.best_lines(sweep),
        "knees": [over_words.knee_line(sweep, knee)],
        "crossovers": [over_words.crossover_line(sweep)],
        "causes": [over_words.cause_line(sweep)],
        "strategies": over_words.strategy_lines(sweep),
        "missing": over_words.missing_lines(sweep),
    }
    return {name: [text for text in texts if text] for name, texts in lines.items()}
