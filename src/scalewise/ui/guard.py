"""The gate in front of every request: host names, other sites, sizes, security headers.

    app = Guard(app, hosts=local_hosts(8765), exposed=False)

A browser can be made to send requests here by any page it shows, and a name can be made to point
here by whoever owns it. Host and Origin tell both apart from our own page; the token, which
`server` checks, is what other programs and users of this machine do not have.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from starlette.responses import Response

MAX_BODY = 64 * 1024
"""Bytes of a request."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Scripts of this server only; Plotly writes style attributes, which hold no script."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    # Perfetto's page is opened and handed the trace, nothing else.
    "cross-origin-opener-policy": "same-origin-allow-popups",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

Scope = Any
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Guard:
    """Checks Host, Origin and size before anything else, and adds the headers of safety."""

    def __init__(self, app: App, *, hosts: Sequence[str], exposed: bool) -> None:
        self.app, self.hosts, self.exposed = app, frozenset(hosts), exposed

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def safely(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in present
                    ),
                ]
            await send(message)

        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        problem = self._problem(headers)
        if problem is not None:
            status, text = problem
            response = json_response({"error": text, "hint": None, "field": None}, status)
            refusing(response)
            await response(scope, receive, safely)
            return
        await self.app(scope, receive, safely)

    def _problem(self, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._allowed(host):
            return 403, f"this server does not answer to the name {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "requests of other sites are not answered"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 10 or int(length) > MAX_BODY:
            return 413, f"a request may have {MAX_BODY:,} bytes"
        return None

    def _allowed(self, host: str) -> bool:
        if host in self.hosts:
            return True
        # An address of digits cannot be made to point elsewhere, which names can.
        return self.exposed and _is_address(host)


def _is_address(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if host.count(":") == 1 or host.startswith("[") else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def json_response(data: Any, status: int = 200, *, media: str = "application/json") -> Response:
    """An answer that no cache keeps; what is not bytes yet is written as JSON."""
    from starlette.responses import Response

    body = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return Response(body, status, {"cache-control": "no-store"}, media)


def refusing(response: Response) -> Response:
    """Close the connection behind an answer: who may not ask does not stay."""
    response.headers["connection"] = "close"
    return response


def local_hosts(port: int) -> tuple[str, ...]:
    """The names under which a loopback server may be asked."""
    return tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
