"""`scalewise ui`: what it opens, where it listens, how it ends."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scalewise.cli import main, ui
from scalewise.errors import InputError, MissingExtraError
from waiting import PATIENCE


def test_a_host_for_others_needs_a_word():
    with pytest.raises(InputError, match=r"--host 0.0.0.0 needs --expose") as e:
        main.cli.main(["ui", "--host", "0.0.0.0", "--no-open"], standalone_mode=False)
    assert "--expose" in e.value.hint


class Opened:
    """What a browser finds when it is opened."""

    def __init__(self, uri):
        file = Path(urlsplit(uri).path)
        self.uri, self.text = uri, file.read_text()
        self.mode = stat.S_IMODE(file.stat().st_mode)
        self.folder_mode = stat.S_IMODE(file.parent.stat().st_mode)


@pytest.fixture
def served(monkeypatch):
    """What would be served, without serving it."""
    asked = {}

    def serve(*, ready, **given):
        asked.update(given)
        ready("http://127.0.0.1:1/?token=t")

    monkeypatch.setattr("scalewise.ui.server.serve", serve)
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(Opened(uri)))
    asked["opened"] = opened
    return asked


def run(*args):
    return main.cli.main(["ui", *args], standalone_mode=False)


def test_by_default_it_is_for_this_machine_and_opens_the_browser(served, capsys):
    assert run() == 130
    assert (served["host"], served["port"], served["exposed"]) == ("127.0.0.1", 0, False)
    (opened,) = served["opened"]
    # Arguments of a browser are for all users of the machine; the token is in a private file.
    assert re.fullmatch(r"file:///.*/scalewise-ui-\w+/open.html", opened.uri)
    assert (opened.mode, opened.folder_mode) == (0o600, 0o700)
    assert 'content="0; url=http://127.0.0.1:1/?token=t"' in opened.text
    assert not Path(urlsplit(opened.uri).path).exists()
    assert capsys.readouterr().out == "http://127.0.0.1:1/?token=t\n"


def test_it_opens_nothing_if_told_so(served):
    run("--no-open", "--port", "8123")
    assert (served["opened"], served["port"]) == ([], 8123)


def test_exposed_only_if_told_so(served):
    run("--host", "0.0.0.0", "--expose", "--no-open")
    assert (served["host"], served["exposed"]) == ("0.0.0.0", True)
    run("--host", "localhost", "--expose", "--no-open")
    assert (served["host"], served["exposed"]) == ("127.0.0.1", False)


def test_a_saved_plan_is_opened(served, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "llama-2-13b"\ngpus = "64"\n')
    run("--plan", str(plan), "--no-open")
    assert served["query"] == "model=llama-2-13b&on=dgx-h100&n=64"
    plan.write_text('model = "llama-2-13b"\ndeadline = "36h"\nbudget = "$1.5M"\n')
    run("--plan", str(plan), "--no-open")
    assert served["query"] == "model=llama-2-13b&on=dgx-h100&deadline=1.5&budget=1500000"


def test_without_the_extra_it_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError) as caught:
        run("--no-open")
    assert caught.value.hint == "pip install 'scalewise[ui]'"


def test_a_taken_port_is_a_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1:{port}"):
            run("--no-open", "--port", port)


def test_help_needs_nothing_of_the_extra():
    code = (
        "import sys\nfrom scalewise.cli.main import cli\n"
        "try:\n    cli.main(['ui', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('starlette', 'uvicorn', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    for option in ("--port", "--no-open", "--host", "--expose", "--plan"):
        assert option in done.stdout


def test_it_serves_and_ends_on_ctrl_c():
    command = [sys.executable, "-m", "scalewise", "ui", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{32})", address)
    assert found, server.stderr.read()
    request = urllib.request.Request(
        f"{found[1]}/api/estimate", b"{}", {"x-scalewise-token": found[2]}
    )
    assert b'"headline"' in urllib.request.urlopen(request, timeout=PATIENCE).read()
    server.send_signal(signal.SIGINT)
    _, talk = server.communicate(timeout=PATIENCE)
    assert server.returncode == 130
    assert "Traceback" not in talk
    assert ui.LOOPBACK[0] == "127.0.0.1"


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="sends SIGINT to a group, as a terminal does")
def test_ctrl_c_while_workers_start_is_quiet():
    command = [sys.executable, "-m", "scalewise", "ui", "--no-open"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    # The server listens before its workers have imported what they need.
    assert server.stdout.readline().startswith("http://127.0.0.1:"), server.stderr.read()
    os.killpg(server.pid, signal.SIGINT)
    _, talk = server.communicate(timeout=PATIENCE)
    assert (server.returncode, "Traceback" in talk) == (130, False), talk
