import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_traces as toy
from scalewise.errors import InputError
from scalewise.trace.breakdown import break_down
from scalewise.trace.collect import _Gatherer
from scalewise.trace.read import read_trace
from scalewise.trace.stream import Event

MICRO = 1e-6


def micro(times):
    """(window, compute, communication, overlapped, exposed, copy, copy only, idle) in us."""
    return tuple(
        round(getattr(times, name) / MICRO, 6)
        for name in times.__struct_fields__
        if name.endswith("_seconds")
    )


@pytest.fixture
def summary(tmp_path):
    """Read events as a trace of rank 0 of 8."""

    def make(events, **options):
        return read_trace(toy.write(tmp_path / "t.json", events, **toy.info()), **options)

    return make


def test_a_hundred_microseconds(summary):
    found = summary(toy.hundred())
    assert micro(found) == (100, 52, 40, 15, 25, 0, 0, 23)
    assert found.overlap_pct == 37.5
    assert (found.world_size, found.ranks[0].rank, found.ranks[0].device) == (8, 0, "gpu 0")
    assert (found.ranks[0].events, found.ranks[0].complete, found.steps) == (5, True, ())
    assert found.notes == ("The trace has no steps: call prof.step() after each to have them.",)


def test_order_streams_and_repetition_change_nothing(summary):
    events = toy.hundred()
    beside = [
        toy.kernel(10, 10, stream=9),
        toy.kernel(60, 20, stream=9),
        toy.nccl(30, 5, stream=21),
    ]
    found = summary([*beside, *events[::-1], *events])
    assert micro(found) == (100, 52, 40, 15, 25, 0, 0, 23)


def test_copies_are_apart(summary):
    # 45-55 and 85-98 are idle; copies in 40-50 and 90-91, one under compute.
    found = summary([*toy.hundred(), toy.copy(40, 10), toy.copy(90, 1), toy.copy(5, 5)])
    assert micro(found) == (100, 52, 40, 15, 25, 16, 6, 17)
    listed = [toy.kernel(40, 10, "Memcpy DtoD (Device -> Device)"), toy.kernel(90, 1, "Memset")]
    assert micro(summary([*toy.hundred(), *listed])) == (100, 52, 40, 15, 25, 11, 6, 17)


def test_what_is_no_work_is_not_counted(summary):
    noise = [
        toy.event("cuda_runtime", "cudaLaunchKernel", -50, 500),
        toy.event("gpu_user_annotation", "nccl:all_reduce", 20, 70, 0, 20),
        toy.event("user_annotation", "nccl:all_reduce", 0, 90),
        toy.event("overhead", "Buffer Flush", 0, 90),
        toy.event("Trace", "PyTorch Profiler (0)", -1000, 5000, "Spans", "x"),
        toy.operator(0, 500),
        {"ph": "X", "cat": "kernel", "name": "no time", "pid": 0, "tid": 7, "ts": 500.0},
        {"ph": "X", "cat": "kernel", "name": "negative", "pid": 0, "ts": 500.0, "dur": -1},
        {"ph": "X", "cat": "kernel", "name": "never", "pid": 0, "ts": 1e300, "dur": 1},
        {"ph": "i", "cat": "kernel", "name": "instant", "pid": 0, "ts": 500.0, "dur": 9},
    ]
    assert micro(summary([*noise, *toy.hundred()])) == (100, 52, 40, 15, 25, 0, 0, 23)


def test_a_compiled_operator_shares_its_name_with_its_kernel(summary):
    name = "triton_poi_fused_add_0"
    found = summary([toy.operator(0, 5, name), toy.kernel(0, 10, name), toy.nccl(5, 10)])
    assert micro(found) == (15, 10, 10, 5, 5, 0, 0, 0)


