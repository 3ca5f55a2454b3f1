"""What upgrades are worth, against what must hold."""

import json

import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore import sensitivity as module
from scalewise.explore.fixes import fixes
from scalewise.explore.search import search
from scalewise.explore.sensitivity import FIXED_CAPACITY, sensitivity
from scalewise.explore.space import Limits
from scalewise.explore.upgrades import Upgrade, upgrades
from scalewise.model import load_model
from scalewise.ranges import tie_width
from scalewise.step.estimate import choose_stack, estimate
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

MODEL = load_model("llama-2-7b")
# Four splits and no pipelines: enough to move between, and searched in a moment.
FEW = Limits(tp=(1, 2, 4, 8), pp=(1,), cp=(1,), sharding=("zero3",))


def vary(count, spelling, per_gpu=2, **options):
    cluster = load_cluster("dgx-h100", count)
    work = Workload(seq_len=4096, global_batch=per_gpu * count)
    plan = None if spelling is None else parse_strategy(spelling)
    return sensitivity(MODEL, cluster, work, plan, **options)


def rows(count, spelling, **options):
    return {row.name: row for row in vary(count, spelling, **options).rows}


@pytest.fixture(scope="module")
def many():
    return vary(4096, "fsdp4096-mb2")


class TestFixed:
    def test_every_change_is_there_and_no_faster_part_hurts(self):
        cluster = load_cluster("dgx-h100", 64)
        stack = choose_stack(None, cluster, fully_sharded=True).stack
        found = rows(64, "fsdp64-mb2")
        assert {u.name for u in upgrades(cluster, stack)} == set(found)
        for upgrade in upgrades(cluster, stack):
            row = found[upgrade.name]
            if upgrade.means != "set" and upgrade.smooth:
                assert row.gain >= -1e-12
                assert row.elasticity is None or row.elasticity >= -1e-9
            if not upgrade.smooth:
                assert row.elasticity is row.energy_elasticity is row.cost_elasticity is None

    def test_the_largest_gain_comes_first_and_blanks_last(self, many):
        gains = [row.gain for row in many.rows if row.gain is not None]
        assert gains == sorted(gains, reverse=True)
        assert many.rows[-1].gain is None

    def test_a_doubled_network_is_what_estimate_says(self):
        cluster = load_cluster("dgx-h100", 512)
        work = Workload(seq_len=4096, global_batch=1024)
        plan = parse_strategy("fsdp512-mb2")
        base = estimate(MODEL, cluster, work, plan)
        faster = cluster.with_(scale_out_bandwidth=2 * cluster.scale_out_bandwidth)
        better = estimate(MODEL, faster, work, plan)
        found = rows(512, "fsdp512-mb2")["scale-out bandwidth"]
        assert found.gain == pytest.approx(better.tokens_per_second / base.tokens_per_second - 1)
        assert found.energy_gain == pytest.approx(
            better.tokens_per_joule / base.tokens_per_joule - 1
        )
        # At the same rent, dollars follow the clock.
        assert found.cost_gain == pytest.approx(found.gain)
        assert found.cost_elasticity == pytest.approx(found.elasticity)

    def test_scale_moves_the_bottleneck_from_compute_to_latency(self, many):
        few = rows(8, "fsdp8-mb2")
        assert few["library hop latency"].gain < 1e-3
        assert many.row("library hop latency").gain > 0.05
        assert few["scale-out bandwidth"].note is not None
        assert many.row("scale-out bandwidth").gain > 0.0
        # The study's question: what if gathers were no rings?
        assert many.row("hierarchical gathers").gain > 0.05

    def test_power(self):
        found = rows(8, "fsdp8-mb2")
        cap, larger = found["power cap"], found["larger TDP"]
        assert cap.gain < 0.0 < larger.gain
        assert cap.energy_gain > cap.gain
        assert larger.energy_gain < larger.gain
        # Clocks follow power by a root, and compute is not all of the step.
        assert 0.1 < cap.elasticity < 1 / 2.03 / (1 - 0.14)

    def test_capacity_is_no_misleading_zero(self):
        row = rows(64, "fsdp64-mb2")["HBM capacity"]
        assert (row.gain, row.elasticity, row.note) == (None, None, FIXED_CAPACITY)

    def test_what_is_not_there_changes_nothing(self):
        row = rows(8, "fsdp8-mb2")["scale-out bandwidth"]
        assert row.gain is row.elasticity is None
        assert row.note == "all 8 GPUs share one scale-up domain"

    def test_a_factor_must_be_better(self):
        with pytest.raises(InputError, match="factor = 1 must be above 1"):
            vary(8, "fsdp8-mb2", factor=1.0)

    def test_what_to_buy_and_what_to_set(self, many):
        buys = [row.gain for row in many.rows if row.means == "buy" and row.gain is not None]
        assert many.first("buy").gain == max(buys)
        assert many.first("buy").means == "buy"
        sets = [row.gain for row in many.rows if row.means == "set" and row.gain is not None]
        assert many.first("set").gain == max(sets)
        assert many.first("set").means == "set"


class Made:
    """An estimate of which only the throughput is known."""

    tokens_per_joule = usd_per_million_tokens = None
    strategy = None

    def __init__(self, rate):
        self.tokens_per_second = rate


