"""Logs of nccl-tests become rows, whatever stands around the tables."""

import pytest

from scalewise.errors import InputError
from scalewise.records.nccl_tests import read_nccl_tests

DEVICES = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  11 on     node-a device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  12 on     node-a device  1 [0x0a] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  13 on     node-b device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  14 on     node-b device  1 [0x0a] NVIDIA H100 80GB HBM3
#
#                                                out-of-place           in-place
#   size     count      type  redop  root   time   algbw   busbw #wrong   time  algbw  busbw #wrong
#    (B)  (elements)                         (us)  (GB/s)  (GB/s)           (us) (GB/s) (GB/s)
"""
REDUCE = """\
  1048576  262144  float  sum  -1  52.40  20.01  30.02  0  50.00  20.97  31.46  0
  2097152  524288  float  sum  -1  80.00  26.21  39.32  0  79.00  26.55  39.82  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 35.15
"""
GATHER = """\
  4194304  262144  bfloat16  none  -1  100.00  41.94  31.46  0  N/A  N/A  N/A  N/A
"""


def log(tmp_path, text):
    path = tmp_path / "log.txt"
    path.write_text(text)
    return path


def test_a_row_has_both_times_and_the_bus_bandwidth_of_its_ranks(tmp_path):
    rows = read_nccl_tests(log(tmp_path, "$ ./build/all_reduce_perf -b 1M -e 2M -f 2\n" + DEVICES
                               + REDUCE))  # fmt: skip
    assert len(rows) == 2
    first = rows[0]
    assert (first["op"], first["message_bytes"], first["time_us"]) == ("all_reduce", 1048576, 52.4)
    assert first["time_us_in_place"] == 50.0
    assert (first["accelerators"], first["nodes"], first["scaleup_domain"]) == (4, 2, 2)
    assert first["accelerator"] == "h100-sxm-80gb"
    assert first["algbw_gb_per_s"] == pytest.approx(20.011, abs=1e-3)
    assert first["busbw_gb_per_s"] == pytest.approx(30.016, abs=1e-3)
    assert first["source"] == "log.txt line 13"


def test_several_programs_in_one_file_keep_their_own_headers(tmp_path):
    one_node = DEVICES.replace("node-b", "node-a")
    text = (
        "# Collective test starting: all_gather_perf\n" + DEVICES + GATHER
        + "# Collective test starting: all_reduce_perf\n" + one_node + REDUCE
        + "srun ./alltoall_perf -g 1\n" + one_node + GATHER
    )  # fmt: skip
    rows = read_nccl_tests(log(tmp_path, text))
    lines = [(row["op"], row["nodes"], row["message_bytes"]) for row in rows]
    assert lines == [("all_gather", 2, 4194304), ("all_reduce", 1, 1048576),
                    ("all_reduce", 1, 2097152), ("all_to_all", 1, 4194304)]  # fmt: skip
    assert rows[0]["time_us_in_place"] is None
    assert rows[0]["busbw_gb_per_s"] == pytest.approx(31.457, abs=1e-3)


def test_what_training_does_not_call_is_left_out(tmp_path):
    text = "./reduce_perf -b 1M\n" + DEVICES + REDUCE + "./sendrecv_perf\n" + DEVICES + GATHER
    rows = read_nccl_tests(log(tmp_path, text))
    assert [row["op"] for row in rows] == ["send_recv"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line of size"),
        ("hello\n1 2 3\n", "no line of size"),
        (DEVICES + REDUCE, "names the collective"),
        ("./all_reduce_perf\n" + REDUCE, "lists the ranks"),
        ("./reduce_perf\n" + DEVICES + REDUCE, "only reduce"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_nccl_tests(log(tmp_path, text))


def test_a_missing_file_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_nccl_tests(tmp_path / "none.txt")


@pytest.mark.parametrize("cell", ["9" * 400, "\u00b2", "1048576.0"])
def test_a_size_that_no_buffer_has_is_no_row(tmp_path, cell):
    text = "all_reduce_perf\n" + DEVICES + REDUCE.replace("1048576", cell)
    assert [row["message_bytes"] for row in read_nccl_tests(log(tmp_path, text))] == [2097152]


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf"])
def test_a_time_that_is_no_number_is_absent(tmp_path, cell):
    text = "all_reduce_perf\n" + DEVICES + REDUCE.replace("52.40", cell)
    assert read_nccl_tests(log(tmp_path, text))[0]["time_us"] == 50.0
