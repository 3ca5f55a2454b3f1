"""Connections that ask nothing: a deadline for headers, and a limit of strangers.

    config = uvicorn.Config(app, http=limited())

A connection without a request costs its owner nothing, and a server has few thousand of them.
uvicorn waits for headers without end, so 512 silent connections shut everybody out. Here a request
has to arrive within `HEADER_SECONDS` of its first byte, and a connection without a request under
way is closed for a newer one: the oldest of its address, then the oldest of all. Answers of 401 and
403 close the connection (`guard.refusing`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from scalewise.errors import require

HEADER_SECONDS = 10.0
"""From the first byte of a request, or the opening of a connection, to the end of its headers."""

MAX_IDLE = 512
"""Connections that may be open without a request under way."""

MAX_OF_ADDRESS = 64
"""Of them from one other machine; all users of this machine have one address."""

LOOPBACK = ("127.0.0.1", "::1")


class Doors:
    """The connections of one server that ask nothing yet."""

    def __init__(
        self,
        later: Callable[..., Any],
        *,
        seconds: float = HEADER_SECONDS,
        most: int = MAX_IDLE,
        most_of_address: int = MAX_OF_ADDRESS,
    ) -> None:
        """Remember the limits.

        Args:
            later: Calls a function after some seconds, as `loop.call_later`.
            seconds: For the headers of a request.
            most: Connections without a request at one time.
            most_of_address: Of one address that is not this machine.
        """
        self.later, self.seconds = later, seconds
        self.most, self.most_of_address = most, most_of_address
        self.idle: OrderedDict[Any, str] = OrderedDict()
        self.deadlines: dict[Any, Any] = {}

    def enter(self, connection: Any, address: str) -> None:
        """Let a connection in, for which an older idle one may have to leave."""
        if address not in LOOPBACK:
            same = [each for each, other in self.idle.items() if other == address]
            if len(same) >= self.most_of_address:
                self._close(same[0])
        if len(self.idle) >= self.most:
            self._close(next(iter(self.idle)))
        self.idle[connection] = address
        self.expect(connection)

    def expect(self, connection: Any) -> None:
        """Start the time for headers, unless it runs already."""
        if connection not in self.deadlines:
            self.deadlines[connection] = self.later(self.seconds, self._close, connection)

    def complete(self, connection: Any) -> None:
        """Keep a connection whose headers are there."""
        self.idle.pop(connection, None)
        deadline = self.deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()

    def answered(self, connection: Any, address: str) -> None:
        """Count a connection as idle again."""
        self.idle[connection] = address

    def leave(self, connection: Any) -> None:
        """Forget a connection."""
        self.complete(connection)

    def _close(self, connection: Any) -> None:
        self.leave(connection)
        connection.transport.abort()


def limited(**limits: Any) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with doors.

    Args:
        **limits: Of `Doors`.
    """
    auto: Any = require("uvicorn.protocols.http.auto", "ui")
    base: Any = auto.AutoHTTPProtocol
    doors: list[Doors] = []

    class Limited(base):  # type: ignore[misc]
        """One connection."""

        @property
        def _doors(self) -> Doors:
            if not doors:
                doors.append(Doors(self.loop.call_later, **limits))
            return doors[0]

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._doors.enter(self, self.client[0] if self.client else "")

        def connection_lost(self, exc: Exception | None) -> None:
            self._doors.leave(self)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._doors.complete(self)
            elif not self.transport.is_closing():
                self._doors.expect(self)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # The next request may be under way already.
            if self.cycle.response_complete and not self.transport.is_closing():
                self._doors.answered(self, self.client[0] if self.client else "")

    return Limited
