"""The trace in Perfetto's own trace processor, by SQL: what we wrote is what it reads.

No overlaps on a track, exposed communication as ours, an arrow for every message, counters, names,
and nothing that it counts as an error of the file.
"""

import gzip
import json
from collections import Counter

import pytest

from scalewise.simulation.trace import write_trace
from timeline_cases import line

STEPS = {
    "fsdp": {"spelled": "fsdp64-mb1", "batch": 128},
    "bound by gathers": {"spelled": "fsdp2048-mb1", "batch": 2048, "seq_len": 1024},
    "tensor and context": {"spelled": "fsdp4-tp4-cp4-mb1", "batch": 8, "seq_len": 16384},
    "pipeline": {"spelled": "fsdp4-tp2-pp4-mb1", "batch": 32},
    "interleaved": {"spelled": "zero1x4-tp2-pp4-v2-mb1", "batch": 32},
    "zero bubble": {"spelled": "zero1x4-pp4-zbv-mb1", "batch": 32},
    "experts": {"spelled": "fsdp32-ep16-mb1", "batch": 64, "model": "llama-4-scout"},
    "jitter": {"spelled": "fsdp8-pp2-mb1", "batch": 32, "jitter": 0.1},
}

OVERLAPS = """
SELECT COUNT(*) AS n FROM (
  SELECT ts, LAG(ts + dur) OVER (PARTITION BY track_id ORDER BY ts) AS before FROM slice
) WHERE before > ts
"""

# Walks along the time: how long does data move while no stream that it can hide behind is busy?
EXPOSED = """
WITH lane AS (
  SELECT slice.ts, slice.ts + slice.dur AS past, thread.name = 'data parallel' AS moves,
    thread.name IN ('compute', 'tensor parallel', 'context parallel', 'expert parallel')
      AS works
  FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
  JOIN process USING (upid) WHERE process.pid = {rank} AND slice.ts < {until}
),
edges AS (
  SELECT ts, moves, works FROM lane UNION ALL SELECT past AS ts, -moves, -works FROM lane
),
spans AS (
  SELECT LEAD(ts) OVER (ORDER BY ts) - ts AS span, SUM(moves) OVER (ORDER BY ts) AS moving,
    SUM(works) OVER (ORDER BY ts) AS working
  FROM edges
)
SELECT COALESCE(SUM(span), 0) AS n FROM spans WHERE moving > 0 AND working = 0
"""

ARROWS = """
SELECT COUNT(*) AS n FROM flow
JOIN slice AS a ON flow.slice_out = a.id JOIN slice AS b ON flow.slice_in = b.id
WHERE a.ts = b.ts AND a.dur = b.dur AND a.track_id <> b.track_id
"""


ERRORS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"

SLICES = """
SELECT pid, tid, ts, dur, slice.name AS name, depth, EXTRACT_ARG(slice.arg_set_id, 'args.layer')
  AS layer
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
JOIN process USING (upid)
"""

COUNTERS = """
SELECT pid, process_counter_track.name AS name, COUNT(*) AS n, MAX(value) AS peak
FROM counter JOIN process_counter_track ON counter.track_id = process_counter_track.id
JOIN process USING (upid) GROUP BY pid, process_counter_track.name
"""

THREADS = """
SELECT pid, process.name AS process, thread.name AS stream, is_main_thread AS main
FROM thread JOIN process USING (upid) WHERE thread.name IS NOT NULL ORDER BY pid, tid
"""


class Loaded:
    """A step of STEPS, its trace, and the processor that has read it."""

    def __init__(self, name, path, perfetto):
        self.name = name
        self.line = line(**STEPS[name])
        self.count = write_trace(self.line, path)
        self.events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        self.messages = sum(
            1 for label in self.line.simulation.step.labels if label and label.stream == "pipeline"
        )
        self.processor = perfetto.open(path)

    def rows(self, query):
        return list(self.processor.query(query))

    def number(self, query):
        (row,) = self.rows(query)
        return row.n


# One parameter at a time, so that the processor has the trace in hand that a test asks about.
@pytest.fixture(scope="module", params=STEPS)
def step(request, perfetto, tmp_path_factory):
    loaded = Loaded(request.param, tmp_path_factory.mktemp("trace") / "step.json.gz", perfetto)
    with loaded.processor:
        yield loaded