class TestElasticity:
    """Of a made-up upgrade: tokens/s as a function of the factor."""

    def slope(self, rate):
        class Trial(module._Trial):
            def levels(self, cluster, stack, strategy):
                return rate(stack), None, None

        upgrade = Upgrade(
            name="x", part="chip", means="buy", to="", factor=2.0,
            change=lambda cluster, stack, factor: (cluster, factor),
        )  # fmt: skip
        slopes = Trial(MODEL, None, None, None)._slopes(upgrade, None, None, Made(1.0))
        assert slopes["energy_elasticity"] is slopes["cost_elasticity"] is None
        return slopes["elasticity"]

    def test_a_power_law_gives_its_exponent(self):
        assert self.slope(lambda f: 100 * f**0.4) == pytest.approx(0.4, abs=1e-12)

    def test_half_of_the_step(self):
        # Time 1 + 1/f: half of it shrinks with f.
        assert self.slope(lambda f: 1 / (1 + 1 / f)) == pytest.approx(0.5, abs=1e-5)

    def test_a_jump_is_no_slope(self):
        assert self.slope(lambda f: 100.0 if f < 1.001 else 103.0) is None

    def test_a_jump_outside_the_step_is_not_seen(self):
        assert self.slope(lambda f: 100.0 if f < 1.03 else 103.0) == 0.0


@pytest.fixture(scope="module")
def found():
    return vary(512, "fsdp512-mb2", reoptimize=True, limits=FEW)


class TestReoptimised:
    def test_the_base_is_the_best_of_today(self, found):
        cluster, work = load_cluster("dgx-h100", 512), Workload(seq_len=4096, global_batch=1024)
        best = search(MODEL, cluster, work, limits=FEW, top=1).best
        assert found.reoptimized
        assert found.today.strategy == best.strategy
        assert str(found.given.strategy) == "fsdp512-mb2"

    def test_each_row_is_what_a_search_finds(self, found):
        cluster, work = load_cluster("dgx-h100", 512), Workload(seq_len=4096, global_batch=1024)
        row = found.row("scale-out bandwidth")
        faster = cluster.with_(scale_out_bandwidth=2 * cluster.scale_out_bandwidth)
        best = search(MODEL, faster, work, limits=FEW, top=1).best
        top = best.tokens_per_second / found.today.tokens_per_second - 1
        assert row.gain <= top + 1e-12
        assert (1 + row.gain) * (1 + tie_width()) >= 1 + top
        assert row.moves == (row.strategy != str(found.today.strategy))

    def test_nothing_gets_worse_by_more_than_a_near_tie(self, found):
        fixed = {row.name: row for row in vary(512, str(found.today.strategy)).rows}
        for row in found.rows:
            if row.gain is not None and fixed[row.name].gain is not None:
                assert row.gain >= fixed[row.name].gain - 1e-9

    def test_capacity_has_a_number_now(self, found):
        assert found.row("HBM capacity").gain >= 0.0

    def test_without_a_strategy_it_reoptimizes(self):
        found = vary(16, None, limits=FEW)
        assert found.reoptimized
        assert found.given is None

    def test_more_memory_moves_the_strategy(self):
        cluster = load_cluster("dgx-h100", 16)
        model, work = load_model("llama-2-13b"), Workload(seq_len=4096, global_batch=32)
        row = sensitivity(model, cluster, work, limits=FEW).row("HBM capacity")
        assert row.moves
        assert row.gain > tie_width()


class TestDoesNotFit:
    LARGE = load_model("llama-2-70b")
    WORK = Workload(seq_len=4096, global_batch=64)

    def test_fixed(self):
        cluster = load_cluster("dgx-h100", 64)
        plan = parse_strategy("fsdp64-mb1")
        found = sensitivity(self.LARGE, cluster, self.WORK, plan, limits=FEW)
        assert found.infeasible.startswith("memory: needs ")
        assert all(row.gain is None for row in found.rows)
        capacity = found.row("HBM capacity")
        assert (capacity.note, capacity.strategy) == ("fits then", "fsdp64-mb1")
        assert found.row("peak FLOP/s").note == "does not fit"
        need = found.today.memory_low / found.today.memory_capacity
        assert found.fits[0].startswith(f"{need:.2f} x the HBM capacity (")
        assert any(
            line.startswith("fsdp64-mb1-acfull (full recompute) fits") for line in found.fits
        )

    def test_what_is_said_to_fit_does(self):
        cluster = load_cluster("dgx-h100", 64)
        e = estimate(self.LARGE, cluster, self.WORK, parse_strategy("fsdp64-mb1"))
        lines = [line.split()[0] for line in fixes(e, None) if " fits: " in line]
        assert lines
        for spelling in lines:
            other = estimate(self.LARGE, cluster, self.WORK, parse_strategy(spelling))
            assert other.memory_bytes <= other.memory_capacity

    def test_nothing_fits_until_memory_is_bought(self):
        cluster = load_cluster("dgx-h100", 8)
        found = sensitivity(self.LARGE, cluster, self.WORK, limits=FEW)
        assert found.infeasible.startswith("memory")
        assert found.fits[-1] == "no strategy at all fits on this cluster with this batch"
        row = found.row("HBM capacity")
        assert (row.note, row.moves) == ("fits then", True)
        assert row.strategy is not None


def test_plain_types_for_json(many):
    data = json.loads(json.dumps(many.to_dict()))
    assert data["strategy"] == "fsdp4096-mb2"
    assert data["reoptimized"] is False
    assert data["best"] is None
    assert {row["name"] for row in data["rows"]} == {row.name for row in many.rows}