def test_calls_by_collective_group_and_size(summary):
    dp = {"Process Group Name": "2", "Process Group Description": "mesh_tp", "Group size": 4}
    events = [
        *toy.hundred(),
        toy.nccl(100, 10, **dp, **{"In msg nelems": 100, "Out msg nelems": 100}),
        toy.nccl(105, 10, **dp, **{"In msg nelems": 120, "Out msg nelems": 120}),
        toy.nccl(120, 5, **dp, **{"In msg nelems": 0, "Out msg nelems": 0}),
    ]
    found = summary(events)
    assert [(c.name, c.calls, c.group_size, c.bytes) for c in found.collectives] == [
        ("all_reduce", 4, None, (2 << 20) + 440),
        ("all_gather", 1, 8, 16 << 20),
    ]
    reduce, collect = found.collectives
    assert reduce.communication_seconds == pytest.approx(45 * MICRO)
    assert reduce.exposed_seconds == pytest.approx(40 * MICRO)
    assert reduce.overlap_pct == pytest.approx(100 * 5 / 45)
    assert (reduce.smallest_bytes, reduce.largest_bytes) == (0, 2 << 20)
    assert collect.overlap_pct == pytest.approx(100 * 10 / 15)
    assert [(g.name, g.group_size, g.calls) for g in found.groups] == [
        ("mesh_dp", 8, 2), ("mesh_tp", 4, 3),
    ]  # fmt: skip
    assert sum(g.communication_seconds for g in found.groups) == pytest.approx(60 * MICRO)
    # 200 and 240 bytes lie between the same powers of two.
    assert {(s.name, s.calls, s.smallest_bytes, s.largest_bytes) for s in found.sizes} == {
        ("all_reduce", 1, 2 << 20, 2 << 20), ("all_gather", 1, 16 << 20, 16 << 20),
        ("all_reduce", 2, 200, 240), ("all_reduce", 1, 0, 0),
    }  # fmt: skip


def test_a_kernel_that_tells_nothing_is_asked_of_its_launcher(summary):
    text = toy.nccl(0, 1)["args"]
    launch = toy.event("cpu_op", "record_param_comms", 0, 9, **(text | {"External id": 77}))
    bare = toy.kernel(10, 5, toy.SEND_RECV, **{"External id": 77})
    other = toy.kernel(20, 5, toy.SEND_RECV, **{"External id": 78})
    # In either order: nothing in a trace is sorted.
    for events in ([launch, bare, other], [other, bare, launch]):
        found = summary([toy.kernel(0, 1), *events])
        assert {(c.name, c.group_size, c.bytes) for c in found.collectives} == {
            ("all_reduce", 8, 2 << 20), ("send_recv", None, None),
        }  # fmt: skip
        assert {group.name for group in found.groups} == {"mesh_dp", "unknown"}


def test_the_only_group_needs_no_name(tmp_path):
    only = toy.info(pg_config=[{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8}])
    path = toy.write(tmp_path / "t.json", [toy.kernel(0, 9, toy.SEND_RECV)], **only)
    assert [(g.name, g.group_size) for g in read_trace(path).groups] == [("default_pg", 8)]


STEPS = [
    toy.step(5, 0, 100), toy.step(6, 100, 90), toy.step(7, 200, 50),
    *toy.hundred(), toy.kernel(110, 40), toy.nccl(140, 20), toy.kernel(210, 500),
]  # fmt: skip


def test_steps_by_the_host_and_the_last_is_left_out(summary):
    found = summary(STEPS)
    # Of 6: 100-190 with compute 110-150 and communication 140-160. Of 7: 200-250.
    assert [(s.step, s.counted) for s in found.steps] == [(5, True), (6, True), (7, False)]
    assert [micro(s) for s in found.steps] == [
        (100, 52, 40, 15, 25, 0, 0, 23), (90, 40, 20, 10, 10, 0, 0, 40),
        (50, 40, 0, 0, 0, 0, 0, 10),
    ]  # fmt: skip
    assert found.steps[2].overlap_pct is None
    assert micro(found) == (160, 92, 60, 25, 35, 0, 0, 33)
    assert found.ranks[0].step_clock == "host"
    assert "The last step is not counted" in found.notes[0]
    assert "Steps are the times the host spent in them" in found.notes[1]
    whole = summary(STEPS, last_step=True)
    assert micro(whole) == (710, 592, 60, 25, 35, 0, 0, 83)
    assert all(step.counted for step in whole.steps)


