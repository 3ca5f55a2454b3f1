"""A replay adds up what the program waits for, by hand."""

import msgspec
import pytest

from captures import capture, collective, kernel
from scalewise.errors import InputError
from scalewise.physics.compute import KERNEL_SECONDS
from scalewise.program.events import Event, Group, read_captures
from scalewise.program.replay import LAUNCH_SECONDS, Rates, replay
from scalewise.step.estimate import estimate
from scalewise.strategy import parse_strategy
from toys import toy_cluster, toy_model, toy_stack, toy_workload


@pytest.fixture(scope="module")
def case():
    """A machine without overhead, stragglers and contention."""
    workload = toy_workload(global_batch=8)
    many = estimate(
        toy_model(), toy_cluster(8), workload, [parse_strategy("fsdp8-mb1")], stack=toy_stack()
    )
    return many.case.changed(
        overhead_seconds=many.case.habits.overhead_seconds * 0.0,
        straggler=many.case.habits.straggler * 0.0,
        contention=many.case.habits.contention * 0.0,
    )


def seconds(rates, events):
    return [rates.kernel(event) for event in events]


def test_kernels_of_one_stream_follow_each_other(case):
    memory = Rates(case).memory
    events = [kernel(1, read=memory), kernel(2, written=2.0 * memory)]
    found = replay([capture(events)], case, {})
    assert found.compute == {"other": pytest.approx(3.0 + 2.0 * KERNEL_SECONDS)}
    assert found.seconds == pytest.approx(LAUNCH_SECONDS + 3.0 + 2.0 * KERNEL_SECONDS)
    assert found.exposed == {}


def gather(tick, **fields):
    return collective(tick, "all_gather", "g", 1e9, asynchronous=True, **fields)


def test_a_collective_that_nobody_waits_for_is_overlapped(case):
    rates = Rates(case)
    spent = rates.collective(gather(1), Group(name="g", dimension="dp", ranks=tuple(range(8))))
    long = kernel(2, read=10.0 * spent * rates.memory)
    found = replay([capture([gather(1), long])], case, {"g": "shard"})
    assert found.communication == {"shard": pytest.approx(spent)}
    # It starts a launch before the kernel does.
    assert found.exposed["shard"] == pytest.approx(LAUNCH_SECONDS, rel=1e-6)
    assert found.seconds == pytest.approx(2 * LAUNCH_SECONDS + 10.0 * spent + KERNEL_SECONDS)


def test_a_collective_that_a_kernel_waits_for_is_exposed(case):
    rates = Rates(case)
    spent = rates.collective(gather(1), Group(name="g", dimension="dp", ranks=tuple(range(8))))
    events = [gather(1), Event(tick=2, kind="wait", on=1), kernel(3, read=rates.memory)]
    found = replay([capture(events)], case, {"g": "shard"})
    assert found.exposed["shard"] == pytest.approx(spent)
    assert found.seconds == pytest.approx(LAUNCH_SECONDS + spent + 1.0 + KERNEL_SECONDS)


def test_streams_wait_for_each_other_where_the_program_says_so(case):
    memory = Rates(case).memory
    free = [kernel(1, read=memory), kernel(2, read=memory, stream=1)]
    bound = [free[0], Event(tick=9, kind="stream_wait", stream=1, on=0, until=1), free[1]]
    assert replay([capture(free)], case, {}).seconds == pytest.approx(1.0, rel=1e-4)
    assert replay([capture(bound)], case, {}).seconds == pytest.approx(2.0, rel=1e-4)


def test_a_stage_waits_for_what_another_sends(case):
    groups = {"p": Group(name="p", dimension="pp", ranks=(0, 1))}
    memory = Rates(case).memory
    sends = [kernel(1, read=3.0 * memory), collective(2, "send", "p", 1.0, peer=1)]
    takes = [collective(1, "recv", "p", 1.0, peer=0), Event(tick=2, kind="wait", on=1),
             kernel(3, read=memory)]  # fmt: skip
    first = capture(sends, world=2, groups=groups)
    second = capture(takes, world=2, groups=groups, rank=1)
    found = replay([first, second], case, {"p": "pipeline"})
    assert found.seconds == pytest.approx(4.0, rel=1e-3)
    assert found.rank == 0


def test_a_product_has_the_time_of_the_physics(case):
    # 4096 x 4096 x 4096 in 16 bits.
    event = kernel(1, flops=2.0 * 4096**3, shapes=((4096, 4096), (4096, 4096)))
    rate = float(case.rates.gemm16[0] if case.rates.gemm16.ndim else case.rates.gemm16)
    ideal = 2.0 * 4096**3 / rate
    assert ideal < Rates(case).kernel(event) < 1.3 * ideal


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (collective(7, "scan", "g", 8.0), "event 7: unknown collective `scan`"),
        (collective(7, "all_gather", "h", 8.0), "event 7: unknown group `h`"),
        (kernel(7, read=-1.0), "event 7: read = -1"),
        (kernel(7, flops=1e30), r"event 7: flops = 1e\+30"),
    ],
)
def test_a_file_with_an_event_that_cannot_be_is_refused(event, message, tmp_path):
    path = tmp_path / "capture.json"
    path.write_bytes(msgspec.json.encode([capture([event])]))
    with pytest.raises(InputError, match=message):
        read_captures(path)
