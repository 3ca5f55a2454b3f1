"""Measured numbers as people write them, profiles and rates of nccl-tests."""

import pytest

import scalewise as sw
from scalewise.diagnosis.evidence import parse_node_rate, parse_profile
from scalewise.diagnosis.measured import Measurement, parse_measured


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1,786 tok/s", 1786.0, "tok/s"),
        ("1786", 1786.0, "tok/s"),
        ("1.8k tokens/s/GPU", 1800.0, "tok/s"),
        ("1786 wps", 1786.0, "tok/s"),
        ("57,152 tok/s total", 57152.0, "tok/s total"),
        ("41% MFU", 0.41, "MFU"),
        ("41 %", 0.41, "MFU"),
        ("0.41 mfu", 0.41, "MFU"),
        ("0.864 s/step", 0.864, "s/step"),
        ("864 ms", 0.864, "s/step"),
        ("1.5 min", 90.0, "s/step"),
        ("2 it/s", 0.5, "s/step"),
        ("407 TFLOP/s", 407.0, "TFLOP/s"),
        ("407 TFLOPS/GPU", 407.0, "TFLOP/s"),
        ("0.407 PFLOP/s", 407.0, "TFLOP/s"),
    ],
)
def test_units(text: str, value: float, unit: str):
    (found,) = parse_measured([text])
    assert found.key == ""
    assert found.value == pytest.approx(value)
    assert found.unit == unit


def test_several_with_one_unit():
    found = parse_measured(["8=7,000,32=1,786 tok/s", "fsdp32-mb1=1700"])
    assert [(each.key, each.value) for each in found] == [
        ("8", 7000.0), ("32", 1786.0), ("fsdp32-mb1", 1700.0),
    ]  # fmt: skip
    assert {each.unit for each in found} == {"tok/s"}
    assert found[0].gpus == 8
    assert found[2].gpus is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("fast", "not a positive number with a unit"),
        ("12 parsecs", "unknown unit"),
        ("0 tok/s", "must be greater than 0"),
        ("-5 tok/s", "not a positive number with a unit"),
        ("141% MFU", "MFU must be at most 100%"),
        ("=7", "a number of GPUs or a strategy must precede ="),
        ("8=1,8=2", "given twice"),
        ("5 tok/s/gpu total", "total and per GPU exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(text: str, rule: str):
    with pytest.raises(sw.InputError, match="--measured") as error:
        parse_measured([text])
    assert rule in str(error.value)
    assert error.value.hint


def test_nothing_measured_is_refused():
    with pytest.raises(sw.InputError, match="--measured is missing"):
        parse_measured([])


def test_every_unit_of_one_step_is_the_same_rate():
    e = sw.estimate("llama-2-7b", on="dgx-h100", gpus=16, strategy="fsdp16-mb1", batch=64)
    rate = e.tokens_per_second_per_accelerator
    for value, unit in (
        (rate, "tok/s"),
        (16 * rate, "tok/s total"),
        (e.mfu, "MFU"),
        (e.step_seconds, "s/step"),
        (e.tflops, "TFLOP/s"),
    ):
        number = Measurement(key="", value=value, unit=unit, text="")
        assert number.rate(e) == pytest.approx(rate)


def test_profile():
    assert parse_profile("compute=0.62, exposed=30%,idle=0.08") == {
        "compute": 0.62, "exposed": 0.3, "idle": 0.08,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kernels=0.5", "unknown part"),
        ("compute=1.5", "must be a fraction"),
        ("compute=x", "must be a fraction"),
        ("compute=0.5,compute=0.4", "given twice"),
        ("compute=0.7,exposed=0.7", "add up to more than 1"),
    ],
)
def test_profiles_that_cannot_be(text: str, rule: str):
    with pytest.raises(sw.InputError, match=rule):
        parse_profile(text)


def test_node_rate():
    assert parse_node_rate("3.2GB/s") == 3.2e9
    for text in ("3.2 apples", "0GB/s"):
        with pytest.raises(sw.InputError, match="--nccl"):
            parse_node_rate(text)