def test_steps_by_the_device_follow_the_device(summary):
    lagging = [
        toy.step(1, -500, 20), toy.step(2, -480, 20), toy.step(3, -460, 20),
        toy.device_step(1, 0, 80), toy.device_step(1, 20, 65, stream=20),
        toy.device_step(2, 98, 2), toy.device_step(2, 110, 40, stream=20),
        toy.device_step(3, 160, 30),
    ]  # fmt: skip
    events = [*lagging, *toy.hundred(), toy.nccl(110, 40), toy.kernel(160, 30)]
    found = summary(events)
    assert found.ranks[0].step_clock == "device"
    # A step lasts until the next one begins.
    assert [micro(s)[:5] for s in found.steps] == [
        (98, 50, 40, 15, 25), (62, 2, 40, 0, 40), (30, 30, 0, 0, 0),
    ]  # fmt: skip
    assert [s.counted for s in found.steps] == [True, True, False]
    assert micro(found)[:2] == (150, 52)


def test_one_step_is_all_there_is(summary):
    found = summary([toy.step(1, 0, 50), *toy.hundred()])
    assert micro(found)[0] == 100
    assert found.steps[0].counted


# On the CPU.

CPU = [
    toy.step(0, 0, 100), toy.step(1, 100, 100),
    toy.operator(10, 30), toy.operator(12, 5, "aten::t"), toy.operator(60, 20),
    toy.operator(5, 90, "autograd::engine::evaluate_function: X"),
    toy.operator(40, 20, "c10d::allreduce_"),
    toy.gloo(30, 25), toy.gloo(55, 10, "gloo:all_gather"), toy.gloo(85, 10, "gloo:barrier"),
    toy.operator(56, 3, "aten::copy_", tid=2), toy.operator(150, 10), toy.gloo(190, 30),
]  # fmt: skip


def test_gloo_on_the_cpu(tmp_path):
    only = toy.info(pg_config=[{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2}])
    found = read_trace(toy.write(tmp_path / "t.json", CPU, **only))
    # Compute 10-40, 60-80, 150-160; communication 30-65, 190-200 and what is after the steps
    # does not count. Gloo's own copy in thread 2 hides nothing.
    assert micro(found) == (200, 60, 45, 15, 30, 0, 0, 110)
    assert micro(found.steps[0]) == (100, 50, 35, 15, 20, 0, 0, 30)
    assert [s.counted for s in found.steps] == [True, True]
    assert found.ranks[0].device == "cpu"
    assert [(c.name, c.calls, c.bytes) for c in found.collectives] == [
        ("all_reduce", 2, 8000), ("all_gather", 1, 8000),
    ]  # fmt: skip
    assert found.notes == (
        "Barriers are not counted as communication, because they move nothing; waiting in them is "
        "idle time. There are 1.",
    )


def test_gloo_called_from_the_thread_that_computes(summary):
    events = [toy.operator(0, 40), toy.gloo(30, 30, tid=1), toy.operator(70, 30)]
    assert micro(summary(events)) == (100, 70, 30, 10, 20, 0, 0, 10)


def test_a_gpu_trace_with_gloo_counts_the_gpu_and_says_so(summary):
    found = summary([*toy.hundred(), toy.gloo(0, 500), toy.operator(0, 900)])
    assert micro(found)[:3] == (100, 52, 40)
    assert "not counted beside those on the GPU; there are 1." in found.notes[0]


# Several ranks.


