"""The optimizer step: bytes of an update, products on whole matrices, what shards add."""

import msgspec
import pytest

from scalewise.errors import InputError
from scalewise.step.compose import compose
from toys import LAYER_PARAMS, case_of, one, toy_cluster, toy_model, toy_stack, toy_workload

HIDDEN, FFN, KV = 1024.0, 4096.0, 256.0


def update_of(strategy, **words):
    case = case_of(strategy, workload=toy_workload(**words), stack=toy_stack(optimizer_bytes=30.0))
    return compose(case).update, case


@pytest.mark.parametrize(
    ("words", "bytes_"),
    [
        ({}, 2 * 12 + 4 + 2),
        ({"optimizer": "adamw-bf16"}, 2 * 8 + 4 + 2),
        ({"optimizer": "sgd"}, 2 * 4 + 4 + 2),
        # Without a master copy the weight itself is read and written.
        ({"weights": "bf16"}, 2 * 8 + 2 + 2 * 2),
        ({"optimizer": "sgd", "weights": "fp32"}, 4 + 2 * 4),
    ],
)
def test_an_update_streams_states_gradient_and_weight(words, bytes_):
    update, case = update_of("ddp8", **words)
    params = 4 * LAYER_PARAMS + 2 * 32_768_000
    assert one(update.streamed) == pytest.approx(bytes_ * params / one(case.rates.memory))
    assert one(update.products) == one(update.gathers) == 0.0


def orthogonalized(m, n):
    a, b = min(m, n), max(m, n)
    return 5 * (4 * a * a * b + 2 * a**3)


def test_muon_orthogonalizes_every_matrix_of_a_layer():
    update, case = update_of("ddp8", optimizer="muon")
    flops = 2 * orthogonalized(HIDDEN, HIDDEN) + 2 * orthogonalized(HIDDEN, KV)
    flops += 3 * orthogonalized(HIDDEN, FFN)
    assert one(update.products) == pytest.approx(4 * flops / one(case.rates.gemm16))
    # Every replica has all of the momentum.
    assert one(update.gathers) == 0.0


def test_shards_divide_the_products_and_gather_the_momentum():
    alone, _ = update_of("ddp8", optimizer="muon")
    sharded, _ = update_of("zero1x8", optimizer="muon")
    assert one(sharded.products) == pytest.approx(one(alone.products) / 8)
    assert one(sharded.gathers) > 0.0


def test_shampoo_keeps_preconditioners():
    plain, kept = (
        case_of("ddp8", workload=toy_workload(optimizer=name)).update
        for name in ("muon", "shampoo")
    )
    sides = 2 * 2 * (HIDDEN**2 + HIDDEN**2) + 2 * 2 * (HIDDEN**2 + KV**2)
    sides += 3 * 2 * (HIDDEN**2 + FFN**2)
    size = 2 * HIDDEN**2 + 2 * HIDDEN * KV + 3 * HIDDEN * FFN
    assert one(kept.moment_bytes) == pytest.approx(4.0 + 4.0 * sides / size)
    assert one(plain.moment_bytes) == 4.0


def test_unknown_words_are_refused():
    with pytest.raises(InputError, match="unknown weights fp64"):
        toy_workload(weights="fp64")
    with pytest.raises(InputError, match="unknown loss half"):
        toy_workload(loss="half")
    with pytest.raises(InputError, match="optimizer"):
        case_of("ddp8", workload=toy_workload(optimizer="adamwx"))


def test_sixteen_bit_weights_send_sixteen_bit_gradients():
    mixed, plain = (case_of("ddp8", workload=toy_workload(weights=w)) for w in ("mixed", "bf16"))
    assert one(mixed.habits.reduce_bytes) == 4.0
    assert one(plain.habits.reduce_bytes) == 2.0
    stated = case_of("ddp8-reducefp32", workload=toy_workload(weights="bf16"))
    assert one(stated.habits.reduce_bytes) == 4.0


def test_the_optimizer_is_part_of_the_simulated_step():
    from scalewise.simulation.simulate import timeline

    work = toy_workload(optimizer="muon")
    line = timeline(toy_model(), toy_cluster(), work, strategy_of("zero1x8"), stack=toy_stack())
    plain = timeline(
        toy_model(),
        toy_cluster(),
        msgspec.structs.replace(work, optimizer="adamw"),
        strategy_of("zero1x8"),
        stack=toy_stack(),
    )
    assert line.step_seconds > plain.step_seconds


def strategy_of(text):
    from scalewise.strategy import parse_strategy

    return parse_strategy(text)
