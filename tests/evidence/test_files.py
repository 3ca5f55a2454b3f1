"""What a calibration writes can be read again, by people too."""

import tomllib

import msgspec
import pytest

from scalewise.catalog import load_fabric
from scalewise.chip import Calibration, load_chip
from scalewise.cluster import Fabric
from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.files import (
    fitted_chip,
    fitted_stack,
    round_to,
    struct_toml,
    toml_value,
)
from scalewise.evidence.memory_fit import MemoryFit
from scalewise.stack import load_stack

STACK = msgspec.structs.replace(
    load_stack("megatron"),
    name="made",
    frameworks=("mine", "ours"),
    since="2024-01",
    devices="gpu",
    memory_traffic=1.2345,
    fitted_on='7 runs of "me"; C:\\runs',
)
CHIP = Calibration(
    name="made",
    calibrated=False,
    gemm={"bf16": 0.71, "fp8": 0.66},
    attention={"flash2": (0.37, 0.33)},
)
FABRIC = Fabric(
    name="made",
    family="rdma",
    hop_seconds=2e-6,
    call_seconds=8e-06,
    efficiency=1.0,
    congestion=0.51656,
    notes="as measured",
)


@pytest.mark.parametrize(
    "struct",
    [STACK, CHIP, FABRIC, load_stack("megatron"), load_chip("hopper"), load_fabric("efa")],
    ids=lambda struct: f"{type(struct).__name__}-{struct.name}",
)
def test_round_trip(struct):
    table = tomllib.loads(struct_toml(struct, {}))
    assert "name" not in table, "the file's own name is the name"
    assert msgspec.convert({**table, "name": struct.name}, type(struct)) == struct


def test_every_key_stands_under_its_meaning():
    text = struct_toml(STACK, {"memory_traffic": " Fitted (x/: 1.08)."})
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("#"):
            assert lines[number - 1].startswith("# "), line
    assert max(len(line) for line in lines) <= 98
    before, _, after = text.partition("memory_traffic = ")
    assert after.startswith("1.2345\n")
    assert " ".join(before.replace("\n# ", " ").split()).endswith("Fitted (x/: 1.08).")


def test_defaults_are_left_out():
    table = tomllib.loads(struct_toml(STACK, {}))
    assert table["memory_traffic"] == 1.2345
    plain = msgspec.structs.replace(STACK, since="", undetermined=(), constants_from=None)
    assert {"since", "undetermined", "constants_from"}.isdisjoint(
        tomllib.loads(struct_toml(plain, {}))
    )


def test_tables_come_last_and_their_keys_have_remarks():
    text = struct_toml(CHIP, {"gemm.bf16": "  # Fitted (x/: 1.02)."})
    assert "bf16 = 0.71  # Fitted (x/: 1.02).\n" in text
    assert text.index("calibrated = false") < text.index("[gemm]") < text.index("[attention]")
    assert tomllib.loads(text)["attention"] == {"flash2": [0.37, 0.33]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (0.123456789, "0.12346"),
        (1.2e9, "1.2e+09"),
        ('say "x\\y"', '"say \\"x\\\\y\\""'),
        ((0.9, 1.1), "[0.9, 1.1]"),
        (("a", "b"), '["a", "b"]'),
    ],
)
def test_values(value, text):
    assert toml_value(value) == text


def test_line_breaks_of_a_source_name():
    text = struct_toml(msgspec.structs.replace(STACK, fitted_on="two\nlines"), {})
    assert tomllib.loads(text)["fitted_on"] == "two\nlines"


def test_rounding_is_to_five_digits():
    assert round_to(0.123456789) == 0.12346
    assert round_to(123456.7) == 123460.0
    assert round_to(0.80512, 3) == 0.805


@pytest.fixture
def fit():
    """A fit that saw one stack and one chip."""
    fit = Calibrator()
    fit.compiled_ = {"megatron": True}
    fit.values_ = {
        ("stack", "megatron", "memory_traffic"): 1.654321,
        ("stack", "megatron", "tp_exposed"): 0.25,
        ("stack", "megatron", "straggler"): 0.02,
        ("chip", "hopper", "gemm.bf16"): 0.7,
        ("chip", "hopper", "gemm.fp8"): 0.9,
    }
    fit.spread_ = dict.fromkeys(fit.values_, 1.05)
    fit.spread_["stack", "megatron", "tp_exposed"] = 1.64
    fit.on_bounds_ = [("stack", "megatron", "straggler")]
    return fit


class TestFittedStack:
    @pytest.fixture
    def made(self, fit):
        memory = MemoryFit()
        memory.values_ = {("megatron", "activation_factor"): 1.23456789}
        memory.interval_ = {"megatron": (0.8123, 1.0789)}
        return fitted_stack(load_stack("megatron"), fit, memory, fitted_on="a test")

    def test_constants(self, made):
        stack, _ = made
        assert stack.memory_traffic == 1.6543
        assert stack.tp_overlap == 0.75
        assert stack.activation_factor == 1.2346
        assert stack.fitted_on == "a test"
        # The lower end is rounded down: what ran must stay inside.
        assert stack.memory_interval == (0.81, 1.08)
        assert stack.undetermined == ("straggler",)

    def test_facts_stay(self, made):
        shipped = load_stack("megatron")
        assert made[0].frameworks == shipped.frameworks
        assert made[0].fits == shipped.fits

    def test_remarks_say_what_was_seen(self, made):
        _, notes = made
        assert notes["memory_traffic"] == " Fitted (x/: 1.05)."
        assert notes["tp_overlap"] == " Prior: the runs hardly determine it (x/: 1.64)."
        assert notes["straggler"] == " Fitted, on its bound."
        assert notes["contention"] == " Not fitted."


def test_narrow_shares_are_relative_to_the_wide_one(fit):
    links = {("chip", "hopper", "link_efficiency"): 0.81234}
    chip, notes = fitted_chip("hopper", fit, "a test", links)
    assert chip.gemm["bf16"] == 0.7
    assert chip.gemm["fp8"] == pytest.approx(0.63)
    assert chip.link_efficiency == 0.812
    assert chip.attention == load_chip("hopper").attention
    assert notes["gemm.bf16"] == "  # Fitted (x/: 1.05)."
