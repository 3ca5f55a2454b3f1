"""How upgrades read and look: the sentence, the table, the files, the pictures."""

import csv
import io
import re
from dataclasses import replace

import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.cli.common import drawn
from scalewise.explore.sensitivity import Sensitivities, Sensitivity
from scalewise.model import load_model
from scalewise.report.tornado import SERIES, tornado_figure, tornado_html, write_tornado
from scalewise.report.upgrades import (
    lead,
    print_sensitivities,
    sensitivities_csv,
    signed,
    write_parquet,
)
from scalewise.step.estimate import estimate
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload


def row(name, gain, **changes):
    facts = {
        "name": name, "part": "chip", "means": "buy", "upgrade": "2 x", "gain": gain,
        "energy_gain": gain / 2, "cost_gain": gain, "elasticity": gain * 0.9,
        "energy_elasticity": gain * 0.5, "cost_elasticity": gain * 0.9, "strategy": "fsdp8-mb2",
    }  # fmt: skip
    return Sensitivity(**(facts | changes))


BLANK = Sensitivity(
    name="HBM capacity", part="chip", means="buy", upgrade="2 x", note="changes only what fits"
)
ROWS = [
    row("hop latency", 0.4, means="build"),
    row("HBM bandwidth", 0.25),
    row("tree all-reduce", 0.1, means="set", upgrade="always"),
    row("power cap", -0.1, means="set"),
    BLANK,
]


@pytest.fixture(scope="module")
def today():
    return estimate(
        load_model("llama-2-7b"),
        load_cluster("dgx-h100", 8),
        Workload(sequence=4096, global_batch=16),
        parse_strategy("fsdp8-mb2"),
    )


@pytest.fixture
def found(today):
    return Sensitivities(today=today, reoptimised=False, factor=2.0, rows=ROWS)


def text(found, columns="100", monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setenv("COLUMNS", columns)
    return drawn(lambda console: print_sensitivities(found, console), encoding="ascii")


def test_signs():
    assert [signed(x) for x in (0.251, -0.0349, 0.0004, -0.0004, None)] == [
        "+25.1 %", "-3.5 %", "0.0 %", "0.0 %", "-",
    ]  # fmt: skip


def test_the_lead_names_what_money_buys_and_what_is_free(found, today):
    assert lead(found) == (
        "The next thing to buy: HBM bandwidth, 2 x: +25.0 % tokens/s, +12.5 % tokens/J. "
        "Without buying: tree all-reduce, always: +10.0 %."
    )
    better = replace(
        today, strategy=parse_strategy("ddp8-mb2"), tokens_per_second=1.5 * today.tokens_per_second
    )
    assert "Before buying anything: ddp8-mb2 on the same cluster brings +50.0 %." in lead(
        replace(found, best=better)
    )
    moved = replace(found, today=better, given=today, best=better, reoptimised=True)
    assert "These gains come on top of +50.0 % of ddp8-mb2 today." in lead(moved)


def test_nothing_to_buy(found):
    small = replace(found, rows=[row("HBM bandwidth", 0.014), BLANK])
    assert lead(small) == (
        "The next thing to buy: nothing. No upgrade here brings more than 1.5 % tokens/s."
    )


def test_the_table(found, monkeypatch):
    page = text(found, monkeypatch=monkeypatch)
    lines = page.splitlines()
    place = next(i for i, line in enumerate(lines) if line.strip().startswith("change "))
    cells = [line.split() for line in lines[place + 1 : place + 5]]
    assert cells[0] == ["hop", "latency", "*", "2", "x", "+40.0", "%", "+20.0", "%",
                        "|########", "0.36", "0.20"]  # fmt: skip
    assert cells[3] == ["power", "cap", "2", "x", "-10.0", "%", "-5.0", "%", "#|", "-0.09", "-0.05"]
    assert "HBM capacity: changes only what fits" in page
    assert max(map(len, lines)) <= 100


def test_narrow_terminals_lose_bars_not_numbers(found, monkeypatch):
    page = text(found, "80", monkeypatch)
    assert "+25.0 %" in page
    assert "|#" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_what_does_not_fit(found, today):
    cannot = replace(
        found,
        today=replace(today, infeasible="memory: needs 91.2 GiB of 80.0 GiB"),
        rows=[msgspec.structs.replace(BLANK, strategy="fsdp8-mb2", note="fits then")],
        fits=("1.14 x the HBM capacity may hold it",),
    )
    page = text(cannot)
    assert "Nothing to speed up yet: fsdp8-mb2 does not fit. memory: needs 91.2 GiB" in page
    assert "HBM capacity, 2 x: fsdp8-mb2 fits then" in page
    assert "1.14 x the HBM capacity may hold it" in page


def test_where_the_strategy_moves(found):
    moved = [msgspec.structs.replace(ROWS[1], moves=True, strategy="fsdp4-tp2-mb2")]
    assert "HBM bandwidth, 2 x: fsdp4-tp2-mb2" in text(replace(found, rows=moved, reoptimised=True))
    assert "nowhere: fsdp8-mb2 stays" in text(replace(found, reoptimised=True))


def test_csv(found):
    rows = list(csv.DictReader(io.StringIO(sensitivities_csv(found))))
    assert len(rows) == 5
    assert rows[1]["name"] == "HBM bandwidth"
    assert float(rows[1]["gain"]) == 0.25
    assert float(rows[1]["cost_elasticity"]) == pytest.approx(0.225)
    assert rows[4]["gain"] == ""


def test_parquet(found, tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "x.parquet"
    write_parquet(replace(found, rows=[BLANK]), str(path))
    frame = polars.read_parquet(path)
    assert frame.schema["gain"] == polars.Float64
    assert frame["gain"].to_list() == [None]
    assert frame["name"].to_list() == ["HBM capacity"]


def test_the_figure_has_the_largest_on_top_and_blanks_left_out(found):
    figure = tornado_figure(found)
    first = figure.data[0]
    assert list(first.x) == [40.0, 25.0, 10.0, -10.0]
    assert first.y[0] == "hop latency, 2 x (software)"
    assert figure.layout.yaxis.autorange == "reversed"
    assert [t.name for t in figure.data if t.showlegend is not False] == [s[2] for s in SERIES]
    assert figure.layout.xaxis.title.text == "change by the upgrade, %"
    assert figure.layout.xaxis2.title.text == "% per 1 % of the quantity, here and now"
    assert "stack megatron" in figure.layout.annotations[0].text


def test_the_figure_without_power_and_price(found):
    bare = [row("HBM bandwidth", 0.2, energy_gain=None, cost_gain=None)]
    figure = tornado_figure(replace(found, rows=bare))
    assert {trace.name for trace in figure.data} == {"tokens/s"}


def test_the_page_works_offline(found):
    page = tornado_html(found)
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", tags)
    assert len(page) > 1_000_000


def test_still_pictures(found, tmp_path):
    pytest.importorskip("matplotlib")
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"x{ending}"
        write_tornado(found, str(path))
        assert path.read_bytes().startswith(start)
    first = (tmp_path / "x.svg").read_bytes()
    write_tornado(found, str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").read_bytes() == first
    write_tornado(replace(found, rows=[BLANK]), str(tmp_path / "none.svg"))
