"""What a calibration writes can be read again, by people too."""

import tomllib
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from scalewise.catalog import load_fabric
from scalewise.chip import Calibration, load_chip
from scalewise.cluster import Fabric
from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.expert_fit import PRIORS, ExpertFit
from scalewise.evidence.files import (
    fitted_chip,
    fitted_experts,
    fitted_stack,
    round_to,
    struct_toml,
    toml_value,
    write_experts,
)
from scalewise.evidence.memory_fit import MemoryFit
from scalewise.experts import load_experts
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

    def test_shared_constants_stand_in_one_file(self, fit):
        fit.values_["stack", "pytorch", "contention"] = 0.123456
        stack, _ = fitted_stack(load_stack("pytorch-compiled"), fit, MemoryFit(), fitted_on="-")
        assert (stack.base, stack.shares) == ("pytorch", ("contention", "straggler"))
        assert stack.contention == 0.12346
        text = struct_toml(stack, {}, elsewhere=stack.shares)
        assert "\ncontention =" not in text
        assert "\nmemory_traffic =" in text

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
    chip, notes = fitted_chip("hopper", fit, "a test", links, {"bf16": 10, "fp8": 9})
    assert (chip.knows("bf16"), chip.knows("fp8"), chip.knows("fp4")) == (True, False, False)
    assert load_chip("never-seen").knows("bf16") is False
    assert chip.gemm["bf16"] == 0.7
    assert chip.gemm["fp8"] == pytest.approx(0.63)
    assert chip.link_efficiency == 0.812
    assert chip.attention == load_chip("hopper").attention
    assert notes["gemm.bf16"] == "  # Fitted (x/: 1.05)."


class TestExperts:
    @pytest.fixture
    def fit(self):
        known = load_experts("megatron")
        changed = msgspec.structs.replace(known, overlap=1.0, nccl=0.123456789)
        runs = [SimpleNamespace(source=name) for name in ("b", "a", "a")]
        return ExpertFit(
            constants=changed,
            spread={name: 1.7 if name == "static_host" else 1.02 for name in PRIORS},
            rows=SimpleNamespace(table=SimpleNamespace(runs=runs)),
            errors=np.array([0.1, -0.2, 0.3]),
        )

    def test_constants_and_remarks(self, fit):
        constants, notes = fitted_experts(fit)
        assert constants.nccl == 0.12346
        assert constants.fitted_on == "3 published runs of a, b; median error 20.0 % in sample"
        assert constants.undetermined == ("static_host", "overlap")
        assert notes["nccl"] == " Fitted (x/: 1.02)."
        assert notes["static_host"] == " Prior: the runs hardly determine it (x/: 1.70)."
        assert notes["overlap"] == " Fitted, on its bound."

    def test_file(self, fit, tmp_path):
        path = write_experts(fit, tmp_path)
        assert path == tmp_path / "experts" / "megatron.toml"
        assert load_experts(str(path)).nccl == 0.12346
        assert "preprocessing included.\n# Fitted (x/: 1.02).\nnccl = 0.12346\n" in path.read_text()
