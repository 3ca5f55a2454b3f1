"""Errors, latency and memory growth of the web server under many clients.

    python benchmarks/ui_load.py --clients 200 --seconds 600
    python benchmarks/ui_load.py --clients 200 --seconds 90          # short form

Each client is a person at a page: a connection that is kept, and a question every `--pause` seconds
on average. Most are estimates with other numbers every time, some curves, the nearest runs, gains
of upgrades or the catalog; some clients leave in the middle of a search. Memory of the server and
its workers is read before the first client, every second, and after the last; growth is what the
last third has over the middle one, when caches are full.

Targets on 2 cores: no 5xx, p95 of an estimate below 1 s, growth below 10%.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Tally:
    """What happened."""

    def __init__(self) -> None:
        self.times: dict[str, list[tuple[float, float]]] = {}
        """Start and duration of each answer by endpoint."""
        self.errors: list[str] = []
        self.left = 0


async def ask(reader, writer, token: str, path: str, body: dict | None) -> int:
    """Ask on a kept connection; return the status."""
    data = b"" if body is None else json.dumps(body).encode()
    writer.write(
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: {HOST}\r\n"
        f"x-scalewise-token: {token}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(
        int(line.split(":")[1])
        for line in head.splitlines()
        if line.lower().startswith("content-l")
    )
    await reader.readexactly(length)
    return int(head.split()[1])


HOST = ""


def question(draw: random.Random) -> tuple[str, dict | None]:
    """One question, as pages ask them."""
    kind = draw.random()
    nouns = {
        "model": draw.choice(["llama-2-7b", "llama-3-8b", "llama-2-13b", "gpt3-1.3b"]),
        "gpus": str(2 ** draw.randint(3, 11)),
        "batch": str(draw.choice([1024, 2048, 4096])),
        "tokens": str(draw.randint(10**11, 10**12)),
    }
    if kind < 0.80:
        return "/api/estimate", nouns
    if kind < 0.86:
        return "/api/nearest", nouns
    if kind < 0.92:
        return "/api/sensitivity", nouns
    if kind < 0.96:
        return "/api/catalog", None
    return "/api/scale", {"question": nouns, "sizes": "8..512", "templates": ["best"]}


async def client(place: int, port: int, token: str, end: float, pause: float, tally: Tally) -> None:
    """Ask until the time is over."""
    draw = random.Random(place)
    # People do not come all at once.
    await asyncio.sleep(draw.uniform(0.0, 2.0 * pause))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end:
        if draw.random() < 0.01:
            # Ask for a long search and leave: the server must stop it.
            tokens = str(draw.randint(1, 10**9))
            asked = {"question": {"gpus": "1024", "batch": "4096", "tokens": tokens}}
            data = json.dumps(asked).encode()
            writer.write(
                f"POST /api/search HTTP/1.1\r\nhost: {HOST}\r\nx-scalewise-token: {token}\r\n"
                f"content-length: {len(data)}\r\n\r\n".encode()
                + data
            )
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()
            tally.left += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        path, body = question(draw)
        start = time.monotonic()
        try:
            status = await ask(reader, writer, token, path, body)
        except (OSError, asyncio.IncompleteReadError) as error:
            tally.errors.append(f"{path}: {error!r}")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        tally.times.setdefault(path, []).append((start, time.monotonic() - start))
        if status != 200:
            tally.errors.append(f"{path} {body}: {status}")
        await asyncio.sleep(draw.uniform(0.5 * pause, 1.5 * pause))
    writer.close()


def memory(pid: int) -> float:
    """Resident bytes of a process and its children, in MB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0
    for each in [str(pid), *children]:
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return total / 1e3


def cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU time of a process, and of its children, seconds."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    times = []
    for each in [str(pid), *children]:
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        times.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return times[0], sum(times[1:])


async def watch(pid: int, end: float, seen: list[float]) -> None:
    """Read memory every second."""
    while time.monotonic() < end:
        seen.append(memory(pid))
        await asyncio.sleep(1.0)


async def load(
    address: str, pid: int, clients: int, seconds: float, pause: float
) -> tuple[Tally, list[float]]:
    """Run all clients at once."""
    global HOST
    parts = urlsplit(address)
    HOST = parts.netloc
    token = parse_qs(parts.query)["token"][0]
    end, tally, seen = time.monotonic() + seconds, Tally(), []
    await asyncio.gather(
        watch(pid, end, seen),
        *(client(place, parts.port or 80, token, end, pause, tally) for place in range(clients)),
    )
    return tally, seen


def _at(times: list[float], share: float) -> float:
    return times[int(share * len(times))] if times else 0.0


def main() -> int:
    """Run, print what happened, and say whether it stood."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--clients", type=int, default=200)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--pause", type=float, default=4.0)
    given = options.parse_args()
    command = [sys.executable, "-m", "scalewise", "ui", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()  # type: ignore[union-attr]
    try:
        before, started = memory(server.pid), cpu_seconds(server.pid)
        people = (given.clients, given.seconds, given.pause)
        tally, seen = asyncio.run(load(address, server.pid, *people))
        used = [end - start for start, end in zip(started, cpu_seconds(server.pid), strict=True)]
        time.sleep(2.0)
        after = memory(server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        _, talk = server.communicate(timeout=60)
    third = max(len(seen) // 3, 1)
    first, last = statistics.median(seen[third : 2 * third]), statistics.median(seen[-third:])
    count = sum(map(len, tally.times.values()))
    print(
        f"{given.clients} clients, {given.seconds:g} s: {count:,} answers "
        f"({count / given.seconds:.0f} per second), {tally.left} left in a search, "
        f"{len(tally.errors)} errors"
    )
    each = [1e3 * seconds / max(count, 1) for seconds in used]
    print(
        f"CPU time: {sum(used):.0f} s; per answer {each[0]:.1f} ms in the server, "
        f"{each[1]:.1f} ms in its workers"
    )
    late, first_start = 0.0, min(start for taken in tally.times.values() for start, _ in taken)
    for path, taken in sorted(tally.times.items()):
        times = sorted(duration for _, duration in taken)
        # The first third has the start of the processes, which a short run is half of.
        warm = [each for start, each in taken if start > first_start + given.seconds / 3.0]
        end = _at(times, 0.95)
        late = end if path == "/api/estimate" else late
        print(
            f"{path:18} {len(times):7,} median {1e3 * _at(times, 0.5):6.0f} ms  "
            f"p95 {1e3 * end:6.0f} ms, {1e3 * _at(sorted(warm), 0.95):6.0f} ms when warm"
        )
    print(
        f"memory of server and workers: {before:.0f} MB before, {first:.0f} MB in the middle, "
        f"{last:.0f} MB towards the end, {after:.0f} MB after; {len(tally.errors)} errors"
    )
    for error in tally.errors[:5]:
        print("error:", error)
    clean = "Traceback" not in talk
    if not clean:
        print(talk[-2000:])
    return 0 if not tally.errors and clean and late < 1.0 and last < 1.1 * first else 1


if __name__ == "__main__":
    sys.exit(main())
