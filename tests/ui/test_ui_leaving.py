"""A client that closes its connection in a long search stops the work of the real server."""

import json
import os
import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """CPU time of the workers of a server."""
    total = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / TICK
    return total


def test_work_ends_when_the_client_leaves(server):
    parts = urlsplit(server.address)
    token = parse_qs(parts.query)["token"][0]
    # What the server does by itself after its start must be over first.
    headers = {"x-scalewise-token": token}
    request = urllib.request.Request(f"http://{parts.netloc}/api/evidence", headers=headers)
    urllib.request.urlopen(request, timeout=120).read()
    body = json.dumps(
        {"question": {"model": "llama-3.1-405b", "gpus": "65520", "batch": "65520"}, "every": True}
    ).encode()
    idle = cpu_seconds(server.pid)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.sendall(
            f"POST /api/search HTTP/1.1\r\nhost: {parts.netloc}\r\nx-scalewise-token: {token}"
            f"\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        deadline = time.monotonic() + 60
        while cpu_seconds(server.pid) < idle + 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert cpu_seconds(server.pid) >= idle + 0.5, "the search is under way"
    time.sleep(2.0)
    left = cpu_seconds(server.pid)
    time.sleep(2.0)
    assert cpu_seconds(server.pid) - left < 0.2
