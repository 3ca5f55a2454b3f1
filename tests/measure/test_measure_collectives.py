"""Collectives: what is planned, and what two real ranks over Gloo make of it."""

import pytest
from click.testing import CliRunner

from scalewise.cli.main import cli
from scalewise.errors import InputError
from scalewise.measure.collective_plan import (
    OPS,
    CollectivePlan,
    group_sizes_of,
    layout,
    sizes_of,
    words_of,
)
from scalewise.records.files import read_records
from scalewise.records.rows import bus_factor, rows_of, timed_row


def run(*args):
    """Run the command line in this process."""
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli, list(args))


def test_sizes_double_from_the_first_to_the_last():
    assert sizes_of("1KiB..8KiB") == [1024, 2048, 4096, 8192]
    assert sizes_of("1MB,512KiB") == [524288, 1000000]
    assert sizes_of("3KiB..10KiB") == [3072, 6144]
    with pytest.raises(InputError, match="small to large"):
        sizes_of("1MiB..1KiB")


def test_groups_fill_all_ranks():
    assert group_sizes_of(None, 8) == [2, 4, 8]
    assert group_sizes_of(None, 6) == [2, 6]
    assert group_sizes_of("4,2", 8) == [2, 4]
    with pytest.raises(InputError, match="groups of 3 do not fill 8 ranks"):
        group_sizes_of("3", 8)


def test_layouts():
    assert layout(8, 4, "packed") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert layout(8, 4, "spread") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert layout(4, 2, "spread") == [[0, 2], [1, 3]]


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == 0.875
    assert bus_factor("broadcast", 8) == bus_factor("send_recv", 8) == 1.0


def test_words():
    assert words_of("all-reduce, all_gather,all_reduce", OPS, "operation") == [
        "all_reduce", "all_gather",
    ]  # fmt: skip
    with pytest.raises(InputError, match="unknown operation `alreduce`") as caught:
        words_of("alreduce", OPS, "operation")
    assert "all_reduce" in caught.value.hint


def test_an_empty_plan_is_refused():
    with pytest.raises(InputError, match="at least one of sizes"):
        CollectivePlan(ops=["all_reduce"], sizes=[], group_sizes=[2])
    with pytest.raises(InputError, match="make no sample"):
        CollectivePlan(ops=["all_reduce"], sizes=[8], group_sizes=[2], iters=0)


def test_a_row_keeps_its_samples():
    row = timed_row({"op": "all_reduce"}, [3e-6, 1e-6, 2e-6])
    assert row["time_us"] == pytest.approx(2.0)
    assert row["samples_us"] == [3.0, 1.0, 2.0]
    assert row["time_us_p5"] == pytest.approx(1.1)


def test_two_ranks_really_talk(tmp_path):
    pytest.importorskip("torch")
    done = run(
        "measure", "collectives", "--device", "cpu", "--ranks", "2", "--ops", ",".join(OPS),
        "--sizes", "4KiB,1MiB", "--iters", "3", "-o", str(tmp_path),
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "gloo: " in done.stdout
    assert "overlapped with GEMMs, an all-reduce of 16.0 MiB adds" in done.stdout
    (record,) = read_records(tmp_path, kind="collective").records
    rows = record.results["rows"]
    # A single group is packed and spread at once, so it is timed once.
    assert [(row["op"], row["message_bytes"]) for row in rows] == [
        (op, size) for op in OPS for size in (4096, 1048576)
    ]
    for row in rows:
        assert (row["accelerators"], row["nodes"], row["placement"]) == (2, 1, "packed")
        assert len(row["samples_us"]) == 3
        assert row["algbw_gb_per_s"] == pytest.approx(row["message_bytes"] / row["time_us"] / 1e3)
    # How long they take is the machine's affair; that they were timed is ours.
    assert all(min(row["samples_us"]) > 0.0 for row in rows)
    beside = record.results["beside"]
    assert beside["together_seconds"] > 0.0
    assert beside["compute_seconds"] > 0.0
    assert record.environment.backend == "gloo"
    assert record.environment.threads is not None
    first = next(rows_of([record]))
    assert first["id"] == f"{record.id}-1"
    assert first["software"].startswith("torch ")


def test_one_rank_is_too_few():
    pytest.importorskip("torch")
    done = run("measure", "collectives", "--device", "cpu", "--ranks", "1")
    assert done.exit_code == 2
    assert "--ranks 1: collectives need at least 2 ranks" in done.stderr
