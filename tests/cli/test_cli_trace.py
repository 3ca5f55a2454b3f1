import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import toy_traces as toy
from scalewise.cli.trace import trace
from scalewise.report.trace_figure import COLUMNS

MEASURED = Path(__file__).parent.parent / "data" / "trace"
TIMES = ("compute_seconds", "communication_seconds", "exposed_seconds", "idle_seconds")


@pytest.fixture
def one(tmp_path):
    """A trace of one rank with three steps."""
    steps = [toy.step(1, 0, 50), toy.step(2, 50, 50), toy.step(3, 100, 50)]
    events = [*steps, *toy.hundred(), toy.kernel(100, 40), toy.copy(46, 4)]
    return toy.write(tmp_path / "rank0.json.gz", events, **toy.info())


@pytest.fixture
def folder(tmp_path):
    """A folder with the traces of two ranks."""
    place = tmp_path / "traces"
    place.mkdir()
    steps = [toy.step(1, 0, 50), toy.step(2, 50, 60)]
    for rank in (0, 1):
        later = [toy.operator(5, 20 + rank), toy.gloo(20, 20), toy.operator(60, 30)]
        toy.write(place / f"r{rank}.json", [*steps, *later], **toy.info(rank, 2))
    return place


def test_the_flag_set_is_pinned():
    found = {text for each in trace.params[1:] for text in each.opts}
    assert found == {"--partial", "--last-step", "--json", "-o", "--output"}


def test_one_sentence_first_then_tables(run, one):
    result = run("trace", str(one))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    head = " ".join(" ".join(lines[:3]).split())
    assert head.startswith(f"{one}, rank 0 of 8, gpu 0, 10 events")
    assert (
        "Exposed communication: 25.0% of the time, 25.0 us of 40.0 us (overlap 37.5%). Idle: 19.0%."
        in lines
    )
    heads = [line.split("  ")[1] for line in lines if line.startswith("  ")]
    places = [
        heads.index(head)
        for head in ("time", "rank", "step", "collective", "process group", "collective by size")
    ]
    assert places == sorted(places)
    step = next(line for line in lines if line.startswith("  3 *"))
    # 40 of 50 us compute, the rest idle: 19 of 24 characters.
    assert step.split()[2:] == [
        "#" * 19 + "." * 5, "50.0", "40.0", "0.0", "0.0", "10.0", "-",
    ]  # fmt: skip
    assert "; * not counted above" in " ".join(result.stdout.split())


def test_two_measured_ranks(run):
    result = run("trace", str(MEASURED))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "2 ranks of 2, 24,290 events",
        "Exposed communication: 28.6% of the time (mean of ranks), 125 ms of 125 ms "
        "(overlap 0.0%). Idle:",
        "  18.1%.",
    ]
    assert (
        "  0 (cpu)  ############xxxxxxxx....  435.0    224.7  133.1    133.1  77.2        0.0"
        in lines
    )
    assert "  all_gather      2     18  2.81 MiB - 4.00 MiB  58.4     58.4        0.0" in lines


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2e-3, "2,000.0 100.0"), (0.5, "500.0 100.0"), (240.0, "240.0 100.0")]
)
def test_one_unit_for_all_tables(run, tmp_path, seconds, shown):
    path = toy.write(tmp_path / "t.json", [toy.kernel(0, seconds * 1e6)])
    lines = [" ".join(line.split()) for line in run("trace", str(path)).stdout.splitlines()]
    assert f"total {shown}" in lines


@pytest.mark.parametrize("width", ["80", "100", "160"])
def test_no_width_cuts_a_number_in_two(run, one, width, monkeypatch):
    monkeypatch.chdir(one.parent)
    result = run("trace", one.name, COLUMNS=width)
    assert "\u2026" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= int(width)


def test_json_has_the_promised_names_everywhere(run, one):
    data = json.loads(run("trace", str(one), "--json").stdout)
    assert [round(data[name] * 1e6, 6) for name in TIMES] == [52, 40, 25, 19]
    assert data["overlap_pct"] == 37.5
    assert (data["version"], data["world_size"]) == ("0.1.0", 8)
    for part in (*data["steps"], *data["ranks"]):
        assert {*TIMES, "overlap_pct", "window_seconds", "copy_only_seconds"} <= set(part)
    assert [step["step"] for step in data["steps"]] == [1, 2, 3]
    for part in (*data["collectives"], *data["groups"], *data["sizes"]):
        assert {"name", "calls", "bytes", "communication_seconds", "exposed_seconds",
                "overlap_pct"} <= set(part)  # fmt: skip
    assert [c["name"] for c in data["collectives"]] == ["all_reduce", "all_gather"]
    assert data["groups"][0]["name"] == "mesh_dp"
    assert data["ranks"][0]["steps"] == data["steps"]


