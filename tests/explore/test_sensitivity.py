"""What upgrades are worth, against what must hold."""

import json

import pytest

from scalewise.catalog import load_cluster
from scalewise.explore.sensitivity import CONTINUOUS, SWITCHES, sensitivity
from scalewise.model import load_model
from scalewise.step.estimate import estimate
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

MODEL = load_model("llama-2-7b")


def rows(count, spelling, **options):
    cluster = load_cluster("dgx-h100", count)
    work = Workload(sequence=4096, global_batch=2 * count)
    found = sensitivity(MODEL, cluster, work, parse_strategy(spelling), **options)
    return {row.name: row for row in found}


def test_every_change_is_there_and_no_upgrade_hurts():
    found = rows(64, "fsdp64-mb2")
    assert {*CONTINUOUS, *SWITCHES, "power cap"} == set(found)
    for name in CONTINUOUS:
        assert found[name].gain >= -1e-12
        assert found[name].elasticity >= -1e-9


def test_the_largest_gain_comes_first():
    cluster = load_cluster("dgx-h100", 64)
    work = Workload(sequence=4096, global_batch=128)
    gains = [r.gain for r in sensitivity(MODEL, cluster, work, parse_strategy("fsdp64-mb2"))]
    assert gains == sorted(gains, reverse=True)


def test_a_doubled_network_is_what_estimate_says():
    cluster = load_cluster("dgx-h100", 512)
    work = Workload(sequence=4096, global_batch=1024)
    plan = parse_strategy("fsdp512-mb2")
    base = estimate(MODEL, cluster, work, plan)
    faster = cluster.with_(scale_out_bandwidth=2 * cluster.scale_out_bandwidth)
    better = estimate(MODEL, faster, work, plan)
    found = rows(512, "fsdp512-mb2")["scale-out bandwidth"]
    assert found.gain == pytest.approx(better.tokens_per_second / base.tokens_per_second - 1.0)


def test_scale_moves_the_bottleneck_from_compute_to_latency():
    few, many = rows(8, "fsdp8-mb2"), rows(4096, "fsdp4096-mb2")
    assert few["network latency"].gain < 1e-3
    assert many["network latency"].gain > 0.1
    assert few["peak FLOP/s"].elasticity > many["peak FLOP/s"].elasticity
    # The study's question: what if gathers were no rings?
    assert many["hierarchical gathers"].gain > 0.05


def test_a_power_cap_costs_less_speed_than_power():
    cap = rows(8, "fsdp8-mb2")["power cap"]
    assert cap.gain < 0.0
    assert cap.energy_gain > cap.gain


def test_command(tmp_path):
    from click.testing import CliRunner

    from scalewise.cli.main import cli

    line = ["sensitivity", "llama-2-7b", "--on", "dgx-h100", "--gpus", "64"]
    data = json.loads(CliRunner().invoke(cli, [*line, "--json"]).stdout)
    assert data["strategy"] == "fsdp64-mb1"
    assert len(data["rows"]) == len(CONTINUOUS) + len(SWITCHES) + 1
    assert "elasticity" in CliRunner().invoke(cli, line).stdout
    assert CliRunner().invoke(cli, [*line, "--factor", "1"]).exit_code == 2
