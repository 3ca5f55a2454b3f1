"""Which questions does the server answer? One endpoint for each, JSON in, JSON out.

    POST /api/estimate  {"model": "llama 2 7b", "gpus": "256"}
    POST /api/search    {"question": {...}, "by": "energy"}      # NDJSON with progress if asked for

Every endpoint is a struct that says what may be asked and a function that answers it; routes,
checks and the OpenAPI description are made from this table. Errors are {error, hint, field}.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.ui import answers, assumptions, curves, found, lookup, nearest
from scalewise.ui.nouns import resolve
from scalewise.ui.requests import Question, ScaleRequest, SearchRequest, StudyRequest
from scalewise.ui.work import Stopped, Ticket, Workers, check, chunks

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run

QUICK, LONG = 120.0, 900.0
"""Seconds after which an answer is given up: of small questions, and of searches."""


@dataclass(kw_only=True)
class Context:
    """What endpoints share."""

    workers: Workers
    own: list[Run] = field(default_factory=list)
    """The user's own runs, never mixed with the published ones."""
    index: nearest.Index | None = None
    """Where the measured runs lie, once they were read."""
    evidence: Future[bytes] | None = None
    """Predictions of all of them, under way since the server started."""
    predicted: float = 0.0
    """How much of that is done, 0 to 1."""
    closing: bool = False
    """Whether the server is about to end."""

    @cached_property
    def own_index(self) -> nearest.Index:
        """Where the user's own runs lie."""
        return nearest.Index(nearest.places_of(self.own), self.own)

    @cached_property
    def own_rows(self) -> list[dict[str, Any]]:
        """Verdicts on the user's own runs."""
        return [nearest.evidence_row(run) for run in self.own]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One question."""

    path: str
    words: str
    """What it answers."""
    answer: Callable[[Any, Ticket, Context], Any]
    request: type[msgspec.Struct] | None = Question
    """What may be asked; None for a GET without arguments."""
    seconds: float = QUICK
    """How long it may take."""
    cached: bool = True
    media: str = "application/json"
    """What the answer is."""


def _estimate(request: Question, ticket: Ticket, context: Context) -> Any:
    del ticket, context
    return answers.estimate_answer(request)


def _index(ticket: Ticket, context: Context) -> nearest.Index:
    if context.index is None:
        context.index = nearest.Index(ticket.run(nearest.places))
    return context.index


def _nearest(request: Question, ticket: Ticket, context: Context) -> Any:
    return nearest.nearest(_index(ticket, context), resolve(request).estimate)


def _overlay(request: Question, ticket: Ticket, context: Context) -> Any:
    e = resolve(request).estimate
    told = nearest.overlay(_index(ticket, context), e)
    found = ticket.run(nearest.errors, [run["row"] for run in told["runs"]])
    for run, error in zip(told["runs"], found, strict=True):
        run["error"] = error
    own = nearest.overlay(context.own_index, e)["runs"]
    for run in own:
        run["error"] = context.own_rows[run["row"]]["error"]
    return {**told, "bias": nearest.bias(found), "own": own, "own_count": len(context.own)}


def _scale(request: ScaleRequest, ticket: Ticket, context: Context) -> Any:
    del context

    def run(tasks: Any, function: Any) -> Any:
        return ticket.map(function if request.every else curves.quick, tasks)

    return curves.scale_answer(request, run)


def _search_job(request: SearchRequest, slot: int) -> bytes:
    answer = found.search_answer(request, functools.partial(check, slot))
    return msgspec.json.encode(answer)


def _search(request: SearchRequest, ticket: Ticket, context: Context) -> Any:
    del context
    return msgspec.Raw(ticket.run(_search_job, request, ticket.slot))


def _evidence(request: None, ticket: Ticket, context: Context) -> Any:
    del request
    if context.evidence is None:
        return msgspec.Raw(predict_runs(context))
    while not context.evidence.done():
        if ticket.stopped:
            raise Stopped("stopped")
        context.workers.done[ticket.slot] = context.predicted
        wait([context.evidence], timeout=0.1)
    return msgspec.Raw(context.evidence.result())


def predict_runs(context: Context) -> bytes:
    """Predict every shipped run, a few at a time: whoever waits for something else goes first."""
    rows: list[dict[str, Any]] = []
    ticket = context.workers.ticket()
    try:
        for part in chunks(len(nearest.runs()), 24):
            if context.closing:
                raise Stopped("stopped")
            rows += ticket.run(_evidence_part, part)
            context.predicted = len(rows) / len(nearest.runs())
    finally:
        context.workers.close_ticket(ticket)
    return msgspec.json.encode({"rows": rows, "own": context.own_rows})


def _evidence_part(part: tuple[int, int]) -> list[dict[str, Any]]:
    return nearest.evidence_rows(*part)


def _timeline(request: Question, ticket: Ticket, context: Context) -> Any:
    del context
    from scalewise.ui import steps

    return msgspec.Raw(ticket.run(steps.timeline_json, request))


def _trace(request: Question, ticket: Ticket, context: Context) -> Any:
    del context
    from scalewise.ui import steps

    return ticket.run(steps.trace_file, request)


def _study(request: StudyRequest, ticket: Ticket, context: Context) -> Any:
    del context
    from scalewise.ui import studies

    return studies.study_answer(request, ticket)


def _studies(request: None, ticket: Ticket, context: Context) -> Any:
    del request, ticket, context
    from scalewise.ui import studies

    return studies.listing()


def _catalog(request: None, ticket: Ticket, context: Context) -> Any:
    del request, ticket, context
    return lookup.listing()


def _plain(function: Callable[[Question], Any]) -> Callable[[Any, Ticket, Context], Any]:
    def answer(request: Question, ticket: Ticket, context: Context) -> Any:
        del ticket, context
        return function(request)

    return answer


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(path="/api/estimate", words="What one step costs.", answer=_estimate),
    Endpoint(path="/api/fits", words="What fits next.", answer=_plain(answers.fits_answer)),
    Endpoint(
        path="/api/explain",
        words="Every number with formula, inputs and source.",
        answer=_plain(answers.explain_answer),
    ),
    Endpoint(
        path="/api/nearest",
        words="The nearest measured runs, and a grade.",
        answer=_nearest,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/overlay",
        words="Measured runs to draw beside a curve.",
        answer=_overlay,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/assumptions",
        words="Every constant, its source, and what it moves.",
        answer=_plain(assumptions.assumptions_answer),
    ),
    Endpoint(
        path="/api/sensitivity",
        words="What the next upgrade buys.",
        answer=_plain(assumptions.sensitivity_answer),
    ),
    Endpoint(
        path="/api/scale",
        words="Curves over sizes, with knees, crossovers and causes.",
        answer=_scale,
        request=ScaleRequest,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/search",
        words="Every strategy, ranked.",
        answer=_search,
        request=SearchRequest,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/timeline",
        words="One step, event by event.",
        answer=_timeline,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/trace",
        words="The same as a file for Perfetto.",
        answer=_trace,
        seconds=LONG,
        media="application/gzip",
    ),
    Endpoint(
        path="/api/study",
        words="Run one of the shipped studies.",
        answer=_study,
        request=StudyRequest,
        seconds=LONG,
    ),
    Endpoint(
        path="/api/evidence",
        words="Predicted against measured: every shipped run, and your own apart from them.",
        answer=_evidence,
        request=None,
        seconds=LONG,
    ),
    Endpoint(path="/api/studies", words="The shipped studies.", answer=_studies, request=None),
    Endpoint(
        path="/api/catalog", words="Everything that can be chosen.", answer=_catalog, request=None
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
            **dict.fromkeys(("400", "401", "403", "413", "415", "503"), refused),
        }
        told: dict[str, Any] = {"summary": each.words, "responses": responses}
        if each.request is not None:
            schema = {"$ref": f"#/components/schemas/{each.request.__name__}"}
            told["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema}},
            }
        paths[each.path] = {"get" if each.request is None else "post": told}
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
