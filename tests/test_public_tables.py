"""The tables of public statements parse, have sources, and use words that there are."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

from scalewise.ask.resolve import resolve
from scalewise.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
WORDS_TO_COME = ("tuning", "offopt", "offparam", "offact", "offnvme", "fp32")
"""Words of rows that this version may not know yet."""


def load():
    """The benchmark, which is a script and no package."""
    name = "public_memory"
    if name not in sys.modules:
        path = ROOT / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


public = load()
FITS, TUNING = public.read_table(public.FITS), public.read_table(public.TUNING)


def test_tables_have_their_columns():
    assert all(tuple(row) == public.FITS_COLUMNS for row in FITS)
    assert all(tuple(row) == public.TUNING_COLUMNS for row in TUNING)
    assert len({row["id"] for row in FITS}) == len(FITS)
    assert len({row["id"] for row in TUNING}) == len(TUNING)


def test_enough_statements_of_both_outcomes():
    outcomes = Counter(row["outcome"] for row in FITS)
    assert set(outcomes) == {"fits", "oom"}
    assert len(FITS) == 76
    assert min(outcomes.values()) >= 30


def test_every_row_has_a_source_and_a_note():
    for row in [*FITS, *TUNING]:
        assert row["source"].startswith("https://"), row["id"]
        assert len(row["note"]) >= 10, row["id"]
        assert None not in row.values(), row["id"]


def test_published_values_have_units():
    assert all(float(row["value"]) > 0.0 and row["unit"] in public.UNITS for row in TUNING)
    assert {row["quantity"] for row in TUNING} == {"peak memory", "tokens/s per GPU", "step"}
    for row in FITS:
        assert (row["counted"] in public.COUNTED) == bool(row["peak_gb"]), row["id"]
    for row in TUNING:
        assert (row["counted"] in public.COUNTED) == (row["quantity"] == "peak memory"), row["id"]


def test_half_is_set_aside_by_name():
    """The rule looks at names only; memory and speed of one configuration stay together."""
    expected = public.set_aside(row["run"] for row in TUNING)
    assert {row["run"] for row in TUNING if row["set_aside"] == "true"} == expected
    assert {row["set_aside"] for row in TUNING} == {"true", "false"}
    assert len(expected) == len({row["run"] for row in TUNING}) // 2 == 25
    assert public.set_aside("abc") == {"b"}


def test_tuning_has_lora_qlora_and_offload():
    offload = [row for row in TUNING if "-off" in row["strategy"]]
    assert sum(row["tuning"].startswith("lora") for row in TUNING) >= 12
    assert sum(row["tuning"].startswith("qlora") for row in TUNING) >= 12
    assert len(offload) >= 12
    assert sum(row["quantity"] != "peak memory" for row in offload) >= 6


def refusal(row):
    """Why this version refuses a row; empty if it does not."""
    try:
        asked = resolve(public.question_of(row))
    except InputError as error:
        return str(error)
    assert asked.workload.global_batch == int(row["global_batch"])
    assert asked.strategy.accelerators == int(row["gpus"])
    return ""


@pytest.mark.parametrize("row", [*FITS, *TUNING], ids=lambda row: row["id"])
def test_words_are_known(row):
    """Models, accelerators, software, optimizers and strategies resolve, but for words to come."""
    reason = refusal(row)
    assert not reason or any(word in reason for word in WORDS_TO_COME), reason


def test_a_row_that_cannot_be_asked_says_why():
    row = next(row for row in FITS if row["lacks"])
    assert public.ask(row).reason == f"lacks: {row['lacks']}"
    nonsense = {**row, "lacks": "", "strategy": "fsdp1-nonsense"}
    assert "nonsense" in public.ask(nonsense).reason


def test_contradictions_need_certainty():
    row = next(row for row in FITS if row["id"] == "megatron-606-7b-8xa100-40")
    asked = public.ask(row)
    assert asked.error is None
    assert public.chance_to_fit(asked.estimate) < 0.1
    assert not asked.contradicts
    assert public.ask({**row, "outcome": "fits"}).contradicts


def test_error_is_predicted_over_stated():
    row = next(row for row in FITS if row["id"] == "litgpt-hub-tiny-llama-full")
    asked = public.ask({**row, "peak_gb": "10"})
    assert asked.error == pytest.approx(asked.estimate.memory_bytes / 10e9 - 1.0)
