"""Stacks by framework and date."""

import pytest

from scalewise.stack import load_stack, stack_for


@pytest.mark.parametrize(
    ("framework", "date", "name"),
    [
        ("huggingface", "2023-04-13", "huggingface-2023"),
        ("huggingface", "2023-12", "pytorch-bf16"),
        ("huggingface", "", "pytorch-bf16"),
        ("llama-recipes", "2023-08-07", "pytorch-bf16"),
        ("deepspeed", "2020-10-20", "deepspeed-2021"),
        ("deepspeed", "2024-05", "deepspeed"),
        ("zero", "", "deepspeed"),
        ("llm-foundry", "2023-06", "llm-foundry-2023"),
    ],
)
def test_a_framework_has_the_stack_of_its_date(framework, date, name):
    assert stack_for(framework, date=date, fully_sharded=True).name == name


def test_what_software_keeps_is_declared_by_era():
    old, new = load_stack("huggingface-2023"), load_stack("pytorch-bf16")
    assert (old.attention_kernel, old.limits_all_gathers, old.upcast_scores) == (
        "unfused", False, True,
    )  # fmt: skip
    assert (new.attention_kernel, new.limits_all_gathers, new.upcast_scores) == (
        "flash2", True, False,
    )  # fmt: skip
    assert load_stack("deepspeed").cpu_update_rate == 6.8e9
    assert load_stack("nanotron").ddp_pipeline_reduces_each
