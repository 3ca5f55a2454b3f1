"""Connections that ask nothing make room for others; faults of the server are no 400."""

import asyncio
import json
import socket
import threading
import time

import pytest
import uvicorn

from scalewise.errors import InputError, MissingExtraError
from scalewise.ui import api
from scalewise.ui.background import Busy, WorkerLostError
from scalewise.ui.connections import Doors, limited
from scalewise.ui.server import SlowError, _refused
from waiting import PATIENCE, finished, until


class Connection:
    """A connection that remembers whether it was closed."""

    def __init__(self):
        self.transport, self.closed = self, False

    def abort(self):
        self.closed = True


class Handle:
    """A call that can be taken back; that it was made already does not matter."""

    def __init__(self, due, call):
        self.due, self.call = due, call

    def cancel(self):
        self.due[:] = [each for each in self.due if each is not self.call]


class Clock:
    """Calls what is due when the time is set."""

    def __init__(self):
        self.due = []

    def later(self, seconds, function, *arguments):
        call = [seconds, function, arguments]
        self.due.append(call)
        return Handle(self.due, call)

    def pass_by(self, seconds):
        for call in [each for each in self.due if each[0] <= seconds]:
            self.due.remove(call)
            call[1](*call[2])


def test_headers_have_a_deadline():
    clock, silent, asks = Clock(), Connection(), Connection()
    doors = Doors(clock.later, seconds=10.0)
    doors.enter(silent, "127.0.0.1")
    doors.enter(asks, "127.0.0.1")
    doors.expect(asks)
    doors.complete(asks)
    clock.pass_by(10.0)
    assert (silent.closed, asks.closed) == (True, False)
    assert list(doors.idle) == []


def test_the_oldest_idle_connection_makes_room():
    doors = Doors(Clock().later, most=3)
    first, *others = connections = [Connection() for _ in range(4)]
    doors.enter(first, "127.0.0.1")
    doors.complete(first)
    for each in others:
        doors.enter(each, "127.0.0.1")
    assert not any(each.closed for each in connections)
    late = Connection()
    doors.enter(late, "127.0.0.1")
    # The first one waits for its answer.
    assert [each.closed for each in connections] == [False, True, False, False]
    assert not late.closed
    doors.answered(first, "127.0.0.1")
    assert list(doors.idle) == [*others[1:], late, first]


def test_one_address_does_not_push_out_others():
    doors = Doors(Clock().later, most=10, most_of_address=2)
    mine, *many = [Connection() for _ in range(6)]
    doors.enter(mine, "10.0.0.1")
    for each in many:
        doors.enter(each, "10.0.0.2")
    assert not mine.closed
    assert [each.closed for each in many] == [True, True, True, False, False]


def test_what_left_leaves_nothing_behind():
    clock = Clock()
    doors = Doors(clock.later)
    for _ in range(3):
        gone = Connection()
        doors.enter(gone, "127.0.0.1")
        doors.leave(gone)
    assert (dict(doors.idle), doors.deadlines, clock.due) == ({}, {}, [])


async def hello(scope, receive, send):
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
def port():
    """A real server that gives headers half a second, and three idle connections room."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            hello, http=limited(seconds=0.5, most=3), lifespan="off", log_level="error"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, "the server")
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(PATIENCE)


def closed(client):
    client.settimeout(PATIENCE)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silent_connections_shut_nobody_out(port):
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for each in silent:
        each.sendall(b"GET / HTTP/1.1\r\n")
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(2):
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            client.settimeout(PATIENCE)
            answer = b""
            while not answer.endswith(b"hi"):
                answer += client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200")
            # A kept connection is no stranger: the deadline starts with its next request.
            time.sleep(0.6)
        client.sendall(b"GET / HT")
        assert closed(client)
    assert all(closed(each) for each in silent)
    for each in silent:
        each.close()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("wrong"), 400),
        (Busy("busy"), 503),
        (SlowError("slow"), 408),
        (WorkerLostError("killed"), 500),
        (MissingExtraError("none"), 500),
    ],
)
def test_only_what_is_asked_wrongly_is_a_fault_of_the_client(error, status):
    response = _refused(error)
    assert response.status_code == status
    assert json.loads(response.body)["error"] == str(error)


def test_a_slow_body_is_given_up(monkeypatch):
    from starlette.requests import Request

    from scalewise.ui import server

    monkeypatch.setattr(server, "BODY_SECONDS", 0.05)

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(SlowError, match="did not arrive within"):
        finished(server._body(Request({"type": "http", "method": "POST"}, receive)))


def test_who_asks_for_the_nearest_runs_waits_until_they_are_laid_out():
    """Without a thread, which others need, and without laying them out again."""
    from scalewise.ui.server import Service

    async def ask():
        service, asked = Service(token=None, workers=1), []
        service.indexed = asyncio.get_running_loop().create_future()

        async def in_thread(function, *arguments):
            asked.append(arguments[0])
            return b"{}"

        service._in_thread = in_thread
        known = {each.path: each for each in api.ENDPOINTS}
        waiting = asyncio.create_task(service._compute(known["/api/nearest"], None, b"{}", None))
        await service._compute(known["/api/catalog"], None, b"", None)
        assert asked == ["/api/catalog"]
        service.indexed.set_result([])
        await waiting
        return asked

    assert finished(ask()) == ["/api/catalog", "/api/nearest"]
