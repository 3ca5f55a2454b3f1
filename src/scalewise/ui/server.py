"""The server of the web UI: on this machine only, for whoever has the token.

    app = create(token="...", hosts=("127.0.0.1:8765",))
    serve(port=8765)

What is guarded against: other users and web pages that find the port (a random token, without which
everything under /api/ is 401), names that are made to point here (the Host header is checked),
other sites' scripts (Origin is checked, cookies are same-site), requests that are too large or take
too long (refused, or given up), and injected script (a content security policy).
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise._version import __version__
from scalewise.errors import InputError, ScalewiseError, require
from scalewise.ui import api, nearest, page
from scalewise.ui.background import Busy, Cache, Stopped, Ticket, Workers, check
from scalewise.ui.guard import MAX_BODY, Guard, json_response, local_hosts
from scalewise.ui.own import Own
from scalewise.ui.requests import decode

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from scalewise.evidence.runs import Run

HEADER, COOKIE = "x-scalewise-token", "scalewise_token"
LOOK = 0.05
"""Seconds between looks whether the client is still there."""


def create(
    *,
    token: str | None,
    hosts: Sequence[str],
    exposed: bool = False,
    workers: int = 2,
    own: Sequence[Run] = (),
) -> Starlette:
    """Build the server.

    Args:
        token: What requests must carry; None serves everybody, which is for tests behind
            something that guards by itself.
        hosts: Values of the Host header that are answered.
        exposed: Whether addresses of digits are answered as well.
        workers: Processes for long questions.
        own: Measured runs of the user, shown beside the published ones.

    Raises:
        MissingExtraError: If the extra `ui` is not installed.
    """
    require("starlette", "ui")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    _prepare()
    service = Service(token=token, workers=workers, own=own)
    routes = [
        Route("/", service.home),
        Route("/plotly.min.js", page.plotly_script),
        Route("/api/openapi.json", service.describe),
        *(
            Route(
                each.path,
                service.endpoint(each),
                methods=["GET" if each.request is None else "POST"],
            )
            for each in api.ENDPOINTS
        ),
        Route("/api/{rest:path}", service.unknown, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=page.STATIC)),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts, exposed=exposed)],
        lifespan=service.lifespan,
    )
    app.state.service = service
    return app


class Service:
    """Answers requests."""

    def __init__(self, *, token: str | None, workers: int, own: Sequence[Run] = ()) -> None:
        self.token = token
        self.cache = Cache()
        self.count = workers
        self.own = Own(own)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Start the workers with the server, and end them with it."""
        del app
        with Workers(self.count) as workers, ThreadPoolExecutor(16) as threads:
            self.workers, self.threads = workers, threads
            workers.warm()
            # Where the measured runs lie is needed by every first page.
            workers.submit(nearest.places).add_done_callback(_indexed)
            threads.submit(_warm)
            yield
            for slot in range(len(workers.flags)):
                workers.flags[slot] = 1

    def knows(self, request: Request) -> bool:
        """Whether a request carries the token."""
        if self.token is None:
            return True
        given = request.headers.get(HEADER) or request.cookies.get(cookie_name(request)) or ""
        return hmac.compare_digest(given.encode(), self.token.encode())

    async def home(self, request: Request) -> Response:
        """The page, its first answer already in it."""
        from starlette.responses import HTMLResponse, RedirectResponse

        given = request.query_params.get("token")
        if self.token is not None and given is not None:
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                return HTMLResponse(page.locked(), 401)
            # The token leaves the address, so that a copied address does not give it away.
            left = request.url.remove_query_params("token")
            query = f"?{left.query}" if left.query else ""
            response = RedirectResponse(f"/{query}", 303)
            response.set_cookie(
                cookie_name(request), self.token, httponly=True, samesite="strict", path="/"
            )
            return response
        if not self.knows(request):
            return HTMLResponse(page.locked(), 401)
        html = await self._in_thread(page.render, request.url.query)
        return HTMLResponse(html, headers={"cache-control": "no-store"})

    async def describe(self, request: Request) -> Response:
        """The OpenAPI description."""
        if not self.knows(request):
            return _locked()
        return json_response(api.openapi(__version__))

    async def unknown(self, request: Request) -> Response:
        """Whatever else is asked for under /api/."""
        if not self.knows(request):
            return _locked()
        return json_response(api.Refusal(error=f"there is no {request.url.path[:80]}"), 404)

    def endpoint(self, each: api.Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """The handler of one endpoint."""

        async def handle(request: Request) -> Response:
            if not self.knows(request):
                return _locked()
            try:
                body = await _body(request)
                # Refused here, before anything waits for a worker.
                asked = None if each.request is None else decode(body, each.request)
                return await self._answer(each, asked, body, request)
            except ScalewiseError as error:
                return _refused(error)

        return handle

    async def _answer(
        self, each: api.Endpoint, asked: Any, body: bytes, request: Request
    ) -> Response:
        key = (each.path, msgspec.json.encode(asked))
        kept = self.cache.get(key)
        if kept is not None:
            return json_response(kept, media=each.media)
        ticket = self.workers.ticket()
        future = self.threads.submit(self._compute, each, asked, body, ticket)
        # However it ends, and whether or not somebody still waits.
        future.add_done_callback(lambda _: self.workers.close_ticket(ticket))
        if "application/x-ndjson" in request.headers.get("accept", ""):
            return self._stream(each, future, ticket, key)
        answer = await self._wait(each, future, ticket, key, request)
        return json_response(answer, media=each.media)

    def _compute(self, each: api.Endpoint, asked: Any, body: bytes, ticket: Ticket) -> bytes:
        """Ask: here what takes milliseconds, in a worker what takes longer."""
        if ticket.stopped:
            raise Stopped("stopped")
        if each.long:
            answer = ticket.run(_ask, each.path, body, ticket.slot)
        else:
            answer = api.ask(each.path, body)
        return self.own.added(each.path, asked, answer)

    async def _wait(
        self, each: api.Endpoint, future: Any, ticket: Ticket, key: Any, request: Request
    ) -> bytes:
        """Wait for an answer as long as the client does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + each.seconds
        waiting = _watched(future)
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=LOOK)
                if done:
                    answer: bytes = waiting.result()
                    self.cache.put(key, answer)
                    return answer
                if await request.is_disconnected():
                    raise Stopped("the client left")
                if loop.time() > end:
                    raise Busy(
                        f"no answer within {each.seconds:g} s", hint="ask for fewer sizes at once"
                    )
        finally:
            _give_up(future, ticket)

    def _stream(self, each: api.Endpoint, future: Any, ticket: Ticket, key: Any) -> Response:
        """Answer in lines: progress, then the answer or an error."""
        from starlette.responses import StreamingResponse

        async def lines() -> AsyncIterator[bytes]:
            loop = asyncio.get_running_loop()
            end = loop.time() + each.seconds
            waiting = _watched(future)
            try:
                while True:
                    done, _ = await asyncio.wait([waiting], timeout=2 * LOOK)
                    if done:
                        break
                    yield msgspec.json.encode({"progress": ticket.progress}) + b"\n"
                    if loop.time() > end:
                        raise Busy(f"no answer within {each.seconds:g} s")
                answer: bytes = waiting.result()
                self.cache.put(key, answer)
                yield b'{"result":' + answer + b"}\n"
            except ScalewiseError as error:
                yield msgspec.json.encode({"refused": api.refusal(error)}) + b"\n"
            finally:
                _give_up(future, ticket)

        return StreamingResponse(
            lines(), media_type="application/x-ndjson", headers={"cache-control": "no-store"}
        )

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.wrap_future(self.threads.submit(function, *arguments))


def _ask(path: str, body: bytes, slot: int) -> bytes:
    """What a worker does: ask, tell how far it is, and give up once nobody waits."""
    return api.ask(path, body, functools.partial(check, slot))


def _indexed(future: Any) -> None:
    if not future.cancelled() and future.exception() is None:
        nearest.share(future.result())


def _give_up(future: Any, ticket: Ticket) -> None:
    """Stop what still runs, if anything does."""
    if not future.done():
        ticket.stop()
        future.cancel()


def _prepare() -> None:
    """Let msgspec learn every struct before there are threads.

    It learns a struct when it first reads one, and another thread that reads it at that moment
    finds it half learnt, which ends the process.
    """
    from scalewise.chip import Calibration
    from scalewise.cluster import Accelerator, Cluster, Fabric
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.strategy import Strategy
    from scalewise.study.files import Study

    asked = [each.request for each in api.ENDPOINTS if each.request is not None]
    for type_ in (Model, Cluster, Accelerator, Fabric, Stack, Calibration, Strategy, Study, *asked):
        msgspec.json.Decoder(type_)


def _watched(future: Any) -> asyncio.Future[bytes]:
    """A future to wait for, whose failure nobody has to hear about once the client left."""
    waiting: asyncio.Future[bytes] = asyncio.wrap_future(future)
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    return waiting


def _warm() -> None:
    """Read what every page needs once, before anybody waits for it."""
    from scalewise.ui.assumptions import assumptions_answer
    from scalewise.ui.catalog import listing
    from scalewise.ui.estimate import estimate_answer
    from scalewise.ui.requests import FIRST

    estimate_answer(FIRST)
    listing()
    assumptions_answer(FIRST)
    nearest.runs()


def cookie_name(request: Request) -> str:
    """Cookies do not tell ports apart: each of several servers on one machine needs its own."""
    return f"{COOKIE}_{request.url.port or 80}"


async def _body(request: Request) -> bytes:
    """Read a request, up to what it may have.

    Raises:
        InputError: If it is larger.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise InputError(f"a request may have {MAX_BODY:,} bytes")
    return body


def _locked() -> Response:
    return json_response(
        api.Refusal(
            error="the token is missing or wrong",
            hint="open the address that `scalewise ui` printed",
        ),
        401,
    )


def _refused(error: ScalewiseError) -> Response:
    status = 400 if isinstance(error, InputError) or error.exit_code == 1 else 500
    if isinstance(error, Busy):
        status = 503
    return json_response(api.refusal(error), status)


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    exposed: bool = False,
    query: str = "",
    own: Sequence[Run] = (),
) -> None:
    """Serve the page until it is interrupted.

    Args:
        host: Address to listen at.
        port: 0 takes any free one.
        token: What requests must carry; by default a new random one.
        ready: Called with the address to open, once the server listens.
        exposed: Whether other machines may ask.
        query: The state the page opens with.
        own: Measured runs of the user, shown beside the published ones.

    Raises:
        InputError: If the address cannot be had.
        MissingExtraError: If the extra `ui` is not installed.
    """
    require("starlette", "ui")
    uvicorn: Any = require("uvicorn", "ui")
    token = token or secrets.token_urlsafe(24)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen at {host}:{port}: {error.strerror or error}",
            hint="choose another --port, or none for any free one",
        ) from error
    port = listener.getsockname()[1]
    names = [*local_hosts(port)]
    if exposed:
        names += [f"{name}:{port}" for name in (host, socket.gethostname(), socket.getfqdn())]
    app = create(token=token, hosts=names, exposed=exposed, own=own)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/?token={token}" + (f"&{query}" if query else "")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=30, limit_concurrency=512,
        server_header=False, date_header=False,
    )  # fmt: skip
    server = _announcing(uvicorn, config, lambda: ready(address) if ready else None)
    server.run(sockets=[listener])


def _announcing(uvicorn: Any, config: Any, announce: Callable[[], None]) -> Any:
    """A server that says when it listens."""

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce()

    return Server(config)