def test_perfetto_finds_no_error_in_the_file(step):
    assert [(row.name, row.value) for row in step.rows(ERRORS)] == []


def test_perfetto_reads_every_slice_where_we_put_it(step):
    written = Counter(
        (e["pid"], e["tid"], round(e["ts"] * 1000), round(e["dur"] * 1000), e["name"],
         e["args"].get("layer"))
        for e in step.events if e["ph"] == "X"
    )  # fmt: skip
    rows = step.rows(SLICES)
    assert Counter((r.pid, r.tid, r.ts, r.dur, r.name, r.layer) for r in rows) == written
    assert len(rows) > 100
    assert {r.depth for r in rows} == {0}


def test_nothing_overlaps_on_a_track(step):
    assert step.number(OVERLAPS) == 0


def test_exposed_communication_by_sql_is_ours(step):
    simulation = step.line.simulation
    until = round(simulation.times.seconds * 1e9)
    for rank in step.line.ranks:
        ours = simulation.exposed(rank)["data_parallel"] - simulation.closing.gather[rank]
        found = step.number(EXPOSED.format(rank=rank, until=until)) / 1e9
        assert found == pytest.approx(ours, rel=1e-4, abs=2e-6)
    if step.name in ("fsdp", "bound by gathers", "pipeline"):
        assert ours > 1e-3  # there is something to find


def test_every_message_has_an_arrow(step):
    pipelined = step.name in ("pipeline", "interleaved", "zero bubble", "jitter")
    assert (step.messages > 0) == pipelined
    assert step.number("SELECT COUNT(*) AS n FROM flow") == step.messages
    assert step.number(ARROWS) == step.messages


def test_counters_hold_the_peak(step):
    found = {(row.pid, row.name): row for row in step.rows(COUNTERS)}
    assert set(found) == {(rank, n) for rank in step.line.ranks for n in ("memory GiB", "power W")}
    for rank in step.line.ranks:
        memory, power = step.line.memory(rank), step.line.power(rank)
        assert found[rank, "memory GiB"].n == len(memory)
        peak = max(sample.value for sample in memory) / 2**30
        assert found[rank, "memory GiB"].peak == pytest.approx(peak, rel=1e-5)
        assert found[rank, "power W"].n == len(power) > 3
        peak = max(sample.value for sample in power)
        assert found[rank, "power W"].peak == pytest.approx(peak, rel=1e-5)
    if step.name == "fsdp":
        ours = step.line.estimate.memory_bytes / 2**30
        assert found[0, "memory GiB"].peak == pytest.approx(ours, rel=1e-3)


def test_processes_are_ranks_and_tracks_are_streams(step):
    streams = [
        "compute", "tensor parallel", "context parallel", "data parallel", "pipeline send/recv",
        "host launches",
    ]  # fmt: skip
    layers = 48 if step.name == "experts" else 32
    if step.name == "experts":
        streams.insert(3, "expert parallel")
    stages = {"experts": 1, "fsdp": 1, "bound by gathers": 1, "tensor and context": 1, "jitter": 2}
    count = stages.get(step.name, 4)
    names = [f"stage {rank} of {count}, {layers // count} layers" for rank in range(count)]
    if count == 1:
        names = [f"rank 0, {layers} layers"]
    assert [(row.pid, row.process, row.stream, row.main) for row in step.rows(THREADS)] == [
        (rank, name, stream, 0) for rank, name in enumerate(names) for stream in streams
    ]


def test_the_last_event_ends_with_the_step(step):
    end = step.number("SELECT MAX(ts + dur) AS n FROM slice") / 1e9
    assert end == pytest.approx(step.line.step_seconds, rel=1e-6)


def test_files_are_compressed_by_their_ending_and_always_the_same(tmp_path):
    step = line(**STEPS["fsdp"])
    count = write_trace(step, tmp_path / "a.json.gz")
    write_trace(step, tmp_path / "b.json.gz")
    write_trace(step, tmp_path / "a.json")
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert len(json.loads(gzip.decompress(packed))["traceEvents"]) == count
