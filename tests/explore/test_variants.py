"""Variants of sharding in a search: on and off, alone and together."""

import numpy as np
import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.space import Limits, count, pieces
from scalewise.explore.variants import with_variants
from scalewise.model import load_model
from scalewise.sharding import VARIANTS
from scalewise.step.estimate import estimate
from scalewise.strategies import Strategies
from scalewise.workload import Workload

MODEL, WORK = load_model("llama-2-7b"), Workload(seq_len=2048, global_batch=16)
FLAT = {"recompute": ("none",), "overlap": (True,), "pp": (1,), "tp": (1,), "cp": (1,),
        "micro_batch": (1,)}  # fmt: skip


def words(*variants, **limits):
    cluster = load_cluster("dgx-h100", 16)
    space = Limits(**{**FLAT, **limits}, variants=variants)
    found = [str(s) for piece in pieces(MODEL, cluster, WORK, space) for s in piece]
    assert len(set(found)) == len(found) == count(MODEL, cluster, WORK, space)
    return set(found)


def test_each_word_is_tried_on_and_off():
    plain = words(sharding=("zero3",))
    assert words("qgz", sharding=("zero3",)) == plain | {f"{each}-qgz" for each in plain}
    both = words("qwz", "qgz", sharding=("zero3",))
    assert len(both) == 4 * len(plain)
    assert "fsdp16-mb1-qwz-qgz" in both


def test_copies_fill_a_domain_or_the_largest_part_of_it():
    found = words("hpz", sharding=("zero3",))
    copies = {each for each in found if "hpz" in each}
    # Groups of 2 have no smaller ones; parameters that stay need no copy.
    assert copies == {
        "fsdp16-mb1-hpz8", "fsdp16-mb1-pf0-hpz8", "hsdp2x8-mb1-hpz4", "hsdp2x8-mb1-pf0-hpz4",
        "hsdp4x4-mb1-hpz2", "hsdp4x4-mb1-pf0-hpz2",
    }  # fmt: skip


def test_replicas_and_reductions():
    found = words("mics", sharding=("zero3",))
    assert {each for each in found if "mics" in each and "pf0" not in each} == {
        f"mics{mesh}-mb1{keep}" for mesh in ("2x8", "4x4", "8x2") for keep in ("", "-noreshard")
    }
    assert words("reduceonce", "reduceeach", sharding=("ddp",)) == {
        "ddp16-mb1", "ddp16-mb1-reduceonce", "ddp16-mb1-reduceeach",
    }  # fmt: skip
    # What only fully sharded strategies have leaves the others alone.
    assert words("qwz", "hpz", "mics", sharding=("ddp", "zero1")) == {"ddp16-mb1", "zero1x16-mb1"}


def test_a_product_is_its_rows_bit_by_bit():
    cluster, variants = load_cluster("dgx-h100", 16), tuple(VARIANTS)
    space = Limits(recompute=("none",), pp=(1, 2), tp=(1, 2), cp=(1, 2), variants=variants)
    for piece in list(pieces(MODEL, cluster, WORK, space, size=4096))[::9]:
        rows = Strategies.of_codes(piece.codes(np.arange(len(piece))))
        shaped = estimate(MODEL, cluster, WORK, piece, stack="pytorch")
        flat = estimate(MODEL, cluster, WORK, rows, stack="pytorch")
        for name in ("step_seconds", "memory_bytes", "infeasible_code"):
            laid = np.broadcast_to(getattr(shaped, name), piece.shape).ravel()
            assert np.array_equal(laid, getattr(flat, name)), name


def test_one_rank_has_none():
    one = [{"sharding": 0.0, "dp_replicate": 1.0, "dp_shard": 1.0, "reshard_after_forward": 1.0}]
    assert len(with_variants(one, ("hpz", "qwz", "reduceonce"), 8)) == 1


def test_unknown_words():
    with pytest.raises(InputError, match="unknown variant hpzz") as error:
        Limits(variants=("hpzz",))
    assert "hpz" in str(error.value.hint)
