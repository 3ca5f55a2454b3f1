"""The user's own runs in the web UI: beside the published ones, never mixed with them.

own = Own(runs)
own.added("/api/overlay", question, answer)       # the answer with dots of these runs
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ui import nearest
from scalewise.ui.inputs import resolve

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.evidence.runs import Run


class Own:
    """Measured runs of the user, and what is predicted of them."""

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.runs = list(runs)

    @cached_property
    def index(self) -> nearest.Index:
        """Where they lie."""
        return nearest.Index(nearest.places_of(self.runs), self.runs)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Verdicts on them."""
        return [nearest.evidence_row(run) for run in self.runs]

    def added(self, path: str, question: Question | None, answer: bytes) -> bytes:
        """Return an answer with these runs added, where it has a place for them.

        Args:
            path: Of the endpoint.
            question: What was asked.
            answer: Of `api.ask`.
        """
        if not self.runs or path not in ("/api/overlay", "/api/evidence"):
            return answer
        plain = msgspec.json.decode(answer)
        if path == "/api/evidence" or question is None:
            plain["own"] = self.rows
        else:
            plain["own"] = nearest.overlay(self.index, resolve(question).estimate)["runs"]
            for run in plain["own"]:
                run["error"] = self.rows[run["row"]]["error"]
            plain["own_count"] = len(self.runs)
        return msgspec.json.encode(plain)
