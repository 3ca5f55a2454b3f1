"""Software of published runs of experts, by lines of recipes, notes, and FLOPs per token."""

import numpy as np
import pytest

from scalewise.evidence.recipes import Recipe, mtp_layers, recipe_of
from scalewise.evidence.runs import Run, read_runs
from scalewise.evidence.table import completed_plan
from scalewise.experts import UNTRAINED
from scalewise.step.estimate import estimate


@pytest.fixture(scope="module")
def runs():
    return {run.id: run for run in read_runs()}


def bridge(**cells):
    plain = {
        "source": "megatron-bridge", "model": "qwen3-30b-a3b", "accelerator": "gb200",
        "software_date": "2025-11", "precision": "mxfp8", "ep": "8", "experts": "128",
    }  # fmt: skip
    return Run({**plain, **cells}, line=1)


class TestLines:
    def test_releases_of_one_recipe(self):
        dates = "2025-09", "2025-11", "2026-06"
        found = [recipe_of(bridge(software_date=date)) for date in dates]
        assert [each.dispatcher for each in found] == ["nccl", "hybridep", "hybridep"]
        assert [each.cuda_graphs for each in found] == ["attention", "router", "full"]
        assert [each.fused for each in found] == [False, False, True]
        assert [each.routing for each in found] == ["drop", "forced", "forced"]
        assert [each.capacity for each in found] == [1.0, None, None]

    def test_precision_and_layout_choose_the_line(self):
        # Full graphs came for fp8 first; a 16-bit run of the same release has partial ones.
        assert recipe_of(bridge(software_date="2026-06", precision="bf16")).cuda_graphs == "router"
        pipelined = recipe_of(bridge(accelerator="h100-sxm-80gb", pp="2"))
        whole = recipe_of(bridge(accelerator="h100-sxm-80gb", pp="1"))
        assert (pipelined.overlap, whole.overlap) == (True, False)

    def test_expert_tensor_parallelism_is_that_of_dense_layers_where_not_set(self, runs):
        assert recipe_of(runs["dgxc-v2505-grok-1314b-gb200-128-bf16-g256"]).etp is None
        assert recipe_of(runs["dgxc-v2505-deepseek-v3-gb200-128-bf16-g1024"]).etp == 1

    def test_unknown_software(self):
        assert recipe_of(bridge(source="me")) is None

    def test_every_complete_run_has_one(self, runs):
        missing = [
            run.id
            for run in runs.values()
            if run.number("experts")
            and run.quality in ("ok", "vendor-expected")
            and recipe_of(run) is None
        ]
        assert missing == []


class TestNotes:
    def test_notes_go_before_the_recipe(self):
        notes = "DeepEP, 1F1B overlap, partial CUDA graphs, real dropless routing"
        found = recipe_of(bridge(notes=notes))
        assert (found.dispatcher, found.cuda_graphs) == ("deepep", "router")
        assert found.overlap
        assert found.imbalance == UNTRAINED

    def test_notes_alone(self):
        found = recipe_of(bridge(source="me", notes="all-to-all dispatcher, no overlap"))
        assert found == Recipe(etp=1, dispatcher="nccl")
        assert found.imbalance == 1.0


class TestRecompute:
    def test_named_modules_are_all_that_selective_repeats(self, runs):
        strategy = runs["mz-h100-ep32-pp8"].plan().strategy
        assert (strategy.recompute, strategy.recompute_modules) == ("none", "norm+activation")

    def test_layers_that_keep_their_input_alone(self, runs):
        kinds = {
            name: runs[name].plan().strategy.recompute
            for name in ("tr-deepseek-v3-tpu7x-256c-s4096-bf16", "tr-mixtral-8x7b-v6e-256c")
        }
        # Mixtral's recipe keeps queries, keys and values too.
        assert list(kinds.values()) == ["full", "selective"]


class TestMtp:
    def test_flops_per_token_tell(self):
        rate = {"model": "deepseek-v3", "tokens_per_second_per_accelerator": "4000"}
        with_module = bridge(**rate, tflops_per_accelerator="1040")
        without = bridge(**rate, tflops_per_accelerator="1000")
        assert (mtp_layers(with_module), mtp_layers(without)) == (1, 0)
        assert mtp_layers(bridge(**rate)) == 0


class TestUntrained:
    def test_pairs_of_balanced_and_real_routing(self, runs):
        """The slow-down of the expert half that explains four published pairs."""
        factors = []
        for tokens in (16384, 32768, 65536, 131072):
            forced, real = (runs[f"mz-h100-long{tokens}-{kind}"] for kind in ("forced", "dropless"))
            more = 1.0 / real.tokens_per_second - 1.0 / forced.tokens_per_second
            plan, stack = completed_plan(forced)
            found = estimate(plan.model, plan.cluster, plan.workload, plan.strategy, stack=stack)
            terms = found.terms
            # The module "moe" is recomputed: one more forward, a third of GEMMs and half of the
            # rest.
            again = terms["experts"] / 3 + (terms["routing"] + terms["expert_parallel"]) / 2
            half = terms["experts"] + terms["routing"] + terms["expert_parallel"] + again
            tokens_per_gpu = plan.workload.tokens_per_step / plan.cluster.accelerators
            factors.append(1.0 + more * tokens_per_gpu / half)
        assert factors == pytest.approx([1.447, 1.461, 1.463, 1.445], abs=0.005)
        assert np.median(factors) == pytest.approx(UNTRAINED, abs=0.01)
