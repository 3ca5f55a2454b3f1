"""Processes that compute: stopped when nobody waits, renewed when one ends."""

import os
import signal
import time
from concurrent.futures import CancelledError

import pytest

from scalewise.errors import ScalewiseError
from scalewise.ui.background import Busy, Stopped, Workers, check
from waiting import PATIENCE, until


def spin(slot, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check(slot, 1, 2)
        time.sleep(0.005)
    return os.getpid()


def square(number):
    return number * number


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def workers():
    with Workers(2) as workers:
        workers.warm()
        yield workers


def test_work_is_done_elsewhere(workers):
    ticket = workers.ticket()
    assert ticket.run(spin, ticket.slot, 0.0) != os.getpid()
    workers.close_ticket(ticket)


def test_what_runs_is_stopped(workers):
    ticket = workers.ticket()
    future = ticket.submit(spin, ticket.slot, 2 * PATIENCE)
    until(lambda: ticket.progress > 0.0, "the job")
    assert ticket.progress == 0.5
    workers.close_ticket(ticket)
    with pytest.raises(Stopped):
        future.result(timeout=PATIENCE)


def test_a_place_is_used_again_only_when_its_last_job_ended(workers):
    free = len(workers._free)
    ticket = workers.ticket()
    future = ticket.submit(spin, ticket.slot, 2 * PATIENCE)
    workers.close_ticket(ticket)
    with pytest.raises((Stopped, CancelledError)):
        future.result(timeout=PATIENCE)
    until(lambda: len(workers._free) == free, "the place")


def test_a_worker_that_ends_is_replaced(workers):
    ticket = workers.ticket()
    with pytest.raises(ScalewiseError, match="a worker ended"):
        ticket.run(die, 0)
    assert ticket.run(square, 7) == 49
    workers.close_ticket(ticket)


def test_more_tickets_than_places_are_refused(workers):
    taken = [workers.ticket() for _ in range(len(workers._free))]
    with pytest.raises(Busy):
        workers.ticket()
    for ticket in taken:
        workers.close_ticket(ticket)
