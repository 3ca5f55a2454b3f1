"""Local server that hands a trace to Perfetto's web page.

    serve(Path("step.json.gz"), say=print)

The page at ui.perfetto.dev runs in the user's browser and fetches the file from this machine; no
data leaves it. Only that file is served, only to that page, only on 127.0.0.1, and only until it is
fetched, the user stops it, or the wait times out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

ORIGIN = "https://ui.perfetto.dev"
PATIENCE = 600.0
"""Seconds to wait for the browser."""
PORT = 9001
"""Port that the content security policy of Perfetto's page allows."""


class _Server(HTTPServer):
    """Serves one file."""

    file: Path
    fetched = False


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for one file from one page."""

    server: _Server

    def end_headers(self) -> None:
        """Let Perfetto's page read the answer."""
        self.send_header("Access-Control-Allow-Origin", ORIGIN)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def do_OPTIONS(self) -> None:
        """Answer a CORS preflight request."""
        self.send_response(204)
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.end_headers()

    def do_GET(self) -> None:
        """Send the file."""
        if self.path != "/" + quote(self.server.file.name):
            self.send_error(404)
            return
        data = self.server.file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.server.fetched = True

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: stderr belongs to the command."""


def serve(
    file: Path,
    *,
    say: Callable[[str], None],
    patience: float = PATIENCE,
    port: int = PORT,
    browse: bool = True,
) -> bool:
    """Serve a trace until it is fetched, Ctrl-C, or a timeout.

    Args:
        file: The trace.
        say: Receives the address.
        patience: Seconds to wait.
        port: On 127.0.0.1; any free one if it is taken.
        browse: Whether to open the browser.

    Returns:
        Whether it was fetched.
    """
    try:
        server = _Server(("127.0.0.1", port), _Handler)
    except OSError:
        say(f"port {port} is taken: Perfetto's page may refuse another, then open the file there")
        server = _Server(("127.0.0.1", 0), _Handler)
    server.file, server.timeout = file, 0.5
    address = f"http://127.0.0.1:{server.server_port}/{quote(file.name)}"
    page = f"{ORIGIN}/#!/?url={address}"
    say(f"open {page}")
    say(f"serving {address} until it is fetched; Ctrl-C stops it")
    if browse:
        import webbrowser

        webbrowser.open(page)
    deadline = time.monotonic() + patience
    try:
        while not server.fetched and time.monotonic() < deadline:
            server.handle_request()
    finally:
        server.server_close()
    if server.fetched:
        say("fetched")
    return server.fetched
