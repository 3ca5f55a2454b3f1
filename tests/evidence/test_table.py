"""Runs as arrays: what is kept, what is set aside, and which stack speaks."""

import numpy as np
import pytest

from scalewise.errors import InputError
from scalewise.evidence.runs import Run, UnsupportedError, read_runs
from scalewise.evidence.table import RunTable, completed_plan
from scalewise.evidence.validate import validate


def run(**changes):
    cells = {
        "id": "mine", "source": "me", "accelerator": "h100-sxm-80gb", "accelerators": "8",
        "layers": "32", "hidden": "4096", "heads": "32", "ffn_hidden": "11008",
        "gated_mlp": "true", "vocab": "32000", "seq_len": "4096", "global_batch": "64",
        "micro_batch": "1", "dp_shard": "8", "sharding": "zero3", "recompute": "full",
        "tokens_per_second_per_accelerator": "9000",
    }  # fmt: skip
    return Run({**cells, **changes}, 2)


def test_kept_and_rejected_add_up():
    table = RunTable.of([
        run(),
        run(id="wrong", layers="many"),
        run(id="moe", experts="8", experts_per_token="2"),
        run(id="silent", tokens_per_second_per_accelerator=""),
        run(id="uneven", global_batch="65"),
    ])  # fmt: skip
    assert [r.id for r in table.runs] == ["mine", "moe", "silent"]
    assert [r.id for r, _ in table.rejected] == ["wrong", "uneven"]
    assert table.rejected[0][1] == "line 2: layers = 'many' is not a number"
    assert "65" in table.rejected[1][1]
    assert table.measured[0] == 9000.0
    assert np.isnan(table.measured[2])
    assert len(table) == len(table.case) == len(table.plans) == len(table.stacks) == 3


def test_nothing_predictable_says_why():
    with pytest.raises(InputError, match="no run of the table can be predicted: layers is not"):
        RunTable.of([run(layers="")])
    with pytest.raises(InputError, match=r"no run of the table can be predicted$"):
        RunTable.of([])


def test_rates_are_datasheet_peaks():
    table = RunTable.of([run(), run(precision="fp8")])
    # NVIDIA H100 SXM, dense: 989.4 TFLOP/s in 16 bits and twice that in 8.
    assert table.case.rates.gemm16.tolist() == pytest.approx([989.4e12] * 2, rel=1e-3)
    assert table.case.rates.gemm.tolist() == pytest.approx([989.4e12, 1978.9e12], rel=1e-3)


def test_select_keeps_rows_together():
    runs = [run(id=f"r{i}", global_batch=str(64 * i), micro_batch=str(i)) for i in (1, 2, 3)]
    table = RunTable.of(runs)
    part = table.select(np.array([True, False, True]))
    assert [r.id for r in part.runs] == ["r1", "r3"]
    assert part.case.split.global_batch.tolist() == [64, 192]
    assert [plan.strategy.micro_batch for plan in part.plans] == [1, 3]
    assert part.rejected == []
    assert len(table) == 3


@pytest.mark.parametrize(
    ("cells", "stack"),
    [
        ({"framework": "llm-foundry", "software_date": "2023-05"}, "llm-foundry-2023"),
        ({"framework": "llm-foundry", "software_date": "2023-10"}, "llm-foundry"),
        ({"framework": "llm-foundry"}, "llm-foundry"),
        ({"framework": "maxtext"}, "maxtext-gpu"),
        ({"framework": "maxtext", "accelerator": "tpu-v5p"}, "maxtext-tpu"),
        ({"framework": "mine"}, "pytorch"),
        ({"framework": "mine", "accelerator": "tpu-v5p"}, "maxtext-tpu"),
    ],
)
def test_the_stack_follows_framework_date_and_device(cells, stack):
    assert completed_plan(run(**cells))[1].name == stack


def test_kinds_of_selective_recompute_are_read_from_notes():
    for notes, kind in (
        ("selective AC option: every-2nd-layer; 8-GPU board assumed", "1of2"),
        ("AC every 3rd layer; step derived", "1of3"),
        ("selective AC option: op; step derived", "op"),
        ("step derived", "selective"),
    ):
        plan, _ = completed_plan(run(recompute="selective", notes=notes))
        assert plan.strategy.recompute == kind


def test_logits_that_cannot_have_fitted_were_chunked():
    plan, stack = completed_plan(run(vocab="2000000", micro_batch="4"))
    assert stack.logit_memory == 0.0
    assert plan.defaults[-1] == "chunked loss (not stated; nothing else fits)"


def test_a_loss_inside_the_head_holds_no_logits():
    for notes, held in (("loss implementation fused-linear", False), ("step derived", True)):
        assert (completed_plan(run(notes=notes))[1].logit_memory > 0.0) is held


def test_the_least_sharding_that_fits_is_taken_where_none_is_stated():
    plan, _ = completed_plan(run(sharding="", layers="64"))
    assert (plan.strategy.sharding, plan.strategy.dp_shard) == ("zero3", 8)
    assert plan.defaults[-1] == "sharding zero3 (not stated; the least that fits)"
    with pytest.raises(UnsupportedError, match="layout not stated"):
        completed_plan(run(sharding="", layers="320"))


def test_every_run_that_ran_fits():
    found = validate(each for each in read_runs() if each.dense)
    assert [row.id for row in found.rows if row.status == "infeasible"] == []
