"""Cases: parts that can be joined and changed, and what follows from a split."""

import numpy as np

from scalewise.step.case import Case
from toys import case_of, toy_model


def test_tokens_per_rank():
    case = case_of("fsdp8-mb2", "fsdp4-cp2-mb2")
    assert case.tokens.tolist() == [2000.0, 1000.0]


def test_join_and_change():
    first, second = case_of("fsdp8", "ddp8"), case_of("fsdp4-tp2", model=toy_model(layers=7))
    joined = Case.join([first, second])
    assert len(joined) == 3
    assert joined.shape.layers.tolist() == [4.0, 4.0, 7.0]
    assert joined.split.tp.tolist() == [1.0, 1.0, 2.0]
    changed = joined.changed(contention=np.array([0.0, 0.1, 0.2]))
    assert changed.habits.contention.tolist() == [0.0, 0.1, 0.2]
    assert joined.habits.contention.tolist() == [0.5, 0.5, 0.5]
    assert changed.shape.layers is joined.shape.layers


def test_masks_of_a_split():
    split = case_of(
        "ddp8", "zero1x8", "zero2x8", "fsdp8-acsel", "fsdp4-tp2-acfull", "fsdp2-pp4-v2",
        "fsdp2-pp4-gpipe", "fsdp2-pp4-zbh1", "fsdp2-pp4-zbv", "fsdp8-gpipe",
        model=toy_model(layers=16),
    ).split  # fmt: skip
    assert split.ddp.tolist() == [True] + [False] * 9
    assert split.shards_optimizer.tolist() == [False] + [True] * 9
    assert split.shards_gradients.tolist() == [False, False] + [True] * 8
    assert split.fully_sharded.tolist() == [False] * 3 + [True] * 7
    assert split.recompute.nonzero()[0].tolist() == [3, 4]
    assert split.recompute_blocks.tolist() == [0.0] * 4 + [1.0] + [0.0] * 5
    assert split.sp.tolist() == [1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert split.pipelined.nonzero()[0].tolist() == [5, 6, 7, 8]
    assert split.interleaved.nonzero()[0].tolist() == [5]
    # A schedule without stages is none.
    assert split.gpipe.nonzero()[0].tolist() == [6]
    assert split.zero_bubble.nonzero()[0].tolist() == [7, 8]
    assert split.zb_v.nonzero()[0].tolist() == [8]
    # ZB-V has embedding and head on one stage.
    assert split.split_ends.nonzero()[0].tolist() == [5, 6, 7]


def test_context_parallel_ranks_shard_too():
    assert case_of("fsdp4-cp2", "hsdp2x4").split.shards.tolist() == [8.0, 4.0]


def test_columns_of_a_case_can_be_taken_and_built_again():
    case = case_of("fsdp8", "fsdp4-tp2", "ddp8")
    row = case.take(np.array([1]))
    assert len(row) == 1
    assert row.split.tp.tolist() == [2.0]
    again = Case.of_columns(case.columns())
    for name, column in case.columns().items():
        assert again.columns()[name] is column
