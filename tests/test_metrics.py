"""The table of metrics: texts of numbers, axes and heads, and who reads it."""

import pytest

from scalewise.explore.points import Point
from scalewise.explore.sensitivity import Sensitivity
from scalewise.metrics import METRICS, Metric, as_dicts


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("mfu", 0.40771, "40.8"),
        ("step_seconds", 0.8641, "0.864"),
        ("step_seconds", 15.66, "15.7"),
        ("memory_bytes", 75.0 * 2**30, "75.0"),
        ("tokens_per_second_per_accelerator", 9487.3, "9,487"),
        ("tokens_per_second", 19.4e6, "19,400,000"),
        ("usd_per_million_tokens", 0.08643, "0.0864"),
        ("bus_bandwidth", 3.6e11, "360"),
        ("gain", -0.0349, "-3.5"),
        ("speedup", 0.0, "0"),
        ("mfu", None, "-"),
    ],
)
def test_numbers_have_three_significant_digits(name, value, number):
    assert METRICS[name].number(value) == number


def test_only_fractions_are_shown_with_their_unit():
    assert METRICS["mfu"].show(0.4077).replace(" ", "") == "40.8%"
    assert METRICS["step_seconds"].show(0.5) == "0.500"
    assert METRICS["mfu"].show(None) == "-"


def test_axes_and_heads():
    assert METRICS["mfu"].axis == "MFU (%)"
    assert METRICS["mfu"].head == "MFU %"
    assert METRICS["tokens_per_second_per_accelerator"].head == "tok/s/GPU"
    bare = Metric(name="x", label="thing")
    assert (bare.axis, bare.head, bare.words) == ("thing", "thing", ("thing", ""))


def test_every_metric_has_a_label_and_a_direction():
    assert list(METRICS) == [metric.name for metric in METRICS.values()]
    assert all(metric.label for metric in METRICS.values())
    neither = {name for name, metric in METRICS.items() if metric.better not in ("high", "low")}
    # A layout is neither better nor worse for its degrees.
    assert neither == {"tp_degree", "pp_degree", "cp_degree", "ep_degree"}
    assert len({metric.axis for metric in METRICS.values()}) == len(METRICS)


def test_panels_of_scale_are_fields_of_points():
    assert {m.name for m in METRICS.values() if m.panel} <= set(Point.__struct_fields__)
    assert "cost_elasticity" in METRICS
    assert "cost_elasticity" in Sensitivity.__struct_fields__


def test_rows_for_json():
    row = next(row for row in as_dicts() if row["name"] == "exposed_fraction")
    assert row == {
        "name": "exposed_fraction", "label": "exposed communication", "unit": "% of step",
        "column": "exposed %", "factor": 100.0, "digits": 3, "better": "low", "zero": True,
        "panel": True, "axis": "exposed communication (% of step)", "head": "exposed %",
    }  # fmt: skip
