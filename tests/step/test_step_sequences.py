"""Documents in sequences: attention, padding, and what counts."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import points
from scalewise.errors import InputError
from scalewise.lengths import BATCHINGS, read_lengths
from scalewise.step.estimate import estimate
from scalewise.step.feasibility import REASONS, feasibility
from scalewise.step.memory import peak_memory
from scalewise.step.sequences import padding_flops, useful_flops
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload
from toys import case_of, one, terms_of, toy_cluster, toy_model, toy_stack, toy_workload

ROUNDING = 1e-9


def asked(spelling="fsdp8", stack=None, **workload):
    """An estimate of the toys."""
    work = toy_workload(**workload)
    of = toy_model(), toy_cluster(), work, parse_strategy(spelling)
    return estimate(*of, stack=stack or toy_stack())


def test_packed_documents_attend_to_themselves():
    dense, packed = case_of("fsdp8"), case_of("fsdp8", workload=toy_workload(lengths="500"))
    assert one(packed.shape.span) == 250.0
    assert one(packed.shape.document) == 500.0
    assert one(packed.tokens) == one(dense.tokens) == 1000.0
    # Half of the keys; kernels of 500 tokens have a factor of 1 + 400 / 500, not 1 + 400 / 1000.
    before, after = terms_of(dense), terms_of(packed)
    assert after["attention"] / before["attention"] == pytest.approx(0.5 * 1.8 / 1.4)
    assert after["gemm"] == before["gemm"]


def test_room_that_no_document_fits_is_padding():
    case = case_of("fsdp8", workload=toy_workload(lengths="600"))
    # Padding attends to nothing: 300 keys for 600 of 1000 tokens.
    assert one(case.shape.span) == 180.0
    e, dense = asked(lengths="600"), asked()
    assert e.workload.useful_fraction == 0.6
    assert e.workload.tokens_per_step == 9600.0
    assert e.tokens_per_second == pytest.approx(9600.0 / e.step_seconds)
    assert e.step_seconds < dense.step_seconds


def test_an_unfused_kernel_computes_the_whole_square():
    stack = toy_stack(attention_kernel="unfused")
    dense = case_of("fsdp8", stack=stack)
    packed = case_of("fsdp8", stack=stack, workload=toy_workload(lengths="500"))
    assert terms_of(packed) == terms_of(dense)


def test_padding_is_computed_like_any_token():
    e, dense = asked(lengths="600", batching="padded"), asked()
    assert e.terms == dense.terms
    assert e.memory == dense.memory
    ratio = e.tokens_per_second / dense.tokens_per_second
    assert ratio == pytest.approx(0.6)
    assert e.usd_per_million_tokens == pytest.approx(dense.usd_per_million_tokens / 0.6)
    assert e.joules_per_token == pytest.approx(dense.joules_per_token / 0.6)
    # A document of 600 has 300 keys: fewer FLOPs than 0.6 of those of a sequence.
    model = toy_model()
    flops = model.training_flops(1000, span=300.0)
    assert useful_flops(model, e.workload, "causal") == flops
    assert e.mfu / dense.mfu == pytest.approx(0.6 * flops / model.training_flops(1000))
    assert e.hfu == pytest.approx(dense.hfu)
    assert e.padding == pytest.approx(dense.mfu - e.mfu)


def test_padding_flops_are_those_of_tokens_that_do_not_count():
    work = toy_workload(lengths="600", batching="padded")
    model = toy_model()
    computed = 16 * 1000 * model.training_flops(1000)
    needed = 16 * 600 * model.training_flops(1000, span=300.0)
    found = padding_flops(case_of("fsdp8", workload=work), model, work)
    assert one(found) == pytest.approx(computed - needed)
    assert one(padding_flops(case_of("fsdp8"), model, toy_workload())) == 0.0


def test_bucketed_documents_of_one_length_are_shorter_sequences():
    bucketed = asked("fsdp8-mb2", lengths="600", batching="bucketed")
    short = asked("fsdp8-mb2", seq_len=600)
    assert bucketed.terms == short.terms
    assert bucketed.memory == short.memory
    assert bucketed.tokens_per_second == short.tokens_per_second
    assert bucketed.mfu == pytest.approx(short.mfu)
    assert bucketed.padding == pytest.approx(0.0, abs=1e-12)


def test_a_bucketed_batch_is_as_long_as_its_longest_documents():
    work = toy_workload(lengths="1..999", batching="bucketed")
    case = case_of("fsdp1-mb2", "fsdp8-mb1", "zero1x8-mb1", "fsdp8-mb2", workload=work)
    lengths = np.asarray(case.shape.seq_len)
    # Two documents, eight of eight ranks, and the same where they wait after two micro-batches.
    assert lengths[0] == pytest.approx(1 + 998 * 2 / 3, rel=1e-3)
    assert lengths[1] == pytest.approx(1 + 998 * 8 / 9, rel=1e-3)
    assert lengths[2] == pytest.approx(500 + 998 * (8 / 9 - 1 / 2) / 2**0.5, rel=1e-3)
    assert lengths[3] == pytest.approx(1 + 998 * 16 / 17, rel=1e-3)
    # E[x^2] of the longest of two is half of the square of the range.
    assert case.shape.document[0] == pytest.approx(998**2 / 2 / (998 * 2 / 3), rel=3e-3)
    assert np.allclose(case.shape.span, case.shape.document / 2.0)


def test_memory_holds_the_longest_sequence():
    work = toy_workload(lengths="1..999", batching="bucketed")
    case = case_of("fsdp8-mb2", workload=work)
    longest = one(case.shape.longest)
    assert 998.0 < longest < 1000.0
    held = peak_memory(case.changed(seq_len=case.shape.longest))
    assert one(peak_memory(case).activations) == one(held.activations)
    assert one(peak_memory(case).logits) == pytest.approx(8.0 * 2 * longest * 32_000)


def test_bucketed_batches_exclude_context_parallelism():
    work = toy_workload(lengths="1..999", batching="bucketed")
    codes = feasibility(case_of("fsdp4-cp2", "fsdp8", workload=work), 0.0)
    assert [REASONS[int(code)] for code in codes] == [
        "batching: cp needs sequences of one length, not bucketed ones", "fits",
    ]  # fmt: skip
    with pytest.raises(InputError, match="cp = 2 needs sequences of one length"):
        asked("fsdp4-cp2", lengths="1..999", batching="bucketed")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batching": "padded"}, "batching = padded needs lengths of documents"),
        ({"batching": "sorted", "lengths": "600"}, "unknown batching sorted"),
        ({"lengths": "x"}, "lengths = x: x is not a number of tokens"),
    ],
)
def test_wrong_workloads_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Workload(seq_len=1000, global_batch=8, **fields)


# Properties.


def without_documents(point):
    return msgspec.structs.replace(point.workload, lengths=None, batching="packed")


@given(point=points(), batching=st.sampled_from(BATCHINGS))
def test_documents_as_long_as_the_sequence_equal_dense_to_the_last_bit(point, batching):
    dense = without_documents(point)
    whole = msgspec.structs.replace(dense, lengths=str(dense.seq_len), batching=batching)
    before, after = point.estimate(workload=dense), point.estimate(workload=whole)
    for name in ("step_seconds", "tokens_per_second", "mfu", "memory_bytes", "infeasible_code"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    for name, seconds in before.terms.parts().items():
        assert np.array_equal(seconds, after.terms.parts()[name]), name
    assert np.allclose(before.hfu, after.hfu, rtol=1e-12)


@given(point=points(), text=st.sampled_from(("1", "17", "600", "100..3000", "1..100k")))
def test_padding_never_raises_useful_throughput(point, text):
    dense = without_documents(point)

    def of(batching):
        changed = msgspec.structs.replace(dense, lengths=text, batching=batching)
        return point.estimate(workload=changed)

    none, packed, padded = point.estimate(workload=dense), of("packed"), of("padded")
    slack = 1.0 + ROUNDING
    if read_lengths(text).tokens[-1] <= dense.seq_len:
        # Truncated documents leave no rest to be packed.
        assert np.all(padded.tokens_per_second <= packed.tokens_per_second * slack)
    assert np.all(padded.tokens_per_second <= none.tokens_per_second * slack)
    for many in (packed, padded):
        assert np.all(many.padding >= -ROUNDING)
        assert np.all(many.mfu <= many.hfu * slack)
    assert np.array_equal(padded.step_seconds, none.step_seconds)
    assert np.all(packed.memory_bytes == none.memory_bytes)


@given(point=points(), text=st.sampled_from(("1", "600", "100..3000")))
def test_bucketed_batches_are_never_longer_than_padded_ones(point, text):
    dense = without_documents(point)

    def of(batching):
        changed = msgspec.structs.replace(dense, lengths=text, batching=batching)
        return point.estimate(workload=changed)

    bucketed, padded = of("bucketed"), of("padded")
    shape = bucketed.case.shape
    assert np.all(shape.seq_len <= shape.longest * (1.0 + ROUNDING))
    assert np.all(shape.longest <= dense.seq_len)
    assert np.all(bucketed.memory_bytes <= padded.memory_bytes * (1.0 + ROUNDING))
    assert bucketed.workload.tokens_per_step == padded.workload.tokens_per_step