def test_ranks_are_averaged_so_that_times_add_up(tmp_path):
    toy.write(tmp_path / "b.json.gz", toy.hundred(), **toy.info(rank=1))
    toy.write(tmp_path / "a.json", [toy.kernel(0, 60), toy.kernel(90, 10)], **toy.info(rank=0))
    (tmp_path / "notes.txt").write_text("not a trace")
    found = read_trace(tmp_path)
    assert [(r.rank, r.compute_seconds) for r in found.ranks] == [
        (0, pytest.approx(70 * MICRO)), (1, pytest.approx(52 * MICRO)),
    ]  # fmt: skip
    assert micro(found) == (100, 61, 20, 7.5, 12.5, 0, 0, 26.5)
    # Of all communication, not the mean of percentages: one rank has none.
    assert found.overlap_pct == pytest.approx(37.5)
    assert found.ranks[0].overlap_pct is None
    assert [(c.name, c.calls) for c in found.collectives] == [
        ("all_reduce", 0.5),
        ("all_gather", 0.5),
    ]
    assert read_trace(str(tmp_path / "*.json*")) == found
    assert read_trace([tmp_path / "b.json.gz", tmp_path / "a.json"]) == found
    assert read_trace([tmp_path, tmp_path / "a.json"]) == found


def test_steps_are_averaged_over_the_ranks_that_have_them(tmp_path):
    toy.write(tmp_path / "a.json", [toy.operator(0, 10), toy.step(1, 0, 20)], **toy.info(0))
    both = [toy.operator(0, 30), toy.step(1, 0, 40), toy.step(2, 40, 10)]
    toy.write(tmp_path / "b.json", both, **toy.info(1))
    found = read_trace(tmp_path)
    assert [(s.step, micro(s)[:2]) for s in found.steps] == [(1, (30, 20)), (2, (10, 0))]


def test_two_devices_in_one_file_are_two_ranks(summary):
    far = [toy.kernel(20, 25, device=1), toy.copy(0, 900, device=2)]
    found = summary([*toy.hundred(), *far])
    # Compute of the other device hides nothing here; a device that only lent memory did no work.
    assert [r.device for r in found.ranks] == ["gpu 0", "gpu 1"]
    assert micro(found.ranks[0]) == (100, 52, 40, 15, 25, 0, 0, 23)
    assert micro(found.ranks[1]) == (25, 25, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "meta", "rank"),
    [("worker_rank12.json", {}, 12), ("rank-3.pt.trace.json", {}, 3), ("x.json", {}, None),
     ("rank7.json", toy.info(rank=2), 2)],
)  # fmt: skip
def test_ranks_by_the_trace_then_by_the_name(tmp_path, name, meta, rank):
    assert read_trace(toy.write(tmp_path / name, toy.hundred(), **meta)).ranks[0].rank == rank


def test_a_rank_read_twice_is_said(tmp_path):
    for name in ("a.json", "b.json"):
        toy.write(tmp_path / name, toy.hundred(), **toy.info(rank=4))
    assert "Rank 4 was read from several files" in read_trace(tmp_path).notes[0]


# What is refused.


def test_a_cut_file_is_refused_or_used_in_part(tmp_path):
    path = toy.write(tmp_path / "t.json", toy.hundred())
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b'"ts": 98')])
    with pytest.raises(InputError, match=r"is not whole: .*; 4 events could be read") as caught:
        read_trace(path)
    assert "--partial" in caught.value.hint
    found = read_trace(path, partial=True)
    assert micro(found) == (85, 50, 40, 15, 25, 0, 0, 10)
    assert not found.ranks[0].complete
    assert "Only 4 events were used." in found.notes[0]


def test_damaged_events_are_refused_or_left_out(tmp_path):
    path = toy.write(tmp_path / "t.json", toy.hundred())
    path.write_text(path.read_text().replace('"ts": 98', '"ts" 98'))
    with pytest.raises(InputError, match="1 of 5 events are not valid JSON"):
        read_trace(path)
    assert micro(read_trace(path, partial=True))[0] == 85


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "has 0 events, but no kernel"),
        ([toy.step(0, 0, 9)], "has 1 events, but no kernel"),
        ([toy.operator(0, 9), toy.event("user_annotation", "nccl:all_reduce", 0, 9)],
         "no GPU kernels, although it launches NCCL"),
    ],
)  # fmt: skip
def test_traces_without_work_are_refused(summary, events, said):
    with pytest.raises(InputError, match=said):
        summary(events)


