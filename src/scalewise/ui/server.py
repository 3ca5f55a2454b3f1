"""The server of the web UI: on this machine only, for whoever has the token.

    app = create(token="...", hosts=("127.0.0.1:8765",))
    serve(port=8765)

What is guarded against: other users and web pages that find the port (a random token, without which
everything under /api/ is 401), names that are made to point here (the Host header is checked),
other sites' scripts (Origin is checked, cookies are same-site), requests that are too large or take
too long (refused, or given up), connections that ask nothing (`connections`), and injected script
(a content security policy). Questions of milliseconds have processes of their own and never wait
behind searches.
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
from scalewise.ui.connections import limited
from scalewise.ui.guard import MAX_BODY, Guard, json_response, local_hosts, refusing
from scalewise.ui.own import Own
from scalewise.ui.requests import decode

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from scalewise.evidence.runs import Run

HEADER, COOKIE = "x-scalewise-token", "scalewise_token"
LOOK = 0.1
"""Seconds between two lines of progress."""
BODY_SECONDS = 10.0
"""Seconds in which the body of a request has to arrive."""
THREADS = 4
"""Of lookups, which wait for no process."""


class SlowError(ScalewiseError):
    """A request did not arrive in time."""


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
        workers: Processes for long questions, and as many for quick ones.
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
        with (
            Workers(self.count) as workers,
            Workers(self.count, kindness=0) as quick,
            ThreadPoolExecutor(THREADS) as threads,
        ):
            self.workers, self.quick, self.threads = workers, quick, threads
            quick.warm()
            workers.warm()
            # Where the measured runs lie is needed by every first page.
            laid_out = quick.submit(nearest.places)
            laid_out.add_done_callback(_indexed)
            self.indexed = asyncio.wrap_future(laid_out)
            self.indexed.add_done_callback(_heard)
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
                return refusing(HTMLResponse(page.locked(), 401))
            # The token leaves the address, so that a copied address does not give it away.
            left = request.url.remove_query_params("token")
            target = f"/?{left.query}" if left.query else "/"
            # A browser that comes from a file is of another site and would leave the cookie out
            # of a redirect, but not of what a page of this server asks for.
            foreign = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            response: Response = RedirectResponse(target, 303)
            if foreign:
                response = HTMLResponse(page.forward(target), headers={"cache-control": "no-store"})
            response.set_cookie(
                cookie_name(request), self.token, httponly=True, samesite="strict", path="/"
            )
            return response
        if not self.knows(request):
            return refusing(HTMLResponse(page.locked(), 401))
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
        ticket = self.workers.ticket() if each.lane == "long" else None
        job = asyncio.create_task(self._compute(each, asked, body, ticket))
        # However it ends, and whether or not somebody still waits.
        job.add_done_callback(functools.partial(self._ended, ticket))
        if ticket is not None and "application/x-ndjson" in request.headers.get("accept", ""):
            return self._stream(each, job, ticket, key)
        answer = await _wait(each, job, ticket, request)
        self.cache.put(key, answer)
        return json_response(answer, media=each.media)

    async def _compute(
        self, each: api.Endpoint, asked: Any, body: bytes, ticket: Ticket | None
    ) -> bytes:
        """Ask, in the lane of the question."""
        if ticket is not None:
            answer = await self.workers.answer(_ask, each.path, body, ticket.slot, ticket=ticket)
        elif each.lane == "quick":
            answer = await self.quick.answer(api.ask, each.path, body)
        else:
            if each.places and not self.indexed.done():
                # Everybody would lay them out anew, and block the threads meanwhile.
                await asyncio.wait([self.indexed])
            answer = await self._in_thread(api.ask, each.path, body)
        if not self.own.runs:
            return answer
        added: bytes = await self._in_thread(self.own.added, each.path, asked, answer)
        return added

    def _ended(self, ticket: Ticket | None, job: asyncio.Task[bytes]) -> None:
        """Give a ticket back."""
        if ticket is not None:
            self.workers.close_ticket(ticket)
        _heard(job)

    def _stream(
        self, each: api.Endpoint, job: asyncio.Task[bytes], ticket: Ticket, key: Any
    ) -> Response:
        """Answer in lines: progress, then the answer or an error."""
        from starlette.responses import StreamingResponse

        async def lines() -> AsyncIterator[bytes]:
            loop = asyncio.get_running_loop()
            end = loop.time() + each.seconds
            try:
                while True:
                    done, _ = await asyncio.wait([job], timeout=LOOK)
                    if done:
                        break
                    yield msgspec.json.encode({"progress": ticket.progress}) + b"\n"
                    if loop.time() > end:
                        raise _late(each)
                answer = job.result()
                self.cache.put(key, answer)
                yield b'{"result":' + answer + b"}\n"
            except ScalewiseError as error:
                yield msgspec.json.encode({"refused": api.refusal(error)}) + b"\n"
            finally:
                _give_up(job, ticket)

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


def _heard(job: asyncio.Future[Any]) -> None:
    """Hear a failure that nobody waits for, which asyncio would print."""
    if not job.cancelled():
        job.exception()


async def _wait(
    each: api.Endpoint, job: asyncio.Task[bytes], ticket: Ticket | None, request: Request
) -> bytes:
    """Wait for an answer as long as the client does."""
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([job, gone], timeout=each.seconds, return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            return job.result()
        raise Stopped("the client left") if gone.done() else _late(each)
    finally:
        gone.cancel()
        _give_up(job, ticket)


async def _gone(request: Request) -> None:
    """Return once the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _late(each: api.Endpoint) -> Busy:
    hint = "ask for fewer sizes at once" if each.lane == "long" else "ask again in a moment"
    return Busy(f"the server is busy: no answer within {each.seconds:g} s", hint=hint)


def _give_up(job: asyncio.Task[bytes], ticket: Ticket | None) -> None:
    """Stop what still runs, if anything does."""
    if not job.done():
        if ticket is not None:
            ticket.stop()
        job.cancel()


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
    """Read a request, up to what it may have and as long as it may take.

    Raises:
        InputError: If it is larger.
        SlowError: If it takes longer.
    """
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise InputError(f"a request may have {MAX_BODY:,} bytes")
    except TimeoutError:
        raise SlowError(
            f"the request did not arrive within {BODY_SECONDS:g} s", hint="send it again"
        ) from None
    return body


def _locked() -> Response:
    return refusing(
        json_response(
            api.Refusal(
                error="the token is missing or wrong",
                hint="open the address that `scalewise ui` printed",
            ),
            401,
        )
    )


def _refused(error: ScalewiseError) -> Response:
    # What the client asked is wrong: 400. Anything else is the fault of the server.
    status = 400 if isinstance(error, InputError) else 503 if isinstance(error, Busy) else 500
    if isinstance(error, SlowError):
        status = 408
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
        app, log_level="warning", access_log=False, timeout_keep_alive=30, http=limited(),
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
