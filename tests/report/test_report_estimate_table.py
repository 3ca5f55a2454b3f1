from dataclasses import replace

import pytest

from report_cases import CASES, priced
from scalewise.ask.defaults import Default
from scalewise.cli.common import drawn
from scalewise.report.estimate_table import merged, parts_table, print_estimate

DEFAULTS = (
    Default(flag="--seq", value="4096", why="usual for pre-training"),
    Default(flag="--batch", value="4096", why="16.8M tokens per step"),
    Default(flag="--precision", value="bf16", why="usual"),
    Default(flag="--stack", value="megatron", why="usual"),
)


EXPECTED = """\
llama-2-7b (6.74B) | 2,048x h100-sxm-80gb (dgx-h100) | fsdp2048-mb2 | bf16 | stack megatron
  throughput    5,840 tok/s/GPU [8,120-10,600]   12.0M tok/s total
  step time     1.40 s                           16.8M tokens: 4,096 x 4,096, grad accum 1
  MFU           25.3% (causal)                   250 of 989 TFLOP/s per GPU
  communication 42.5% exposed + 8.4% contention  50.9% together; 1.32 s per rank, 728 ms overlapped
  peak memory   41.4 GiB [33.9-47.6]             fits in 79.6 GiB
  power         597 W/GPU                        1.21 kW/GPU facility, 0.207 J/token
  cost          $0.140/M tokens                  $6,042/h at $2.95/GPU-h (market 2026-05)
  [low-high]: 80% prediction interval
Suggestion: hsdp32x64-mb2 (shard in groups of 64 ranks): 11,100 tok/s/GPU, +91%

Step time                       ms      %   | Peak memory (worst rank)   GiB      %
  GEMM                         473   33.7   |   activations             36.6   88.6
  exposed all-gather           364   25.9   |   logits                   2.2    5.4
  exposed reduce-scatter       232   16.6   |   all-gather buffers       1.5    3.6
  contention                   118    8.4   |   workspace                0.9    2.2
  memory-bound kernels          88    6.3   |   params, grads, optim.   <0.1    0.1
  attention                     68    4.8   |   total                   41.4  100.0
  stragglers                    37    2.6   |
  framework overhead            11    0.8   | Defaults: --seq 4096 (usual for pre-training),
  LM head and loss              11    0.8   |   --batch 4096 (16.8M tokens per step),
  launches, optimizer            1   <0.1   |   --precision bf16 (usual), --stack megatron (usual)
  total                      1,403  100.0   | Sources: --explain"""


def text_of(e, **options):
    return drawn(lambda out: print_estimate(e, out, **options))


def test_question_answer_suggestion_tables_defaults(fsdp):
    # Literal ends, whatever the effects of the catalog are.
    fsdp.__dict__["interval"] = 8120.0, 10600.0
    assert text_of(fsdp, defaults=DEFAULTS) == EXPECTED


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", ["80", "100", "140"])
def test_it_fits_the_terminal(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    lines = text_of(priced(name), defaults=DEFAULTS, changes=("cluster.pue = 1.3",)).splitlines()
    assert max(map(len, lines)) <= int(columns)
    if columns != "80":
        assert len(lines) <= 25


def test_predicted_memory_above_capacity_is_line_two():
    lines = text_of(priced("ddp")).splitlines()
    assert lines[1].startswith(
        "LIKELY OUT OF MEMORY: 118 GiB [97.1-136] of 79.6 GiB (chance to fit"
    )
    assert "tight" not in "".join(lines)


def test_what_if_changes_stand_in_the_first_line_or_the_second(literal, monkeypatch):
    second = text_of(literal, changes=("--power-cap 500W",)).splitlines()[1]
    assert second == "  with --power-cap 500W"
    monkeypatch.setenv("COLUMNS", "140")
    first = text_of(literal, changes=("--power-cap 500W",)).splitlines()[0]
    assert first.endswith("| stack megatron | --power-cap 500W")


def test_notes_and_warnings_come_last(literal):
    lines = text_of(replace(literal, warnings=("beware",)), notes=("odd",)).splitlines()
    assert lines[-2:] == ["Note: odd", "Note: beware"]
    assert "Defaults" not in "".join(lines)


def test_rows_are_sorted_and_add_up():
    parts = {"a": 1.0, "b": 70.0, "c": 0.0, "d": 28.6, "e": 0.3, "f": 0.1}
    assert parts_table(("Time", "ms"), parts, rows=9, decimals=1, widths=(10, 6)) == [
        "Time          ms      %",
        "  b         70.0   70.0",
        "  d         28.6   28.6",
        "  a          1.0    1.0",
        "  e, f       0.4    0.4",
        "  total    100.0  100.0",
    ]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 9])
def test_small_parts_are_merged(rows):
    parts = {"optimizer": 2.0, "kernel launches": 1.0, "attention": 50.0, "recompute": 47.0}
    found = merged(parts, rows)
    assert len(found) == min(rows, 4)
    assert sum(value for _, value in found) == 100.0
    names = {1: "4 others", 2: "3 others", 3: "optimizer, launches", 4: "kernel launches"}
    assert found[-1][0] == names.get(rows, "kernel launches")


def test_one_small_part_keeps_its_name():
    assert merged({"a": 99.9, "b": 0.1}, 9) == [("a", 99.9), ("b", 0.1)]
