"""A client that closes its connection in a long search stops the work of the real server."""

import json
import os
import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from waiting import PATIENCE, until

TICK = os.sysconf("SC_CLK_TCK")

LATE = 3.0
"""CPU seconds that a search may use up after its client left; to its end it would use 7."""


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
    urllib.request.urlopen(request, timeout=PATIENCE).read()
    question = {"model": "llama-3.1-405b", "gpus": "221760", "batch": "221760"}
    body = json.dumps({"question": question, "every": True}).encode()
    idle = cpu_seconds(server.pid)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.sendall(
            f"POST /api/search HTTP/1.1\r\nhost: {parts.netloc}\r\nx-scalewise-token: {token}"
            f"\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        until(lambda: cpu_seconds(server.pid) >= idle + 0.5, "the search")
    used = [cpu_seconds(server.pid)]

    def rests():
        """Whether a second has passed without work."""
        time.sleep(1.0)
        used.append(cpu_seconds(server.pid))
        return used[-1] - used[-2] < 0.05

    until(rests, "the end of the work")
    assert used[-1] - used[0] < LATE
