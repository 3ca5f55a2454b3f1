"""Headline numbers: by hand on made-up rows, and as a guard on the shipped table."""

import numpy as np
import pytest

from scalewise.evidence.accuracy import METHODS, method, series
from scalewise.evidence.runs import read_runs
from scalewise.evidence.validate import Validation, validate
from scalewise.workload import Workload
from verdicts import sweep, verdict


@pytest.fixture(scope="module")
def shipped():
    return validate(read_runs()).accuracy()


class TestMethods:
    def test_sources_count_alike(self):
        rows = [
            *(verdict(p, 100.0, source="a", gpu=True) for p in (101.0, 102.0, 103.0)),
            verdict(140.0, 100.0, source="b", gpu=True),
            verdict(10.0, 100.0, source="c"),
        ]
        found = method(rows, METHODS["shipped constants"])
        assert found.count == 5
        # Errors 1, 2, 3, 40 and 90.
        assert found.median_error == pytest.approx(0.03)
        assert found.p90_error == pytest.approx(0.70)
        assert found.source_mean == pytest.approx((0.02 + 0.40 + 0.90) / 3)
        # The worst source is not a GPU's.
        assert (found.worst_source, found.worst_error) == ("b", pytest.approx(0.40))

    def test_of_nothing(self):
        assert method([verdict(100.0, 100.0)], METHODS["40% MFU"]) is None
        assert Validation(rows=[]).accuracy().methods == {}


class TestSeries:
    def rows(self, *points, source="modalities", recipe="r", seq_len=4096, mb=2):
        return [
            verdict(
                p, m, source=source, recipe=(recipe,), strategy=f"fsdp{size}-mb{mb}",
                group=(source, "toy", "h100", size,
                       Workload(seq_len=seq_len, global_batch=mb * size)),
            )
            for size, p, m in points
        ]  # fmt: skip

    def test_largest_over_smallest(self):
        points = (8, 100.0, 100.0), (64, 95.0, 90.0), (512, 80.0, 64.0), (512, 80.0, 100.0)
        (found,) = series(self.rows(*points))
        assert (found.smallest, found.largest) == (8, 512)
        # Geometric mean of the repeats: 80 over 100.
        assert found.measured == pytest.approx(0.8)
        assert found.predicted == pytest.approx(0.8)
        assert found.error == pytest.approx(0.0)
        assert found.left_out is None

    def test_repeats_are_series_with_the_same_traffic(self):
        one = self.rows((8, 1.0, 10.0), (64, 1.0, 9.0), (512, 1.0, 6.0))
        # As many tokens per GPU in other sequences; then twice as many.
        twin = self.rows((8, 1.0, 10.0), (64, 1.0, 9.0), (512, 1.0, 7.5), recipe="s", seq_len=8192,
                         mb=1)  # fmt: skip
        other = self.rows((8, 1.0, 10.0), (64, 1.0, 9.0), (512, 1.0, 9.0), recipe="t", mb=4)
        found = series([*one, *twin, *other])
        assert [each.repeats for each in found] == [
            pytest.approx(0.25), pytest.approx(0.25), None,
        ]  # fmt: skip

    def test_two_sizes_and_other_sources_are_none(self):
        assert series(self.rows((8, 1.0, 1.0), (16, 1.0, 1.0))) == []
        three = ((8, 1.0, 1.0), (16, 1.0, 1.0), (32, 1.0, 1.0))
        assert series(self.rows(*three, source="nanotron")) == []
        assert len(series(self.rows(*three, source="dgxc-v25.02"))) == 1


class TestHeadline:
    def test_counts_add_up(self):
        result = Validation(rows=[
            verdict(110.0, 100.0),
            verdict(900.0, 100.0, degraded=True),
            verdict(status="unsupported", reason="layers is not stated"),
            verdict(status="unsupported", quality="incomplete", reason="x"),
            verdict(status="unsupported", dense=False, reason="y"),
            verdict(90.0, status="infeasible"),
        ])  # fmt: skip
        found = result.accuracy()
        assert (found.complete, found.predicted, found.infeasible) == (4, 3, 1)
        assert found.refused == {"layers is not stated": 1}
        assert found.unsupported == {"incomplete": 1, "of another architecture": 1}
        assert found.degraded == {"me": (1, 9.0, 9.0)}
        assert found.methods["shipped constants"].count == 1

    def test_regret_up_to_256_gpus(self):
        rows = []
        for size, first in ((256, 40.0), (512, 10.0)):
            group = ("me", "toy", "h100", size, "bf16")
            made = sweep([50.0, 40, 30, 20, 10], [first, 50.0, 30, 20, 10])
            rows += [verdict(
                row.predicted_tokens_per_second, row.measured_tokens_per_second,
                strategy=row.strategy, simplicity=row.simplicity, group=group,
            ) for row in made]  # fmt: skip
        found = Validation(rows=rows).accuracy().regret["me"]
        assert (found.sweeps, found.mean, found.worst) == (
            1,
            pytest.approx(0.2),
            pytest.approx(0.2),
        )


class TestShipped:
    """A guard: what breaks one of these made predictions worse."""

    def test_every_complete_dense_run_is_predicted(self, shipped):
        assert (shipped.predicted, shipped.refused) == (2109, {})
        assert shipped.infeasible == 0

    def test_errors(self, shipped):
        fitted, unseen = (shipped.methods[k] for k in ("shipped constants", "source left out"))
        assert fitted.median_error <= 0.04
        assert fitted.p90_error <= 0.20
        assert unseen.source_mean <= 0.20

    @pytest.mark.parametrize("baseline", ["40% MFU", "nearest published run"])
    def test_left_out_errors_are_less_than_half_of_a_baseline(self, shipped, baseline):
        unseen = shipped.methods["source left out"].source_mean
        assert unseen < 0.5 * shipped.methods[baseline].source_mean

    def test_intervals_contain_about_what_they_say(self, shipped):
        assert 0.75 <= shipped.coverage.level <= 0.95
        assert 0.70 <= shipped.coverage.ratio <= 0.90

    def test_weak_scaling(self, shipped):
        errors = shipped.series_errors
        assert len(errors) >= 75
        assert np.median(errors) <= 0.03

    def test_memory(self, shipped):
        assert shipped.memory_count >= 1000
        assert shipped.memory_median_error <= 0.08
