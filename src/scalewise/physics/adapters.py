"""Work of low-rank adapters beside a frozen matrix, and of a matrix that is stored in 4 bits.

    adapter_shapes(4096.0, 4096.0, 11008.0, 16.0)           # six products of one adapter
    dequantize_seconds(45e6, base_bytes=0.516, matrices=1.0, memory_rate=2.8e12)

An adapter adds s B A x to W x: LoRA, Hu et al., arXiv 2106.09685. Pure functions on floats or
arrays; SI units.
"""

from __future__ import annotations

from scalewise.numeric import Array, Num, stacked
from scalewise.physics.compute import KERNEL_SECONDS

FORWARD_PASSES, BACKWARD_PASSES = (3.0, 2.0), (0.0, 2.0)
"""Elements per output element that an adapter moves besides its products, forward and backward:
where kernels are fused, and more where every operation is one. Forward adds to the output (reads
two, writes one) and scales (reads one, writes one); backward scales its gradient. A count of
`LoRALinear.forward` (pytorch/torchtune, torchtune/modules/peft/lora.py) and of `Linear.forward`
(huggingface/peft, src/peft/tuners/lora/layer.py), without dropout."""

INPUT_PASSES = 3.0
"""Elements per input element in backward: its gradient is added to that of the frozen matrix."""

LAYER_KERNELS = 132.0
"""Kernels of a layer, forward and backward. Counted, like those below: operators that eager
PyTorch 2 dispatches for Llama's layer as `scalewise.measure` builds it, views left out."""

FROZEN_KERNELS = 22.0
"""Kernels of backward that a frozen layer does without: seven wgrads, gradients of two norms (three
kernels each), and the addition of nine gradients to those of earlier micro-batches."""

ADAPTER_FORWARD, ADAPTER_BACKWARD = 4.0, 8.0
"""Kernels of one adapter: two products, scale, add; four products, scale, add, and the addition of
two gradients to those of earlier micro-batches."""

DEQUANTIZE_KERNELS = 3.0
"""Kernels that make a 16-bit matrix of a 4-bit one: its scales, their offset, its elements
(`dequantize_4bit` with nested statistics, bitsandbytes-foundation/bitsandbytes, functional.py)."""

DEQUANTIZE_TRAFFIC = 1.0
"""Bytes that dequantization moves over the minimum: an assumption, that of a kernel which streams
through memory once. No published timing was found."""


def adapter_shapes(m: Num, inputs: Num, outputs: Num, rank: Num) -> tuple[Array, Array, Array]:
    """Return rows, columns and depths of the six products of an adapter.

    In order: A x and B (A x), the gradients of both inputs, the gradients of A and B.

    Args:
        m: Tokens.
        inputs: Columns of the frozen matrix.
        outputs: Its rows.
        rank: Width of the adapter.

    >>> rows, columns, depths = adapter_shapes(4096.0, 1024.0, 2048.0, 16.0)
    >>> [int(each) for each in rows], [int(each) for each in columns], [int(k) for k in depths]
    ... # doctest: +NORMALIZE_WHITESPACE
    ([4096, 4096, 4096, 4096, 16, 2048], [16, 2048, 16, 1024, 1024, 16],
     [1024, 16, 2048, 16, 4096, 4096])
    """
    return (
        stacked(m, m, m, m, rank, outputs),
        stacked(rank, outputs, rank, inputs, inputs, rank),
        stacked(inputs, rank, outputs, rank, m, m),
    )


def elementwise_bytes(
    m: Num, inputs: Num, outputs: Num, *, unfused: Num = 1.0, element_bytes: float = 2.0
) -> tuple[Num, Num]:
    """Return the bytes that adapters move besides their products, forward and backward.

        forward:  2 m (3 + 2 u) o
        backward: 2 m (2 u o + 3 i)

    Args:
        m: Tokens.
        inputs: i: inputs of all adapters.
        outputs: o: outputs of all adapters.
        unfused: u: 1 where every operation is a kernel, 0 where scale and add are fused.
        element_bytes: Bytes per element.

    >>> elementwise_bytes(1.0, 100.0, 10.0)
    (100.0, 640.0)
    """
    (first, more), (none, scale) = FORWARD_PASSES, BACKWARD_PASSES
    forward = element_bytes * m * (first + unfused * more) * outputs
    backward = element_bytes * m * ((none + unfused * scale) * outputs + INPUT_PASSES * inputs)
    return forward, backward


def dequantize_seconds(
    elements: Num, *, base_bytes: Num, matrices: Num, memory_rate: Num, calls: Num = 1.0
) -> Num:
    """Return the time to make 16-bit matrices of 4-bit ones, seconds.

        x (b + 2) E / B + 3 k t0

    Args:
        elements: E: elements of all matrices.
        base_bytes: b: bytes of a stored element.
        matrices: k: number of matrices.
        memory_rate: B: bytes/s that memory sustains.
        calls: 0 where nothing is quantized.

    >>> chip = {"matrices": 1.0, "memory_rate": 2.8e12}
    >>> round(1e6 * float(dequantize_seconds(4096.0 * 11008, base_bytes=0.516, **chip)), 1)
    49.5
    """
    moved = DEQUANTIZE_TRAFFIC * (base_bytes + 2.0) * elements / memory_rate
    result: Num = calls * (moved + DEQUANTIZE_KERNELS * KERNEL_SECONDS * matrices)
    return result
