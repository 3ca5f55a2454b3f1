"""The engine by hand: every time below can be checked with pencil and paper."""

import sys

import pytest

from scalewise.simulation.engine import DeadlockError, simulation
from scalewise.simulation.graph import Graph


def times(graph, **options):
    found = simulation(graph, **options)
    return list(zip(found.start, found.end, strict=True))


def test_a_stream_keeps_its_order():
    graph = Graph()
    lane = graph.stream()
    graph.add(2.0, stream=lane)
    graph.add(1.0, stream=lane)
    assert times(graph) == [(0.0, 2.0), (2.0, 3.0)]


def test_streams_run_side_by_side_and_meet_where_one_waits():
    graph = Graph()
    first, second = graph.stream(), graph.stream()
    a = graph.add(2.0, stream=first)
    b = graph.add(5.0, stream=second)
    graph.add(1.0, stream=first, after=(b,))
    graph.add(1.0, stream=second, after=(a,))
    assert times(graph) == [(0.0, 2.0), (0.0, 5.0), (5.0, 6.0), (5.0, 6.0)]


def test_a_task_can_wait_for_a_start():
    graph = Graph()
    lane = graph.stream()
    graph.add(1.0, stream=lane)
    block = graph.add(4.0, stream=lane)
    graph.add(1.0, after_start=block)
    assert times(graph)[2] == (1.0, 2.0)


def test_a_link_carries_one_message_at_a_time_in_the_order_of_readiness():
    graph = Graph()
    link = graph.resource()
    late = graph.add(3.0)
    graph.add(1.0, after=(late,), resources=(link,))  # ready at 3
    graph.add(5.0, resources=(link,))  # ready at 0
    early = graph.add(2.0)
    graph.add(1.0, after=(early,), resources=(link,))  # ready at 2, before the one above
    assert times(graph)[1:] == [(6.0, 7.0), (0.0, 5.0), (0.0, 2.0), (5.0, 6.0)]


def test_a_message_needs_both_of_its_ends():
    graph = Graph()
    a, b, c = graph.resource(), graph.resource(), graph.resource()
    graph.add(2.0, resources=(a, b))
    graph.add(2.0, resources=(b, c))  # waits for b
    graph.add(1.0, resources=(c,))  # c is free meanwhile
    assert times(graph) == [(0.0, 2.0), (2.0, 4.0), (0.0, 1.0)]


@pytest.mark.parametrize(
    ("communication", "ends"),
    [
        (0.0, 10.0),
        (4.0, 12.0),  # half a second lost for each of the 4
        (10.0, 15.0),
        (14.0, 15.0),  # no more than half a second per second of its own work
        (30.0, 15.0),
    ],
)
def test_compute_is_held_up_by_communication_beside_it(communication, ends):
    graph = Graph()
    graph.add(communication, rank=0, slows=True)
    block = graph.add(10.0, rank=0)
    assert simulation(graph, contention=0.5).end[block] == ends


def test_communication_of_another_rank_does_not_slow():
    graph = Graph()
    graph.add(4.0, rank=1, slows=True)
    block = graph.add(10.0, rank=0)
    assert simulation(graph, contention=0.5, ranks=2).end[block] == 10.0


def test_only_the_part_that_runs_beside_it_counts():
    graph = Graph()
    lane = graph.stream()
    graph.add(8.0, rank=0, slows=True)
    graph.add(5.0, stream=lane)  # not slowed: no rank
    block = graph.add(10.0, stream=lane, rank=0)  # 3 of the 8 seconds run beside it
    assert times(graph, contention=0.5)[block] == (5.0, 16.5)


def test_a_circle_is_refused():
    graph = Graph()
    a = graph.add(1.0)
    b = graph.add(1.0, after=(a,))
    graph.wait(a, b)
    with pytest.raises(DeadlockError, match="2 of 2 tasks"):
        simulation(graph)


def test_an_empty_graph_takes_no_time():
    assert simulation(Graph()).seconds == 0.0


def chain(count):
    graph = Graph()
    lane, link = graph.stream(), graph.resource()
    for _ in range(count):
        block = graph.add(1.0, stream=lane, rank=0)
        graph.add(0.5, after=(block,), resources=(link,), rank=0, slows=True)
    return graph


def test_cost_grows_linearly_with_tasks():
    def calls(count):
        """Function calls that playing takes: what time would say, without the noise."""
        graph, made = chain(count), 0

        def note(frame, event, argument):
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            simulation(graph, contention=0.1)
        finally:
            sys.setprofile(None)
        return made

    few = calls(500)
    assert few > 1_000
    assert calls(4_000) == pytest.approx(8 * few, rel=0.02)
