import threading
import urllib.error
import urllib.request

import pytest

from scalewise.simulation.serve import ORIGIN, serve
from waiting import PATIENCE


def running(file, **options):
    """Serve in a thread: (what was said, the thread, what it returned)."""
    said, result, ready = [], [], threading.Event()

    def say(text):
        said.append(text)
        if text.startswith("serving"):
            ready.set()

    def run():
        result.append(serve(file, say=say, browse=False, port=0, **options))

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(PATIENCE)
    return said, thread, result


def test_serves_one_file_to_perfetto_and_stops(tmp_path):
    file = tmp_path / "step 1.json.gz"
    file.write_bytes(b"trace")
    said, thread, result = running(file, patience=PATIENCE)
    page, address = said[0].split(" ")[1], said[1].split(" ")[1]
    assert page == f"https://ui.perfetto.dev/#!/?url={address}"
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith("/step%201.json.gz")
    other = address.rsplit("/", 1)[0] + "/../secret"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(other, timeout=PATIENCE)
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        assert answer.read() == b"trace"
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    thread.join(PATIENCE)
    assert result == [True]
    assert said[-1] == "fetched"


def test_gives_up_when_nobody_comes(tmp_path):
    file = tmp_path / "step.json"
    file.write_text("{}")
    _, thread, result = running(file, patience=0.1)
    thread.join(PATIENCE)
    assert result == [False]