def test_the_last_step_counts_when_asked(run, one):
    data = json.loads(run("trace", str(one), "--json", "--last-step").stdout)
    assert round(data["compute_seconds"] * 1e6, 6) == 92


def test_nothing_communicated_is_said(run, tmp_path):
    path = toy.write(tmp_path / "t.json", [toy.kernel(0, 3000), toy.kernel(4000, 1000)])
    result = run("trace", str(path))
    assert "\nNo communication. Compute: 4.00 ms of 5.00 ms. Idle: 20.0%.\n" in result.stdout
    assert json.loads(run("trace", str(path), "--json").stdout)["overlap_pct"] is None


def test_csv_and_parquet_have_the_same_rows(run, folder, tmp_path):
    for name in ("x.csv", "x.parquet"):
        result = run("trace", str(folder), "-o", str(tmp_path / name))
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"wrote {tmp_path / name}\n"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert list(rows[0]) == list(COLUMNS)
    # The mean: all, 2 steps, 1 collective, 1 group, 1 size; and as much for each rank.
    assert [row["scope"] for row in rows] == [
        scope for whole in ("all", "rank", "rank")
        for scope in (whole, "step", "step", "collective", "group", "size")
    ]  # fmt: skip
    assert [row["rank"] for row in rows[::6]] == ["", "0", "1"]
    assert float(rows[6]["compute_seconds"]) == pytest.approx(50e-6)
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(tmp_path / "x.parquet")
    assert frame.columns == list(COLUMNS)
    assert frame["compute_seconds"].drop_nulls()[0] == pytest.approx(50.5e-6)


def test_figures_are_written_and_the_same_again(run, folder, tmp_path):
    for ending in (".svg", ".png"):
        paths = [tmp_path / f"{name}{ending}" for name in "ab"]
        for path in paths:
            assert run("trace", str(folder), "-o", str(path)).exit_code == 0
        first, second = (path.read_bytes() for path in paths)
        assert first == second
        assert first.startswith(b"<?xml" if ending == ".svg" else b"\x89PNG")


def test_a_page_works_offline_and_escapes_names(run, tmp_path):
    group = {"Process Group Description": "<script>x</script>"}
    path = toy.write(tmp_path / "t.json", [*toy.hundred(), toy.nccl(100, 1, **group)])
    page = tmp_path / "x.html"
    assert run("trace", str(path), "-o", str(page)).exit_code == 0
    text = page.read_text()
    assert "&lt;script&gt;x" in text
    assert "<script>x" not in text
    assert "Plotly.newPlot" in text
    assert "<h2>By process group</h2>" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no profiler trace: it is empty"),
        ("hello", "is no profiler trace: it is not JSON"),
        ('{"a": 1}', "it is JSON without a list `traceEvents` (it has `a`)"),
        (toy.text(toy.hundred())[:-150], "is not whole: it ends in the middle of the events; 4 "),
    ],
)
def test_what_is_no_trace_is_one_sentence_and_code_2(run, tmp_path, content, said):
    path = tmp_path / "t.json"
    path.write_text(content)
    result = run("trace", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {path} ")
    assert said in error
    assert hint.startswith("hint: ")


def test_partial_uses_what_is_there(run, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(toy.text(toy.hundred())[:-150])
    result = run("trace", str(path), "--partial", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["ranks"][0]["complete"] is False


def test_wrong_usage(run, one, tmp_path):
    assert run("trace").exit_code == 2
    result = run("trace", str(one), "-o", "x.pdf")
    assert result.exit_code == 2
    assert "-o x.pdf: unsupported file type .pdf" in result.stderr
    result = run("trace", str(tmp_path / "absent.json"))
    assert result.exit_code == 2
    assert "absent.json cannot be read: no such file or directory" in result.stderr


def test_reading_needs_no_torch_no_plots_and_no_physics(one):
    code = (
        "import sys\nfrom scalewise.trace.read import read_trace\n"
        f"read_trace({str(one)!r})\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'plotly', 'polars', 'rich')"
        " or m.startswith(('scalewise.physics', 'scalewise.step', 'scalewise.catalog'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
