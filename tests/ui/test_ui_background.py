"""Processes that compute: stopped when nobody waits, renewed when one ends."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from scalewise.ui.background import Busy, Stopped, WorkerLostError, Workers, check
from waiting import PATIENCE, finished, until


def spin(slot, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check(slot, 1, 2)
        time.sleep(0.005)
    return os.getpid()


def square(number):
    return number * number


def slow_square(number):
    time.sleep(0.01)
    return number * number


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(flag):
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def ask(workers, function, *arguments, ticket=None):
    return finished(workers.answer(function, *arguments, ticket=ticket))


@pytest.fixture(scope="module")
def workers():
    with Workers(2) as workers:
        workers.warm()
        yield workers


def test_work_is_done_elsewhere(workers):
    ticket = workers.ticket()
    assert ask(workers, spin, ticket.slot, 0.0, ticket=ticket) != os.getpid()
    workers.close_ticket(ticket)


def test_what_runs_is_stopped(workers):
    ticket = workers.ticket()

    async def leave():
        job = asyncio.create_task(workers.answer(spin, ticket.slot, 2 * PATIENCE, ticket=ticket))
        while ticket.progress == 0.0:
            await asyncio.sleep(0.01)
        assert ticket.progress == 0.5
        workers.close_ticket(ticket)
        with pytest.raises(Stopped):
            await asyncio.wait_for(job, PATIENCE)

    finished(leave())


def test_what_waits_is_stopped_before_it_begins(workers):
    ticket = workers.ticket()
    ticket.stop()
    with pytest.raises(Stopped):
        ask(workers, square, 7, ticket=ticket)
    workers.close_ticket(ticket)


def test_a_place_is_used_again_only_when_its_last_job_ended(workers):
    free = len(workers._free)
    ticket = workers.ticket()

    async def leave():
        job = asyncio.create_task(workers.answer(spin, ticket.slot, 2 * PATIENCE, ticket=ticket))
        while ticket.progress == 0.0:
            await asyncio.sleep(0.01)
        job.cancel()
        workers.close_ticket(ticket)

    finished(leave())
    until(lambda: len(workers._free) == free, "the place")


def test_a_job_that_kills_its_worker_is_no_fault_of_the_client(workers):
    with pytest.raises(WorkerLostError, match="killed 3 times"):
        ask(workers, die, 0)
    assert ask(workers, square, 7) == 49


def test_jobs_beside_a_killed_worker_are_computed_again(workers, tmp_path):
    """What `kill -9` or the out-of-memory killer does in the middle of a busy server."""

    async def many():
        jobs = [asyncio.create_task(workers.answer(slow_square, n)) for n in range(40)]
        jobs.append(asyncio.create_task(workers.answer(die_once, str(tmp_path / "died"))))
        return await asyncio.gather(*jobs)

    pools = []
    renewed = workers._new
    workers._new = lambda: pools.append(1) or renewed()
    try:
        answers = finished(many())
    finally:
        del workers._new
    assert answers == [*(n * n for n in range(40)), "alive"]
    assert len(pools) == 1


def test_more_tickets_than_places_are_refused(workers):
    taken = [workers.ticket() for _ in range(len(workers._free))]
    with pytest.raises(Busy):
        workers.ticket()
    for ticket in taken:
        workers.close_ticket(ticket)
