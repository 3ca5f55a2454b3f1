"""The page of the web UI, with its first answer in it before any script ran.

    render("model=llama-2-7b&n=256")        # HTML: the sentence reads without script

The script finds the same answer as data beside it, so that nothing is asked twice. The chart
library is the one inside the installed Plotly package: the page needs no network.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from scalewise._version import __version__
from scalewise.ask.state import from_query
from scalewise.errors import ScalewiseError, require
from scalewise.ui import api
from scalewise.ui.catalog import tables
from scalewise.ui.estimate import estimate_answer
from scalewise.ui.requests import FIRST
from scalewise.units import format_dollars, format_energy, format_percent, format_seconds

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
MAX_QUERY = 8192
"""Characters of an address that are read."""

STYLES = ("base", "ask", "answer", "terms", "tables", "charts", "views", "narrow")
"""Style sheets, in the order in which later rules override earlier ones."""

CHARTED = ("scale", "search", "plan", "evidence", "study", "assumptions")
"""Views that draw with the chart library."""


def render(query: str) -> str:
    """The page for an address."""
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    first: dict[str, Any] = {"version": __version__, "tables": tables()}
    try:
        asked = from_query(query[:MAX_QUERY])
        if asked.gpus is None:
            asked = msgspec.structs.replace(asked, gpus=FIRST.gpus)
        answer = estimate_answer(asked)
        first["estimate"] = answer
        spoken = sentence(answer)
    except ScalewiseError as error:
        first["refused"] = msgspec.to_builtins(api.refusal(error))
        spoken = str(error)
    # "<" cannot end the element it stands in when it is written as an escape.
    data = msgspec.json.encode(first).decode().replace("<", "\\u003c")
    # The style stands in the page: the first paint, which has the answer, waits for nothing else.
    style = "".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    text = text.replace("<!--style-->", f"<style>{style}</style>")
    text = text.replace("<!--early-->", early(query))
    return text.replace("<!--sentence-->", escape(spoken)).replace("<!--first-->", data)


def early(query: str) -> str:
    """What the browser should fetch while it still reads the page.

    The modules of a view with charts, in one go. The chart library is not among them: it is large
    and slow to start, and charts are sketched before it is asked for.
    """
    view = dict(parse_qsl(query[:MAX_QUERY])).get("view", "")
    names = ("charts", "sketch", view) if view in CHARTED else ()
    return "".join(f'<link rel="modulepreload" href="/static/{name}.js">' for name in names)


def sentence(answer: dict[str, Any]) -> str:
    """The answer in one sentence."""
    head, asked = answer["headline"], answer["question"]
    if not head["feasible"]:
        return f"{asked['strategy']} does not fit: {head['infeasible']}"
    parts = [f"{format_seconds(head['step_seconds'][0])} per step"]
    if head["days"] is not None:
        parts.append(format_seconds(head["days"][0] * 86400.0))
    if head["usd"] is not None:
        parts.append(format_dollars(head["usd"][0]))
    if head["joules"] is not None:
        parts.append(format_energy(head["joules"][0]))
    if head["goodput"] is not None:
        parts.append(head["goodput"])
    waits = format_percent(head["exposed_fraction"])
    return f"{', '.join(parts)}; {waits} of the time waits on the network."


def locked() -> str:
    """The page of whoever has no token."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>scalewise</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'></head>"
        "<body style='font: 16px/1.6 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; "
        "padding: 0 1rem'><main><h1 style='font-size: 1.3rem'>This page is locked</h1>"
        "<p>Open the address that <code>scalewise ui</code> printed in its terminal: it carries a "
        "token that lets your browser in, and nobody else's.</p></main></body></html>"
    )


def forward(address: str) -> str:
    """A page that opens another address at once."""
    where = escape(address, quote=True)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>scalewise</title>"
        f'<meta http-equiv="refresh" content="0; url={where}"></head>'
        f'<body><a href="{where}">Open scalewise</a></body></html>'
    )


@lru_cache(maxsize=1)
def _plotly() -> bytes:
    """Plotly's script."""
    offline: Any = require("plotly.offline", "ui")
    text: str = offline.get_plotlyjs()
    return text.encode()


@lru_cache(maxsize=1)
def _compressed() -> bytes:
    """Plotly's script, for a browser that is far away."""
    return gzip.compress(_plotly(), 1)


async def plotly_script(request: Request) -> Response:
    """The chart library, from the installed package."""
    import asyncio

    from starlette.responses import Response

    headers = {"cache-control": "max-age=604800"}
    # Loopback is fast, but an exposed server may be far away.
    local = request.client is not None and request.client.host in ("127.0.0.1", "::1")
    if "gzip" in request.headers.get("accept-encoding", "") and not local:
        headers["content-encoding"] = "gzip"
        body = await asyncio.to_thread(_compressed)
    else:
        body = await asyncio.to_thread(_plotly)
    return Response(body, 200, headers, "text/javascript")
