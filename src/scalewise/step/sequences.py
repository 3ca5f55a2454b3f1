"""Documents in sequences: what attention computes, and what padding costs.

Without lengths of documents a sequence is one document. Packed documents have attention of their
own (variable-length kernels of FlashAttention, cuDNN and XLA); an unfused kernel computes the whole
causal square and masks it. Padding is computed like any other token. In a bucketed batch the length
of a sequence depends on the micro-batch and the ranks that wait for each other; memory has to hold
the longest one.

Context parallelism splits every packed document evenly over its ranks, as Transformer Engine does,
whose padding to a multiple of 2 cp is left out; it needs sequences of one length, so it excludes
bucketed batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.lengths import filled, padded_length, padded_square, read_lengths
from scalewise.numeric import Array, Num, some, where
from scalewise.tuning import training_flops

if TYPE_CHECKING:
    from scalewise.model import Convention, Model
    from scalewise.step.case import Case
    from scalewise.workload import Workload


def useful_span(model: Model, workload: Workload) -> float | None:
    """Return the keys a token of a document attends to, mean; None where lengths are not given."""
    if workload.lengths is None:
        return None
    return filled(workload.lengths, workload.batching, workload.seq_len).span(model)


def useful_flops(model: Model, workload: Workload, convention: Convention) -> float:
    """Return the FLOPs of forward and backward per token that counts, without recompute."""
    span = useful_span(model, workload)
    return training_flops(model, workload.tuned, workload.seq_len, convention, span)


def document_columns(model: Model, workload: Workload, *, unfused: bool) -> dict[str, float]:
    """Return columns of the shape that documents change and strategies do not; none without.

    Args:
        model: Model.
        workload: Sequence, documents, and how they fill it.
        unfused: Whether attention computes and stores all scores of a sequence.
    """
    if workload.lengths is None or workload.batching != "packed" or unfused:
        return {}
    fill = filled(workload.lengths, workload.batching, workload.seq_len)
    # Padding attends to nothing.
    return {"span": fill.span(model) * fill.useful, "document": fill.document}


def bucketed_columns(model: Model, workload: Workload, columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns of the shape of a bucketed batch, which depend on the strategy.

    Args:
        model: Model.
        workload: Sequence and documents.
        columns: All columns so far.
    """
    if workload.lengths is None or workload.batching != "bucketed":
        return {}
    documents = read_lengths(workload.lengths).up_to(workload.seq_len)
    ranks = columns["dp_replicate"] * columns["dp_shard"]
    # Sharded parameters are gathered for every micro-batch; gradients may be reduced once.
    steps = where(columns["sharding"] == 3.0, 1.0, columns["num_microbatches"])
    of: tuple[Array, Array, Array] = (columns["micro_batch"], ranks, steps)
    length = padded_length(documents, *of)
    document = padded_square(documents, *of) / length
    return {
        "seq_len": length,
        "document": document,
        "span": _spans(model, document),
        "longest": 0.0 * length + documents.tokens[-1],
    }


def _spans(model: Model, document: Array) -> Array:
    """Keys a token attends to, by the length of the sequence it is in, mean over tokens."""
    distinct, place = np.unique(document, return_inverse=True)
    values = np.array([model.attention_span(float(each)) for each in distinct])
    result: Array = values[place].reshape(np.shape(document))
    return result


def of_longest(case: Case) -> Case:
    """Return the step with its longest sequences: what memory has to hold."""
    shape = case.shape
    if not some(shape.longest > shape.seq_len):
        return case
    return case.changed(seq_len=shape.longest)


def padding_flops(case: Case, model: Model, workload: Workload) -> Num:
    """Return the FLOPs of a step that no token of a document needs, over all GPUs."""
    if workload.lengths is None:
        return case.zeros
    shape, sequences = case.shape, float(workload.global_batch)
    of = (model, workload.tuned, workload.seq_len)
    without = training_flops(*of, span=0.0)
    each = training_flops(*of, span=1.0) - without
    computed = sequences * shape.seq_len * (without + each * shape.span)
    needed = workload.tokens_per_step * useful_flops(model, workload, "causal")
    return computed - needed
