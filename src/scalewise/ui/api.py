"""The API of the web UI: `ask(path, body) -> bytes`, a pure function.

    ask("/api/estimate", b'{"model": "llama 2 7b", "gpus": 256}')
    ask("/api/search", b'{"question": {}, "by": "energy"}')

Every endpoint is a struct that says what may be asked and a function that answers it; routes,
checks and the OpenAPI description derive from this table. No process, file of the user or token is
involved: the server calls `ask`, in a thread or in a worker, and so can whatever has no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from scalewise.ask.question import Question
from scalewise.errors import InputError, ScalewiseError, did_you_mean
from scalewise.ui import assumptions, catalog, estimate, nearest, over, scale, search
from scalewise.ui.inputs import resolve
from scalewise.ui.requests import (
    OverRequest,
    PlanRequest,
    QueueRequest,
    ScaleRequest,
    SearchRequest,
    StudyRequest,
    decode,
)

QUICK, LONG = 120.0, 900.0
"""Seconds after which an answer is given up: of small questions, and of searches."""

Lane = Literal["here", "quick", "long"]
"""In a thread of the server: lookups, and what needs the runs it knows. In a worker that does
nothing else: milliseconds. In a worker that may be busy for minutes: searches, curves, events."""

Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is; may raise to stop."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One question."""

    path: str
    words: str
    """What it answers."""
    answer: Callable[[Any, Progress], Any]
    """From the request to what is encoded; bytes are sent as they are."""
    request: type[msgspec.Struct] | None = Question
    """What may be asked; None for a GET without arguments."""
    lane: Lane = "quick"
    """Where it is computed."""
    places: bool = False
    """Whether it needs to know where the measured runs lie, which takes seconds to lay out."""
    media: str = "application/json"
    """What the answer is."""

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return LONG if self.lane == "long" else QUICK


def ask(path: str, body: bytes, progress: Progress | None = None) -> bytes:
    """Answer a request.

    Args:
        path: Of an endpoint.
        body: JSON of its request; empty for none.
        progress: Told how far a long answer is.

    Raises:
        InputError: If there is no such endpoint, or a word is not understood.
    """
    known = {each.path: each for each in ENDPOINTS}
    if path not in known:
        raise InputError(f"there is no {path[:80]}", hint=did_you_mean(path, known))
    endpoint = known[path]
    request = None if endpoint.request is None else decode(body, endpoint.request)
    answer = endpoint.answer(request, progress or _silent)
    return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)


def _silent(done: int, size: int) -> None:
    del done, size


def _plain(function: Callable[[Any], Any]) -> Callable[[Any, Progress], Any]:
    """An endpoint that is answered in milliseconds."""

    def answer(request: Any, progress: Progress) -> Any:
        del progress
        return function(request)

    return answer


def _nearest(request: Question) -> Any:
    return nearest.nearest(nearest.index(), resolve(request).estimate)


def _overlay(request: Question) -> Any:
    answer = nearest.overlay(nearest.index(), resolve(request).estimate)
    found = nearest.errors([run["row"] for run in answer["runs"]])
    for run, error in zip(answer["runs"], found, strict=True):
        run["error"] = error
    return {**answer, "bias": nearest.bias(found), "own": [], "own_count": 0}


def _one_by_one(progress: Progress) -> Callable[..., Iterator[tuple[int, Any]]]:
    """A runner of tasks that tells how far it is."""

    def run(
        tasks: Iterable[Any], function: Callable[[Any], Any], result_type: Any = None
    ) -> Iterator[tuple[int, Any]]:
        del result_type
        listed: Sequence[Any] = list(tasks)
        for place, task in enumerate(listed):
            progress(place, len(listed))
            yield place, function(task)

    return run


def _scale(request: ScaleRequest, progress: Progress) -> Any:
    return scale.scale_answer(request, _one_by_one(progress))


def _over(request: OverRequest, progress: Progress) -> Any:
    return over.over_answer(request, _one_by_one(progress))


def _search(request: SearchRequest, progress: Progress) -> Any:
    return search.search_answer(request, progress)


def _plan(request: PlanRequest, progress: Progress) -> Any:
    from scalewise.ui import plan

    return plan.plan_answer(request, progress)


def _queue(request: QueueRequest, progress: Progress) -> Any:
    from scalewise.ui import plan

    return plan.queue_answer(request, progress)


def _timeline(request: Question) -> Any:
    from scalewise.ui import timeline

    return timeline.timeline_json(request)


def _trace(request: Question) -> Any:
    from scalewise.ui import timeline

    return timeline.trace_file(request)


