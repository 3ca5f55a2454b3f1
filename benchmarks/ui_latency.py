"""Latency of the web UI: answers to a slider, whole curves, and opening it in a browser.

    python benchmarks/ui_latency.py
    python benchmarks/ui_latency.py --address "http://127.0.0.1:8765/?token=..."

Starts `scalewise ui`, moves every input of the sentence as a slider would (no question is asked
twice, so that nothing comes from memory), then draws curves of nine sizes with the strategy chosen
anew at each, and once with every strategy there is. Then a real browser opens the page, each time
anew, and says when the numbers and when the charts were on the screen. Promised on two cores: an
estimate within 100 ms and a curve within 500 ms at the 95th percentile; after opening, the first
useful answer within 0.5 s and charts within 1.5 s. The first useful answer is the sentence that
the server writes into the page (time, days, rent, energy, share of the network), so it is there
with the first paint; the figures with their ranges follow. A chart is there when its curve stands
on its axes; that it can be pointed at comes later, when the chart library has started.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from urllib.parse import parse_qs, urlsplit

MODELS = ("llama-2-7b", "llama-3-8b", "llama-2-13b", "llama-3-70b", "gpt3-1.3b")
CLUSTERS = ("dgx-h100", "dgx-a100")
PROMISED = {
    "estimate": 0.100,
    "curve of 9 sizes": 0.500,
    "page with its first answer": 0.500,
    "browser: first paint, answer": 0.500,
    "browser: charts drawn": 1.500,
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Client:
    """One connection that is kept, as a browser keeps it."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.token = parse_qs(parts.query)["token"][0]
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)

    def ask(self, path: str, body: dict | None = None) -> float:
        """Ask, and say how many seconds the whole answer took."""
        start = time.perf_counter()
        method = "GET" if body is None else "POST"
        data = None if body is None else json.dumps(body)
        headers = {"x-scalewise-token": self.token, "content-type": "application/json"}
        self.connection.request(method, path, data, headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 200:
            sys.exit(f"{path}: {response.status} {text[:300]!r}")
        return time.perf_counter() - start


def estimates() -> list[dict]:
    """Moves of sliders: sizes, batches and sequences of several models, each once."""
    sizes = [2**power for power in range(5, 13)]
    asked = [
        {"model": model, "on": on, "gpus": str(n), "batch": str(max(n, 1024)), "seq": str(seq)}
        for model, on, n, seq in itertools.product(MODELS, CLUSTERS, sizes, (2048,))
    ]
    asked += [
        {"gpus": str(n), "batch": str(4 * n), "seq": "4096", "strategy": f"fsdp{n}-mb{m}"}
        for n in sizes
        for m in (1, 2, 4)
    ]
    return asked


def curves() -> list[dict]:
    """Whole curves of nine sizes."""
    return [
        {
            "question": {"model": model, "on": on, "batch": "2048"},
            "sizes": "8..2048" if "70b" not in model else "64..16384",
            "kind": kind,
            "templates": ["best"],
        }
        for model, on, kind in itertools.product(MODELS, CLUSTERS, ("strong", "weak"))
    ]


def opened(address: str, times: int) -> dict[str, list[float]]:
    """Open the page in a browser; seconds until something was on the screen.

    Counted from the moment the browser sets out, through the redirect that takes the token away.
    Every opening has a profile of its own, so nothing comes from a cache. The first paint has the
    sentence of the server in it, because that stands in the page before any script.
    """
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        print("no browser or no Playwright: opening is not measured")
        return {}
    read = """(mark) => ({
        paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
        mark: performance.getEntriesByName(`scalewise-${mark}`)[0]?.startTime,
    })"""
    seen = (
        ("estimate", {"answer": "browser: figures with ranges"}),
        ("scale", {"chart": "browser: charts drawn", "interactive": "browser: charts to point at"}),
    )
    found: dict[str, list[float]] = {"browser: first paint, answer": []}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for place, (view, marks) in itertools.product(range(times), seen):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(f"{address}&view={view}&n={(64, 128, 256, 512, 1024)[place % 5]}")
            for mark, what in marks.items():
                test = "(mark) => performance.getEntriesByName(`scalewise-${mark}`).length"
                page.wait_for_function(test, arg=mark)
                answer = page.evaluate(read, mark)
                found.setdefault(what, []).append(answer["mark"] / 1e3)
            found["browser: first paint, answer"].append(answer["paint"] / 1e3)
            context.close()
        browser.close()
    return found


def quantile(values: list[float], share: float) -> float:
    """A quantile by linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def main() -> int:
    """Measure, print a table, and say whether the promise is kept."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--address", help="Of a running server; by default one is started.")
    options.add_argument("--openings", type=int, default=10, help="Of the page in a browser.")
    given = options.parse_args()
    server = None
    start = time.perf_counter()
    address = given.address
    if address is None:
        command = [sys.executable, "-m", "scalewise", "ui", "--no-open"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = server.stdout.readline().strip()  # type: ignore[union-attr]
        print(f"listening after {time.perf_counter() - start:.2f} s")
    try:
        client = Client(address)
        times = {"page with its first answer": [client.ask("/?n=64")]}
        client.ask("/api/evidence")  # what runs once in the background is over now
        times["page with its first answer"] += [client.ask(f"/?n={n}") for n in (32, 128, 512)]
        times["estimate"] = [client.ask("/api/estimate", each) for each in estimates()]
        times["curve of 9 sizes"] = [client.ask("/api/scale", each) for each in curves()]
        times["the same, every strategy"] = [
            client.ask("/api/scale", {**each, "every": True}) for each in curves()[:4]
        ]
        times["search, every strategy"] = [
            client.ask("/api/search", {"question": {"gpus": str(n), "batch": "2048"}})
            for n in (8, 64, 512)
        ]
        times |= opened(address, given.openings)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    kept = True
    print(f"{'what':30} {'n':>4} {'median':>9} {'p95':>9} {'maximum':>9}  promised p95")
    for what, values in times.items():
        p95 = quantile(values, 0.95)
        lines = [f"{1e3 * v:6.0f} ms" for v in (quantile(values, 0.5), p95, max(values))]
        limit = PROMISED.get(what)
        kept &= limit is None or p95 <= limit
        verdict = (
            ""
            if limit is None
            else f"{1e3 * limit:.0f} ms: {'kept' if p95 <= limit else 'NOT kept'}"
        )
        print(f"{what:30} {len(values):4d} {' '.join(lines)}  {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
