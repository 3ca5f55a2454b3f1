"""A server in this process for questions, and a real one with a real browser for the page."""

import signal
import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from scalewise.ui.guard import local_hosts
from scalewise.ui.server import create
from ui_browser import SHOTS, Visit
from ui_records import write_records
from waiting import PATIENCE, path_of

TOKEN = "a-token-of-the-tests"
PORT = 8765
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


@pytest.fixture(scope="session")
def app():
    return create(token=TOKEN, hosts=local_hosts(PORT))


@pytest.fixture(scope="session")
def client(app):
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}") as client:
        client.headers["x-scalewise-token"] = TOKEN
        yield client


@pytest.fixture(scope="session")
def ask(client):
    def ask(path, **body):
        response = client.post(f"/api/{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    return ask


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """`scalewise ui` as a user starts it, with runs of their own; ended as a user ends it."""
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    command = [sys.executable, "-m", "scalewise", "ui", "--no-open", "--records", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server.address = server.stdout.readline().strip()
    assert server.address.startswith("http://127.0.0.1:"), server.stderr.read()
    yield server
    server.send_signal(signal.SIGINT)
    _, talk = server.communicate(timeout=PATIENCE)
    assert server.returncode == 130, talk
    assert "Traceback" not in talk, talk


@pytest.fixture(scope="session")
def address(server):
    return server.address


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    path = path_of("browser")
    SHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Windows that have no errors and load nothing from elsewhere."""
    visits = []

    def open_(size="desktop", scheme="light"):
        visits.append(Visit(browser, address, size, scheme))
        return visits[-1]

    yield open_
    for each in visits:
        each.close()
        assert each.problems == []
        assert each.elsewhere == [], "the web UI must work offline"
