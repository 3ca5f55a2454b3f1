"""Reliability: settings in one flag, published numbers and their sources."""

import math

import msgspec
import pytest

from scalewise.catalog import names
from scalewise.errors import InputError
from scalewise.reliability import Reliability, load_reliability, parse_reliability


def test_usual_numbers():
    usual = load_reliability("usual")
    assert usual.failure_rate * 86400.0 == pytest.approx(3.79e-3)
    assert usual.detect == 107.0
    assert usual.write_per_gpu == 1e8
    assert not usual.asynchronous
    assert parse_reliability(None) == parse_reliability("on") == usual


def test_every_shipped_number_has_a_source():
    for name in names("reliability"):
        one = load_reliability(name)
        stated = {
            field
            for field in one.__struct_fields__
            if getattr(one, field) != getattr(Reliability(name="x", failure_rate=-0.0), field)
        }
        of_another = {
            "name", "sources", "failure_rate_low", "failure_rate_high", "node_gpus",
            "small_gpus", "large_gpus", "requeue_gpus", "requeue_exponent",
        }  # fmt: skip
        assert stated - of_another - set(one.sources) == set()


def test_settings():
    r = parse_reliability("rate=3.8e-3/node-day, restart=5min,checkpoint=20s,spares=2,async")
    assert r.failure_rate == pytest.approx(3.8e-3 / 86400.0)
    assert (r.restart, r.checkpoint, r.spares, r.asynchronous) == (300.0, 20.0, 2, True)
    assert r.sources["restart"] == "stated"
    assert r.sources["detect"] == load_reliability("usual").sources["detect"]
    assert parse_reliability("off") is None
    assert parse_reliability("stragglers=2%").stragglers == 0.02
    assert parse_reliability("rate=0").failure_rate == 0.0


def test_a_stated_rate_has_no_range_and_is_of_the_own_nodes():
    r = parse_reliability("rate=1e-3/node-day")
    assert r.rates(64) == (r.failure_rate,) * 3
    assert r.node_gpus is None


def test_small_jobs_have_a_wide_range():
    usual = load_reliability("usual")
    per_day = {gpus: [86400.0 * rate for rate in usual.rates(gpus)] for gpus in (8, 1024, 4096)}
    assert per_day[1024] == pytest.approx([2.34e-3, 7.24e-3, 23.7e-3], rel=2e-3)
    assert per_day[8] == per_day[1024]
    assert per_day[4096] == pytest.approx([2.34e-3, 3.79e-3, 6.50e-3])
    # A larger job never fails less often.
    for end in range(3):
        failures = [gpus * usual.rates(gpus)[end] for gpus in range(8, 8192, 8)]
        assert failures == sorted(failures)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("restrat=5min", "unknown setting restrat"),
        ("spares=2.5", "spares: `2.5` is not a count"),
        ("spares=5000", "spares = 5000 must be between 0 and 4,096"),
        ("rate=3e-3", "`3e-3` has no unit"),
        ("restart=5GB", "restart: `5GB` is not a value in seconds"),
        ("stragglers=1", "stragglers = 1 must be below 1"),
        ("stragglers=much", "`much` is not a fraction"),
        ("stragglers=nan", "`nan` is not a fraction"),
        ("interval=0s", "interval = 0 must be positive"),
        ("off,spares=2", "off excludes other settings"),
        ("spares=2,off", "off excludes other settings"),
        ("spares=2,usual", "unknown setting usual"),
    ],
)
def test_refused(text, message):
    with pytest.raises(InputError, match="goodput") as caught:
        parse_reliability(text)
    assert message in str(caught.value)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text('failure_rate = "1e-3/node-day"\nrestart = "2min"\n', encoding="utf-8")
    r = parse_reliability(f"{path},spares=1")
    assert (r.name, r.restart, r.spares) == ("ours", 120.0, 1)


def test_numbers_of_a_file_are_finite():
    with pytest.raises(InputError, match="small_job_factor = inf must be a number from 0 on"):
        msgspec.structs.replace(load_reliability("usual"), small_job_factor=math.inf)
