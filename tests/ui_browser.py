"""One window of a browser on the web UI, and waiting for what it draws.

seen = Visit(browser, address, size="phone")
page = seen.go("scale", FEW)
settled(page)
"""

from pathlib import Path
from urllib.parse import urlsplit

from waiting import PATIENCE

SHOTS = Path(__file__).resolve().parents[1] / "build" / "screenshots"

VIEWS = {
    "estimate": "#step-time .term",
    "scale": "#curve .main-svg",
    "search": "#ranking tbody tr",
    "plan": "#plans tbody tr",
    "timeline": "#panels svg",
    "evidence": "#near tbody tr",
    "study": "#list .card",
    "assumptions": "#rows tbody tr",
}
"""Selector that is present once a view is drawn."""

SIZES = {"desktop": (1280, 900), "large": (1920, 1080), "phone": (390, 844)}
MILLISECONDS = 1000 * PATIENCE
FEW = "sizes=8..256"
"""Few GPUs, so that the background search is short."""


class Visit:
    """One browser window with access, and the errors in it."""

    def __init__(self, browser, address, size="desktop", scheme="light"):
        wide, tall = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": wide, "height": tall}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(MILLISECONDS)
        self.problems = []
        self.expected = None
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._heard)
        self.elsewhere = []
        self.page.on("request", self._asked)
        self.base = address.split("/?")[0]
        self.page.goto(address)

    def _heard(self, message):
        # The browser logs errors that a test provokes by itself, some time later.
        provoked = self.expected is not None and self.expected in message.text
        if message.type in ("error", "warning") and not provoked:
            self.problems.append(message.text)

    def _asked(self, request):
        web = urlsplit(request.url).scheme in ("http", "https")
        if web and not request.url.startswith(self.base):
            self.elsewhere.append(request.url)

    def go(self, view, query=""):
        self.page.goto(f"{self.base}/?view={view}&{query}")
        self.page.wait_for_selector(VIEWS[view], state="attached")
        return self.page

    def turn(self, view):
        """Go to another view by its tab."""
        if not self.page.query_selector("#tabs a"):
            self.go("estimate", FEW)
        self.page.click(f"#tabs a[data-view={view}]")
        self.page.wait_for_selector(VIEWS[view], state="attached")
        return self.page

    def api(self, path, body):
        """Answer of the API, with the cookie of this window."""
        response = self.context.request.post(f"{self.base}/api/{path}", data=body)
        assert response.ok, response.text()
        return response.json()

    def close(self):
        self.context.close()


def until(page, test, arg=None):
    """Wait for a condition; a function, because the content security policy forbids eval."""
    page.wait_for_function(f"(arg) => {test}", arg=arg)


def settled(page):
    """Wait until all charts are drawn that do not wait for a long answer."""
    open_ = ".chart.waiting, .chart .sketch"
    until(page, f"!document.querySelector('{open_}') || document.querySelector('#scatter')")
