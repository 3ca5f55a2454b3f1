import csv
import io
import json
import re

import pytest
from rich.console import Console
from studies import CASES, SMALL

from measure_jobs import record
from scalewise.evidence.runs import Run
from scalewise.records.files import append
from scalewise.report.study_figure import study_figure, study_figures
from scalewise.report.study_report import COLUMNS, study_rows, write_report
from scalewise.report.study_tables import print_verdicts
from scalewise.report.study_words import findings
from scalewise.report.table import to_csv, to_parquet
from scalewise.study.files import read_study
from scalewise.study.measures import AXES, METRICS
from scalewise.study.overlays import marks_of, read_overlays
from scalewise.study.run import run_study


@pytest.fixture(scope="module")
def answer():
    return run_study(read_study(SMALL, name="small"))


@pytest.fixture(scope="module")
def folder(answer, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    write_report(answer, out, command="scalewise study run small.toml -o report/")
    return out


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def without_plotly(page):
    """The page without the library, which names sites it never asks."""
    start = page.index("<script>") + len("<script>")
    return page[:start] + page[page.index("</script>", start) :]


def test_the_folder_has_everything(folder):
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    assert names == [
        "figures/buy-1.png", "figures/buy-1.svg", "figures/rings-1.png", "figures/rings-1.svg",
        "figures/weak-1.png", "figures/weak-1.svg", "index.html", "points.csv", "points.parquet",
        "study.toml", "verdicts.json",
    ]  # fmt: skip
    assert (folder / "study.toml").read_text() == SMALL
    assert (folder / "figures/weak-1.png").read_bytes()[:4] == b"\x89PNG"


def test_the_page_asks_nothing_of_the_network(page):
    own = without_plotly(page)
    assert not re.findall(r"""(?:src|href)\s*=\s*['"](?!#|data:)""", own)
    assert "http://" not in own.replace("http://www.w3.org", "")
    assert "https://" not in own
    assert "@import" not in own
    assert "url(" not in own
    # Plotly is there once, not fetched.
    assert page.count("plotly.js v") == 1
    assert "cdn.plot" not in own


def test_the_page_tells_verdicts_before_figures(page, folder):
    own = without_plotly(page)
    (record,) = json.loads((folder / "verdicts.json").read_text())
    assert own.index(f"{record['verdict']}</span>") < own.index("<figure>")
    assert "-37.2%" in own
    assert "Because." in own
    assert "scalewise study run small.toml -o report/" in own
    assert "All is well." in own
    assert "stack llm-foundry: 300 published runs" in own
    assert "Table of 4 points" in own


def test_texts_of_files_are_escaped(page):
    own = without_plotly(page)
    assert "Throughput &lt;against&gt; size." in own
    assert "Throughput <against> size." not in own
    assert "a paper &amp; its table" in own


def test_labels_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><b>x</b>"
    text = SMALL.replace('label = "half"', f'label = "{evil}"')
    text = text[: text.index('[[experiment]]\nid = "rings"')]
    write_report(run_study(read_study(text)), tmp_path)
    own = without_plotly((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert evil not in own
    assert "&lt;/script&gt;" in own


def test_it_prints(page):
    assert "@media print" in page
    assert page.count("class='static'") == 3
    assert "data:image/svg+xml;base64," in page


def test_verdicts_as_json(folder):
    (record,) = json.loads((folder / "verdicts.json").read_text())
    assert record["verdict"] in ("holds", "holds with a difference")
    assert record["published"] == "-37.2%"
    assert record["value"] == pytest.approx(-0.35, abs=0.1)


def test_csv_has_all_axes_and_metrics_in_si(answer):
    rows = list(csv.DictReader(io.StringIO(to_csv(study_rows(answer.rows), COLUMNS))))
    assert len(rows) == len(answer.rows)
    assert tuple(rows[0]) == tuple(COLUMNS)
    assert {*AXES, *METRICS} <= set(COLUMNS)
    first = rows[0]
    assert (first["experiment"], first["strategy"], first["accelerators"]) == (
        "weak",
        "fsdp",
        "128",
    )
    assert float(first["mfu"]) == answer.rows[0].metrics["mfu"]
    assert first["gain"] == ""


def test_parquet_reads_back(answer):
    polars = pytest.importorskip("polars")
    table = polars.read_parquet(io.BytesIO(to_parquet(study_rows(answer.rows), COLUMNS)))
    assert table.columns == list(COLUMNS)
    assert table["accelerators"].dtype == polars.Int64
    assert table["mfu"][0] == answer.rows[0].metrics["mfu"]


def test_the_same_answer_gives_the_same_pictures(answer, folder, tmp_path):
    write_report(answer, tmp_path)
    for name in ("weak-1.svg", "rings-1.svg", "buy-1.svg"):
        again = (tmp_path / "figures" / name).read_bytes()
        assert again == (folder / "figures" / name).read_bytes()


def test_a_figure_has_units_order_and_published_points(answer):
    figure = study_figures(answer)["weak"][0]
    assert figure.name == "weak-1"
    assert [panel.y.label for panel in figure.panels] == ["throughput (tok/s/GPU)", "MFU (%)"]
    assert figure.panels[0].x.values == [128, 2048]
    # In order of the first panel at the largest size.
    ends = [trace.ys[-1] for trace in figure.panels[0].traces]
    assert ends == sorted(ends, reverse=True)
    (mark,) = figure.panels[1].marks
    assert (mark.name, mark.xs, mark.ys, mark.symbol) == ("published MFU", [128], [40.0], "star")
    (half,) = figure.panels[0].marks
    base = next(row for row in answer.of("weak") if row.axes["strategy"] == "fsdp")
    assert half.ys == [pytest.approx(0.5 * base.metrics["tokens_per_second_per_accelerator"])]
    assert figure.sources == ["half: a paper", "published MFU: a paper & its table"]
    facets = study_figures(answer)["rings"][0]
    assert [panel.title for panel in facets.panels] == ["1.00 MiB", "64.0 MiB"]


def test_changes_go_down_by_the_size_of_their_effect(answer):
    (panel,) = study_figures(answer)["buy"][0].panels
    assert (panel.kind, panel.sideways) == ("bars", True)
    (trace,) = panel.traces
    effects = dict(zip(trace.xs, trace.ys, strict=True))
    sizes = [abs(effects[x]) for x in panel.x.values]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= 14
    assert min(sizes) >= 0.05


def test_findings_are_computed(answer):
    weak, rings, buy = answer.study.experiments
    lines = findings(weak, answer.of(weak))
    assert lines[0].startswith("From 128 to 2,048 GPUs, throughput changes from")
    assert "ring latency" in lines[1]
    assert "GB/s" in findings(rings, answer.of(rings))[0]
    assert findings(buy, answer.of(buy))[0].startswith("Largest gains at 128 GPUs: ")


@pytest.fixture(scope="module")
def cases():
    return run_study(read_study(CASES))


def test_a_band_is_an_area_between_its_ends(cases):
    figure = study_figures(cases)["spread"][0]
    for panel, name, factor in zip(
        figure.panels, ("tokens_per_second_per_accelerator", "mfu"), (1.0, 100.0), strict=True
    ):
        area, line = panel.traces
        assert (area.mode, area.name) == ("area", "LL128 to Simple, latency x 1.4")
        assert (line.mode, line.name, line.low) == ("line", "Simple", [])
        assert area.xs == line.xs == [128, 2048]
        ends = [
            factor * row.metrics[name]
            for row in cases.of("spread")
            if row.axes["accelerators"] == 2048 and row.axes["variant"] != "Simple"
        ]
        assert (area.low[1], area.high[1]) == pytest.approx((min(ends), max(ends)))
        assert area.low[1] < line.ys[1] < area.high[1]


def test_a_band_is_in_the_words(cases):
    spread = cases.study.experiments[1]
    last = findings(spread, cases.of(spread))[-1]
    assert last.startswith("Ends of the band: from ")
    assert last.endswith("with Simple, latency x 1.4.")


def test_where_returns_diminish_and_what_escapes(cases):
    growth = cases.study.experiments[0]
    fall, watts, escape = findings(growth, cases.of(growth))
    assert fall.startswith(
        "Diminishing returns (an added GPU brings less than half of one of the first): "
        "FSDP alone from 2,048 ("
    )
    assert watts == "The same per added facility watt: FSDP alone from 2,048."
    assert escape.startswith("Not up to the largest size: swept (")
    assert "fixed batch (" in escape
    panel = study_figures(cases)["growth"][0].panels[0]
    assert [(rule.value, rule.name) for rule in panel.rules] == [(50.0, "knee")]


def test_the_terminal_has_the_reason_of_what_does_not_hold():
    text = SMALL.replace("published = -0.3722", "at_most = -0.9")
    console = Console(file=io.StringIO(), width=100)
    print_verdicts(run_study(read_study(text)), console)
    end = console.file.getvalue().split("Verdicts: 1 does not hold.")[1]
    assert end.strip().startswith("It loses 37 %: -3")
    assert end.strip().endswith("Because.")


def run_row(**changes):
    row = {
        "id": "r1", "source": "our wiki", "accelerator": "h100-sxm-80gb", "accelerators": "256",
        "model": "ours-7b", "layers": "32", "hidden": "4096", "heads": "32", "ffn_hidden": "11008",
        "seq_len": "4096", "global_batch": "512", "micro_batch": "2", "dp_shard": "256",
        "sharding": "zero3", "tokens_per_second_per_accelerator": "8000", "mfu_pct": "35",
    }  # fmt: skip
    return Run(row | changes, 2)


def test_measured_runs_are_laid_over_what_they_match(answer):
    weak = answer.study.experiments[0]
    marks = marks_of(weak, answer.of(weak), [run_row()])
    measured = {mark.metric: mark for mark in marks if not mark.published}
    assert measured["tokens_per_second_per_accelerator"].value == 8000.0
    assert measured["mfu"].value == 0.35
    assert measured["mfu"].label == "measured, our wiki"
    assert "fsdp256-mb2" in measured["mfu"].source
    figure = study_figure(weak, 0, answer.of(weak), marks)
    shown = [m for m in figure.panels[0].marks if m.symbol == "cross"]
    assert [(m.xs, m.ys) for m in shown] == [([256], [8000.0])]


@pytest.mark.parametrize(
    "changes",
    [{"layers": "40"}, {"accelerator": "a100-sxm-80gb"}, {"accelerators": "4096"},
     {"accelerators": "64"}, {"seq_len": "8192"}, {"hidden": ""}],
)  # fmt: skip
def test_other_runs_are_not(answer, changes):
    weak = answer.study.experiments[0]
    marks = marks_of(weak, answer.of(weak), [run_row(**changes)])
    assert [mark for mark in marks if not mark.published] == []


def test_shipped_runs_can_be_laid_over():
    from scalewise.evidence.runs import SHIPPED

    runs = read_overlays([str(SHIPPED)])
    study = read_study(
        'title = "x"\n[[experiment]]\nid = "x"\ntitle = "x"\nmodels = ["mpt-7b"]\n'
        'clusters = ["dgx-h100"]\nsizes = "8..512"\nsequences = [2048]\n'
    )
    marks = marks_of(study.experiments[0], [], runs)
    assert len({mark.source for mark in marks}) == 4
    assert {mark.axes["accelerators"][0] for mark in marks} == {8, 128, 256, 512}


def test_measured_collectives_belong_to_experiments_of_their_kind(tmp_path):
    table = tmp_path / "timings.csv"
    table.write_text(
        "id,op,accelerator,accelerators,nodes,scaleup_domain,fabric,scaleout_gbps,message_bytes,"
        "time_us,source\n"
        "a,all_gather,h100-sxm-80gb,64,8,8,infiniband,400,1048576,100,us\n"
        "b,all_gather,h100-sxm-80gb,64,8,8,infiniband,400,999,100,us\n"
        "c,all_gather,h100-sxm-80gb,64,8,8,roce,400,1048576,100,us\n"
    )
    weak, rings, _ = read_study(SMALL).experiments
    rows = read_overlays([str(table)])
    marks = marks_of(rings, [], rows)
    assert {mark.metric: mark.value for mark in marks} == {
        "collective_seconds": pytest.approx(1e-4),
        "bus_bandwidth": pytest.approx(63 / 64 * 2**20 / 1e-4),
    }
    assert [mark for mark in marks_of(weak, [], rows) if not mark.published] == []


def test_records_can_be_laid_over_figures(tmp_path):
    append(tmp_path / "train.jsonl", record())
    (found,) = read_overlays([str(tmp_path)])
    assert found.source == "measured"
    assert found.tokens_per_second == pytest.approx(8 * 32 / 0.2 / 2)
    assert read_overlays([str(tmp_path / "train.jsonl")])[0].source == "measured"