def _study(request: StudyRequest, progress: Progress) -> Any:
    from scalewise.ui import study

    return study.study_answer(request, _one_by_one(progress))


def _studies(request: None) -> Any:
    del request
    from scalewise.ui import study

    return study.listing()


def _evidence(request: None, progress: Progress) -> Any:
    del request
    table = nearest.runs()
    rows = []
    for place, run in enumerate(table):
        progress(place, len(table))
        rows.append(nearest.evidence_row(run))
    return {"rows": nearest.without_degraded(rows), "own": []}


def _catalog(request: None) -> Any:
    del request
    return catalog.listing()


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        path="/api/estimate",
        words="Throughput, memory and cost of one step.",
        answer=_plain(estimate.estimate_answer),
    ),
    Endpoint(path="/api/fits", words="What fits next.", answer=_plain(estimate.fits_answer)),
    Endpoint(
        path="/api/explain",
        words="Every number with formula, inputs and source.",
        answer=_plain(estimate.explain_answer),
    ),
    Endpoint(
        path="/api/nearest",
        words="The nearest measured runs, and a grade.",
        answer=_plain(_nearest),
        lane="here",
        places=True,
    ),
    Endpoint(
        path="/api/overlay",
        words="Measured runs to draw beside a curve.",
        answer=_plain(_overlay),
        lane="here",
        places=True,
    ),
    Endpoint(
        path="/api/assumptions",
        words="Every constant, its source, and what it moves.",
        answer=_plain(assumptions.assumptions_answer),
    ),
    Endpoint(
        path="/api/sensitivity",
        words="What the next upgrade gains.",
        answer=_plain(assumptions.sensitivity_answer),
    ),
    Endpoint(
        path="/api/scale",
        words="Curves over sizes, with knees, crossovers and causes.",
        answer=_scale,
        request=ScaleRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/over",
        words="Curves or a map over any quantity.",
        answer=_over,
        request=OverRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/search",
        words="Every strategy, ranked.",
        answer=_search,
        request=SearchRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/plan",
        words="Whole runs against a deadline and a budget.",
        answer=_plan,
        request=PlanRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/queue",
        words="A calendar of several runs on one cluster.",
        answer=_queue,
        request=QueueRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/timeline",
        words="One step, event by event.",
        answer=_plain(_timeline),
        lane="long",
    ),
    Endpoint(
        path="/api/trace",
        words="The same as a file for Perfetto.",
        answer=_plain(_trace),
        lane="long",
        media="application/gzip",
    ),
    Endpoint(
        path="/api/study",
        words="Run one of the shipped studies.",
        answer=_study,
        request=StudyRequest,
        lane="long",
    ),
    Endpoint(
        path="/api/evidence",
        words="Predicted against measured: every shipped run, and your own apart from them.",
        answer=_evidence,
        request=None,
        lane="long",
    ),
    Endpoint(
        path="/api/studies",
        words="The shipped studies.",
        answer=_plain(_studies),
        request=None,
        lane="here",
    ),
    Endpoint(
        path="/api/catalog",
        words="Everything that can be chosen.",
        answer=_plain(_catalog),
        request=None,
        lane="here",
    ),
)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """What an error says."""

    error: str
    """One sentence that names the field."""
    hint: str | None = None
    """What to try next."""
    field: str | None = None
    """Field of the request, where one is to blame."""


def refusal(error: ScalewiseError) -> Refusal:
    """An error as the page shows it."""
    where = getattr(error, "field", None)
    return Refusal(error=str(error), hint=error.hint, field=where)


def openapi(version: str) -> dict[str, Any]:
    """The description of all endpoints, OpenAPI 3.1."""
    structs = [each.request for each in ENDPOINTS if each.request is not None] + [Refusal]
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    refused = {
        "description": "Refused, with the reason.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
    }
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        responses = {
            "200": {
                "description": each.words,
                "content": {
                    each.media: {"schema": {"type": "object"}}
                    if each.media == "application/json"
                    else {}
                },
            },
            **dict.fromkeys(("400", "401", "403", "408", "413", "415", "500", "503"), refused),
        }
        answer: dict[str, Any] = {"summary": each.words, "responses": responses}
        if each.request is not None:
            schema = {"$ref": f"#/components/schemas/{each.request.__name__}"}
            answer["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema}},
            }
        paths[each.path] = {"get" if each.request is None else "post": answer}
    return {
        "openapi": "3.1.0",
        "info": {"title": "scalewise", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "x-scalewise-token"}
            },
        },
        "security": [{"token": []}],
    }
