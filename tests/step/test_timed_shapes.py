"""GEMM shapes timed on a device refine its estimates, and nobody else's."""

import msgspec
import numpy as np
import pytest

import scalewise
from scalewise.catalog import PACKAGE, load_cluster
from scalewise.chip import load_chip
from scalewise.model import load_model
from scalewise.physics.shapes import shape_factor
from scalewise.stack import load_stack
from scalewise.step.case import Case
from scalewise.step.explain import explain
from scalewise.step.kernels import gemms
from scalewise.step.layout import lay_out
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

# The up-projection of Llama-3 8B, of 8,192 tokens, and its LM head.
TIMED = ((8192.0, 28672.0, 4096.0, 1.3), (8192.0, 128256.0, 4096.0, 0.8))


def laid(spelling, shapes=()):
    chip = msgspec.structs.replace(load_chip("hopper"), gemm_shapes=shapes)
    return lay_out(
        load_model("llama-3-8b"),
        load_cluster("dgx-h100", 8),
        Workload(seq_len=8192, global_batch=8),
        Strategies.of([parse_strategy(spelling)]),
        load_stack("pytorch"),
        chip,
    )


def test_products_near_what_was_timed_change_and_the_others_hardly_do():
    plain, timed = gemms(laid("fsdp8")), gemms(laid("fsdp8", TIMED))
    ratio = {
        name: float((getattr(timed, name) / getattr(plain, name))[0]) for name in plain._fields
    }
    assert ratio["up"] == pytest.approx(1.3 ** (1.0 / 1.1), rel=1e-3)
    assert ratio["head"] == pytest.approx(0.8 ** (1.0 / 1.1), rel=1e-3)
    assert ratio["qkv"] == pytest.approx(float(shape_factor(8192.0, 6144.0, 4096.0, TIMED)))
    assert ratio["qkv"] == pytest.approx(1.0, abs=0.02)


def test_eight_bit_products_keep_the_smooth_law():
    plain, timed = gemms(laid("fsdp8-fp8")), gemms(laid("fsdp8-fp8", TIMED))
    assert timed.up[0] == plain.up[0]
    assert timed.head[0] < plain.head[0]


def test_a_table_of_runs_keeps_devices_apart():
    both = gemms(Case.join([laid("fsdp8"), laid("fsdp8", TIMED)]))
    alone = [gemms(laid("fsdp8")).up[0], gemms(laid("fsdp8", TIMED)).up[0]]
    assert np.asarray(both.up).tolist() == alone


def test_a_calibration_of_ones_own_brings_its_shapes_and_their_derivation(tmp_path, monkeypatch):
    question = {"on": "dgx-h100", "gpus": 8, "strategy": "fsdp8-mb1", "seq": 8192, "batch": 8}
    plain = scalewise.estimate("llama-3-8b", **question, stack="pytorch")
    (tmp_path / "calibrations").mkdir()
    shipped = (PACKAGE / "calibrations" / "hopper.toml").read_text()
    rows = [list(row) for row in TIMED]
    (tmp_path / "calibrations" / "hopper.toml").write_text(f"gemm_shapes = {rows}\n{shipped}")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    timed = scalewise.estimate("llama-3-8b", **question, stack="pytorch")
    assert timed.terms["gemm"] > 1.02 * plain.terms["gemm"]
    (derived,) = (each for each in explain(timed) if each.key == "gemm")
    assert derived.value == pytest.approx(timed.terms["gemm"], rel=1e-9)
    assert "refined by timings" in str(derived)
