"""Words, figure and views of plans and queues."""

from datetime import date

import pytest

import scalewise as sw
from scalewise.ask.queueing import queueing
from scalewise.report import plan_words as words
from scalewise.report.plan_figure import plan_figure
from scalewise.report.plan_files import plan_page
from scalewise.report.plan_table import shown_rows
from scalewise.report.queue_figure import queue_figure

QUEUE = """
gpus = 64
on = "dgx-h100"
[[run]]
name = "first"
model = "llama-2-7b"
tokens = "100B"
[[run]]
name = "second"
model = "llama-2-7b"
tokens = "50B"
gpus = 32
"""


@pytest.fixture(scope="module")
def found():
    return sw.plan("llama-2-7b", on=["dgx-h100", "gb200-nvl72"], gpus=[64, 128], tokens="1T",
                   deadline="15d", budget="1M")  # fmt: skip


@pytest.fixture(scope="module")
def queue():
    return queueing(QUEUE, None, {}, today=date(2027, 1, 4))


def test_one_sentence_has_the_answer(found):
    (text,) = words.answer_lines(found)
    assert text.startswith("Fewest GPU-hours within 15 days and $1.00M: 128x dgx-h100, ") or (
        text.startswith("Fewest GPU-hours within 15 days and $1.00M: ")
    )
    assert "at $2.95/GPU-h (market 2026-05)" in text
    assert text.endswith("chance to fit.")


def test_misses_name_each_limit(found):
    unknown = next(row for row in found.rows if row.usd is None and row.accelerators == 128)
    assert words.miss_words(unknown, found) == "budget unknown: no price"
    slow = next(row for row in found.rows if row.accelerators == 64 and row.usd is not None)
    factor = slow.days.high / 15.0
    assert words.miss_words(slow, found) == f"{factor:.2f}x the deadline"


def test_goodput_stands_apart_from_the_step(found):
    (text,) = words.goodput_lines(found)
    row = found.answer
    assert f"{100 * row.goodput.value:.1f}% [" in text
    assert text.endswith(f"{row.days.value:.1f} days of wall time")


def test_the_figure_has_every_amount_with_its_interval(found):
    figure = plan_figure(found)
    days, usd, tonnes = figure.panels
    assert (days.y.label, usd.y.label) == ("wall time (days)", "cost ($)")
    assert tonnes.y.label == "emissions (t CO2)"
    assert [rule.value for rule in days.rules] == [15.0]
    assert [rule.value for rule in usd.rules] == [1e6]
    rows = [row for row in shown_rows(found) if row.days is not None]
    assert list(days.traces[0].high) == [row.days.high for row in rows]
    # No cost without a price.
    assert len(usd.traces[0].xs) == sum(row.usd is not None for row in rows)


def test_a_notebook_sees_lines_tables_and_frames(found, queue):
    assert repr(found).startswith("<Plan: Fewest GPU-hours within 15 days and $1.00M: ")
    assert "<table>" in found._repr_html_()
    assert "below $" in plan_page(found)
    assert repr(queue).startswith("<Queue: 2 runs on 64x dgx-h100 end on 2027-01-")
    frame = queue.to_frame()
    assert list(frame["name"]) == ["first", "second"]
    assert len(found.to_frame()) == len(found.rows)


def test_the_calendar_draws_one_bar_per_run(queue):
    (panel,) = queue_figure(queue).panels
    predicted, late = panel.traces
    first, second = queue.calendar.runs
    assert list(predicted.xs) == ["first (64)", "second (32)"]
    assert list(predicted.base) == [0.0, first.end.value]
    assert predicted.ys[1] == pytest.approx(second.end.value - second.start.value)
    assert late.base[0] == first.end.value
    assert late.ys[0] == pytest.approx(first.end.high - first.end.value)