def test_nothing_found_is_said(tmp_path):
    with pytest.raises(InputError, match="holds no trace"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="no file matches"):
        read_trace(str(tmp_path / "*.json"))
    with pytest.raises(InputError, match="no trace is named"):
        read_trace([])


# Against another tool.

# HolisticTraceAnalysis 0.5.0 on the trace that `toy.busy_rank` makes: get_comm_comp_overlap and
# get_temporal_breakdown, as they are, and with include_last_profiler_step=True.
HTA = [
    (False, 59.10, 10_777, 10_955, 3_693, 25_425),
    (True, 60.95, 16_269, 14_851, 4_718, 35_838),
]


@pytest.mark.parametrize(("last", "overlap", "idle", "compute", "other", "window"), HTA)
def test_agrees_with_holistic_trace_analysis(tmp_path, last, overlap, idle, compute, other, window):
    path = toy.write(tmp_path / "t.json.gz", toy.busy_rank(), **toy.info())
    found = read_trace(path, last_step=last)
    assert found.overlap_pct == pytest.approx(overlap, abs=0.005)
    text = micro(found)
    assert (text[0], text[1], text[7]) == (window, compute, idle)
    # It has one word for communication and copies that are not under compute.
    assert text[4] + text[6] == other


# The same on two traces of its test data (MIT licence), which are not shipped here:
# SCALEWISE_TRACES names a folder that has them.
PUBLISHED = [
    ("two_gpu_allreduce_rank0.json.gz", 14.31, 77.78, 17.26),
    ("sampled_128gpu_rank0.json.gz", 11.81, 53.56, 17.71),
]


@pytest.mark.skipif("SCALEWISE_TRACES" not in os.environ, reason="SCALEWISE_TRACES is not set")
@pytest.mark.parametrize(("name", "overlap", "idle", "compute"), PUBLISHED)
def test_agrees_on_published_traces(name, overlap, idle, compute):
    found = read_trace(Path(os.environ["SCALEWISE_TRACES"]) / name)
    assert found.overlap_pct == pytest.approx(overlap, abs=1.0)
    assert 100 * found.idle_seconds / found.window_seconds == pytest.approx(idle, abs=1.0)
    assert 100 * found.compute_seconds / found.window_seconds == pytest.approx(compute, abs=1.0)


# For any trace.

times = st.tuples(st.integers(0, 300), st.integers(1, 60))
many = st.lists(times, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(times, min_size=1, max_size=12), many, many, st.lists(st.integers(1, 90), max_size=3)
)
def test_times_add_up_in_every_window(compute, communication, copies, lengths):
    events = [toy.kernel(*each) for each in compute]
    events += [toy.nccl(*each) for each in communication] + [toy.copy(*each) for each in copies]
    start = 0
    for number, length in enumerate(lengths):
        events.append(toy.step(number, start, length))
        start += length
    gatherer = _Gatherer()
    gatherer.feed(msgspec.json.decode(msgspec.json.encode(events), type=list[Event]))
    (lane,) = gatherer.collected({}).lanes
    rank = break_down(lane, last_step=True, rank=0, file="", events=0, complete=True)
    for part in (rank, *rank.steps):
        window, computed, communicated, overlapped, exposed, _, copied, idle = micro(part)
        assert exposed + overlapped == pytest.approx(communicated)
        assert computed + exposed + copied + idle == pytest.approx(window)
        assert min(overlapped, exposed, copied, idle) >= 0

    def covered(pairs):
        return {t for start, length in pairs for t in range(start, start + length)}

    both = covered(compute) & covered(communication)
    assert micro(rank)[3] == len(both)
    assert micro(rank)[4] == len(covered(communication) - covered(compute))
