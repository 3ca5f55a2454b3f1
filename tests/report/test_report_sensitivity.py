"""Upgrades in a terminal: the sentence, the table."""

from dataclasses import replace

import msgspec
import pytest

from scalewise.cli.common import drawn
from scalewise.explore.sensitivity import Sensitivities
from scalewise.ranges import tie_width
from scalewise.report.sensitivity_table import (
    lead,
    print_sensitivities,
    signed,
)
from scalewise.strategy import parse_strategy
from scalewise.units import format_percent
from sensitivity_cases import BLANK, ROWS, row, small_step


@pytest.fixture(scope="module")
def today():
    return small_step()


@pytest.fixture
def found(today):
    return Sensitivities(today=today, reoptimized=False, factor=2.0, rows=ROWS)


def text(found, columns="100", monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setenv("COLUMNS", columns)
    return drawn(lambda console: print_sensitivities(found, console), encoding="ascii")


def test_signs():
    assert [signed(x) for x in (0.251, -0.0349, 0.0004, -0.0004, None)] == [
        "+25.1%", "-3.5%", "0.0%", "0.0%", "-",
    ]  # fmt: skip


def test_the_lead_names_the_best_upgrade_and_what_needs_none(found, today):
    assert lead(found) == (
        "Best upgrade: HBM bandwidth, 2 x: +25.0% tok/s, +12.5% tok/J. "
        "Setting: tree all-reduce, always: +10.0% tok/s."
    )
    better = replace(
        today, strategy=parse_strategy("ddp8-mb2"), tokens_per_second=1.5 * today.tokens_per_second
    )
    assert "ddp8-mb2 gains +50.0% on today's hardware. " in lead(replace(found, best=better))
    moved = replace(found, today=better, given=today, best=better, reoptimized=True)
    assert "ddp8-mb2 gains +50.0% on today's hardware; upgrades add to it." in lead(moved)


def test_nothing_to_buy(found):
    small = replace(found, rows=[row("HBM bandwidth", 0.9 * tie_width()), BLANK])
    tie = format_percent(tie_width())
    assert lead(small) == f"No upgrade gains more than a tie ({tie} tok/s)."


def test_the_table(found, monkeypatch):
    page = text(found, monkeypatch=monkeypatch)
    lines = page.splitlines()
    place = next(i for i, line in enumerate(lines) if line.strip().startswith("change "))
    cells = [line.split() for line in lines[place + 1 : place + 5]]
    assert cells[0] == ["hop", "latency", "*", "2", "x", "|########", "+40.0%", "+20.0%",
                        "0.36", "0.20"]  # fmt: skip
    assert cells[3] == ["power", "cap", "2", "x", "#|", "-10.0%", "-5.0%", "-0.09", "-0.05"]
    assert "HBM capacity: changes only what fits" in page
    assert max(map(len, lines)) <= 100


def test_narrow_terminals_lose_bars_not_numbers(found, monkeypatch):
    page = text(found, "50", monkeypatch)
    assert "+25.0%" in page
    assert "|#" not in page
    assert max(map(len, page.splitlines())) <= 50


def test_what_does_not_fit(found, today):
    cannot = replace(
        found,
        today=replace(today, infeasible="memory: needs 91.2 GiB of 80.0 GiB", fit=0.1),
        rows=[msgspec.structs.replace(BLANK, strategy="fsdp8-mb2", note="fits then")],
        fits=("1.14 x the HBM capacity may hold it",),
    )
    page = text(cannot)
    assert "LIKELY OUT OF MEMORY: 53.9 GiB" in page
    assert "Fits with: HBM capacity, 2 x: fsdp8-mb2" in page
    assert "Fits with: 1.14 x the HBM capacity may hold it" in page
    assert lead(cannot) == "fsdp8-mb2 does not fit: memory: needs 91.2 GiB of 80.0 GiB"


def test_where_the_strategy_moves(found):
    moved = [msgspec.structs.replace(ROWS[1], moves=True, strategy="fsdp4-tp2-mb2")]
    assert "HBM bandwidth, 2 x: fsdp4-tp2-mb2" in text(replace(found, rows=moved, reoptimized=True))
    same = text(replace(found, reoptimized=True))
    assert "Best strategy then: fsdp8-mb2, within a tie of the best after every change" in same
