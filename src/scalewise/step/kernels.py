"""Kernels of one layer and of the LM head on one rank: GEMMs, attention, memory-bound work.

    kernels = layer_kernels(case)
    kernels.gemm_forward, kernels.attention_backward

All times are seconds per tensor-parallel rank and micro-batch; nothing here communicates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Array, Num, scalar, some, stacked
from scalewise.physics.compute import (
    ATTENTION_HALF_SEQUENCE,
    attention_seconds,
    derive_gemm,
    gemm_seconds,
)
from scalewise.physics.layer import (
    ATTENTION_BACKWARD,
    UNFUSED_BACKWARD,
    UNFUSED_FORWARD,
    attention_flops,
    memory_bound_elements,
    quantized_elements,
)
from scalewise.physics.shapes import shape_factor
from scalewise.step.case import Case
from scalewise.step.context_parallel import imbalance
from scalewise.step.recompute import repeated

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


class Gemms(NamedTuple):
    """Seconds of every GEMM of a layer, and of the LM head."""

    qkv: Array
    out: Array
    up: Array
    down: Array
    qkv_dgrad: Array
    out_dgrad: Array
    up_dgrad: Array
    down_dgrad: Array
    qkv_wgrad: Array
    out_wgrad: Array
    up_wgrad: Array
    down_wgrad: Array
    head: Array
    head_dgrad: Array
    head_wgrad: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """Kernels of one layer and micro-batch, seconds."""

    gemm_forward: Num
    gemm_backward: Num
    attention_forward: Num
    attention_backward: Num
    memory_forward: Num
    """Norms, residuals, rotary, activation, casts."""
    memory_backward: Num
    gradient: Num
    """Flatten, cast and accumulate the layer's gradients."""
    recompute: Num
    """Forward work that backward repeats."""
    wgrad: Num
    """Weight gradients and their handling: what zero-bubble schedules defer."""
    head_forward: Num
    """LM head GEMM."""
    head_backward: Num
    loss: Num
    """Loss and softmax, bound by memory."""

    @property
    def forward(self) -> Num:
        """All forward kernels."""
        return self.gemm_forward + self.attention_forward + self.memory_forward

    @property
    def backward(self) -> Num:
        """All backward kernels, recompute included."""
        backward = self.gemm_backward + self.attention_backward + self.memory_backward
        return backward + self.gradient + self.recompute

    @property
    def head(self) -> Num:
        """LM head and loss."""
        return self.head_forward + self.head_backward + self.loss


def gemms(case: Case) -> Gemms:
    """Return the time of every GEMM of a layer and of the LM head, which stays in 16 bits.

    Input gradients are (tokens x columns) (columns x depth), weight gradients (columns x tokens)
    (tokens x depth). One pass, because many short calls cost more than the arithmetic.
    """
    rates = case.rates
    rows, columns, depths, operand = _shapes(case)
    times = gemm_seconds(
        rows,
        columns,
        depths,
        rate=stacked(*(rates.gemm,) * 12, *(rates.gemm16,) * 3),
        units=rates.units,
        fill=rates.gemm_fill,
        memory_rate=rates.memory,
        element_bytes=operand,
    )
    return Gemms(*np.asarray(times * _measured(case, rows, columns, depths, operand)))


def _measured(case: Case, rows: Num, columns: Num, depths: Num, operand: Num) -> Num:
    """Return the factors of products that were timed on the device; they were 16-bit ones."""
    tables = case.rates.gemm_shapes
    # One device speaks for all strategies, except in a table of runs.
    known = {tables.flat[0]} if not any(tables.strides) else set(tables.ravel().tolist())
    factors: Num = np.ones(())
    for table in known - {()}:
        here = np.array([each == table for each in tables.ravel()]).reshape(tables.shape)
        factor = shape_factor(rows, columns, depths, table)
        factors = factors * np.where(here & (operand == 2.0), factor, 1.0)
    return factors


def layer_kernels(case: Case) -> Kernels:
    """Return the kernels of one layer and of the head."""
    shape, split, habits = case.shape, case.split, case.habits
    t = gemms(case)
    gemm_forward = t.qkv + t.out + t.up + t.down
    wgrad = t.qkv_wgrad + t.out_wgrad + t.up_wgrad + t.down_wgrad
    gemm_backward = (t.qkv_dgrad + t.out_dgrad + t.up_dgrad + t.down_dgrad) + wgrad
    attention_forward, attention_backward = attention(case)
    memory_forward, memory_backward = memory_bound(case)
    gradient = habits.gradient_bytes * shape.layer_params / split.tp / case.rates.memory
    recompute: Num = case.zeros
    if some(split.recompute):
        again = repeated(case)
        recompute = (
            again.gemm * gemm_forward
            - (again.blocks * habits.recompute_skips_last) * t.down
            + again.memory * memory_forward
            + again.attention * attention_forward
        )
    logits = case.tokens * shape.vocab / split.tp
    return Kernels(
        gemm_forward=gemm_forward,
        gemm_backward=gemm_backward,
        attention_forward=attention_forward,
        attention_backward=attention_backward,
        memory_forward=memory_forward,
        memory_backward=memory_backward,
        gradient=gradient,
        recompute=recompute,
        wgrad=wgrad + gradient,
        head_forward=t.head,
        head_backward=t.head_dgrad + t.head_wgrad,
        loss=habits.logit_bytes * logits / case.rates.memory,
    )


def attention(case: Case) -> tuple[Num, Num]:
    """Return attention of one layer, forward and backward, seconds.

    An unfused kernel computes the full square and moves every score through memory.
    """
    shape, split, rates = case.shape, case.split, case.rates
    tokens = case.tokens
    width = shape.attention_width
    flops = attention_flops(tokens, shape.span, width, split.tp) * imbalance(case)
    # Ring steps work on one block of keys at a time.
    piece = np.where(split.cp_ring, shape.seq_len / split.cp, shape.seq_len)
    forward = attention_seconds(flops, rate=rates.attention_forward, seq_len=piece)
    backward = attention_seconds(
        ATTENTION_BACKWARD * flops, rate=rates.attention_backward, seq_len=piece
    )
    unfused = case.habits.unfused_attention
    if some(unfused):
        scores = unfused * tokens * shape.seq_len * shape.heads / split.tp
        forward = forward * (1.0 + unfused) + UNFUSED_FORWARD * scores / rates.memory
        backward = backward * (1.0 + unfused) + UNFUSED_BACKWARD * scores / rates.memory
    return forward, backward


def memory_bound(case: Case) -> tuple[Num, Num]:
    """Return everything of one layer that streams through memory, forward and backward, seconds.

    Quantizing to 8 bits or less adds `cast_bytes` per GEMM input element and copy.
    """
    s, split, rates = case.shape, case.split, case.rates
    tokens, tp = case.tokens, split.tp
    widths = (s.hidden, s.query, s.key_value, s.ffn)
    elements = memory_bound_elements(*widths, gated=s.gated, tp=tp, sp=split.sp)
    scale = 2.0 * case.habits.memory_traffic / rates.memory * tokens
    forward, backward = scale * elements[0], scale * elements[1]
    if some(rates.quantized_copies):
        inputs, gradients = quantized_elements(*widths, gated=s.gated, tp=tp)
        cast = case.habits.cast_bytes * rates.quantized_copies / rates.memory
        forward = forward + cast * (tokens * inputs + s.layer_params / tp)
        backward = backward + cast * tokens * gradients
    return forward, backward


def _shapes(case: Case) -> tuple[Num, Num, Num, Num]:
    """Rows, columns and depths of all GEMMs, in the order of `Gemms`, and bytes per operand."""
    shape, split, rates = case.shape, case.split, case.rates
    tokens, tp = case.tokens, split.tp
    query, ffn, hidden = shape.query / tp, shape.ffn / tp, shape.hidden
    qkv, up = query + 2.0 * shape.key_value / tp, (1.0 + shape.gated) * ffn
    vocab = shape.vocab / tp
    columns, depths = (qkv, hidden, up, hidden), (hidden, query, hidden, ffn)
    rows = (tokens,) * 4
    half = np.broadcast_to(2.0, rates.matmul_bytes.shape)
    return (
        stacked(*rows, *rows, *columns, tokens, tokens, vocab),
        stacked(*columns, *depths, *depths, vocab, hidden, hidden),
        stacked(*depths, *columns, *rows, hidden, vocab, tokens),
        stacked(*(rates.matmul_bytes,) * 12, *(half,) * 3),
    )


def _derive_gemms(o: Origin, key: str, label: str, names: tuple[str, ...]) -> Derivation:
    """Return the sum of some GEMMs, each with its own derivation."""
    rates, letters = o.case.rates, []
    rows, columns, depths, operand = (np.asarray(each) for each in _shapes(o.case))
    for name in names:
        place = Gemms._fields.index(name)
        product = derive_gemm(
            name,
            scalar(rows[place]),
            scalar(columns[place]),
            scalar(depths[place]),
            rate=scalar(rates.gemm16 if name.startswith("head") else rates.gemm),
            units=scalar(rates.units),
            memory_rate=scalar(rates.memory),
            element_bytes=scalar(operand[place]),
            fill=scalar(rates.gemm_fill),
        )
        if scalar(operand[place]) == 2.0 and rates.gemm_shapes.flat[0]:
            product = _refined(o, product, rows[place], columns[place], depths[place])
        letters.append(Letter(name, product.value, product.label, "s", product))
    return Derivation(key=key, label=label, formula=" + ".join(names), letters=tuple(letters))


def _refined(o: Origin, product: Derivation, m: Array, n: Array, k: Array) -> Derivation:
    """Return a GEMM with its factor from products timed on the device."""
    factor = scalar(shape_factor(m, n, k, o.case.rates.gemm_shapes.flat[0]))
    return Derivation(
        key=product.key,
        label=f"{product.label}, refined by timings",
        formula="c * t",
        letters=(
            Letter("c", factor, "time over the smooth law, from timed products nearby"),
            Letter("t", product.value, product.label, "s", product),
        ),
    )


def _gemm(o: Origin, name: str, label: str, names: tuple[str, ...]) -> Letter:
    """A sum of GEMMs as a letter."""
    total = _derive_gemms(o, name, label, names)
    return Letter(name, total.value, label, "s", total)


def derive_gemm_term(o: Origin) -> Derivation:
    """Return how the GEMMs of a step come about."""
    names = Gemms._fields
    return Derivation(
        key="gemm",
        label="GEMM",
        formula="n * L * (Gf + Gb)",
        letters=(
            o.n,
            o.layers,
            _gemm(o, "Gf", "GEMMs of a layer, forward", names[:4]),
            _gemm(o, "Gb", "GEMMs of a layer, backward", names[4:12]),
        ),
        source=f"peak: datasheet; efficiency: {o.kernels}",
    )


def derive_attention(o: Origin) -> Derivation:
    """Return how attention of a step comes about."""
    shape, split, rates = o.case.shape, o.case.split, o.case.rates
    flops = Derivation(
        key="attention_flops",
        label="FLOPs of attention forward, one layer",
        formula="4 * m * S * q / tp * i",
        letters=(
            o.tokens,
            Letter("S", scalar(shape.span), "keys a query attends to, mean"),
            Letter("q", scalar(shape.attention_width), "width of all query heads, padded"),
            Letter("tp", scalar(split.tp), "tensor-parallel degree"),
            Letter("i", scalar(imbalance(o.case)), "slowest rank of the ring over the mean"),
        ),
        unit="FLOP",
    )
    forward, backward = "F * (1 + s0 / s) / Rf", "k * F * (1 + s0 / s) / Rb"
    piece = np.where(split.cp_ring, shape.seq_len / split.cp, shape.seq_len)
    letters: tuple[Letter, ...] = (
        o.n,
        o.layers,
        Letter("F", flops.value, flops.label, "FLOP", flops),
        Letter("k", ATTENTION_BACKWARD, "FLOPs of backward over forward"),
        Letter("s", scalar(piece), "tokens of one kernel call"),
        Letter("s0", ATTENTION_HALF_SEQUENCE, "tokens at half of the rate"),
        Letter("Rf", scalar(rates.attention_forward), "forward rate", "FLOP/s"),
        Letter("Rb", scalar(rates.attention_backward), "backward rate", "FLOP/s"),
    )
    formula = f"n * L * ({forward} + {backward})"
    if o.case.habits.unfused_attention[0]:
        scores = o.case.tokens * shape.seq_len * shape.heads / split.tp
        letters = (
            *letters,
            Letter("Z", scalar(scores), "scores of a layer"),
            Letter("z", UNFUSED_FORWARD + UNFUSED_BACKWARD, "bytes moved per score"),
            o.memory,
        )
        formula = f"n * L * (2 * {forward} + 2 * {backward} + z * Z / B)"
    return Derivation(
        key="attention",
        label="attention",
        formula=formula,
        letters=letters,
        source=f"kernel {o.stack.attention_kernel}; {o.kernels}",
    )


def _elements(o: Origin, name: str, label: str, formula: str) -> Letter:
    """Elements per token as a letter."""
    s, split = o.case.shape, o.case.split
    known = (
        Letter("h", scalar(s.hidden), "width of the residual stream"),
        Letter("q", scalar(s.query), "width of all query heads"),
        Letter("kv", scalar(s.key_value), "width of all key heads"),
        Letter("f", scalar(s.ffn), "width of the MLP"),
        Letter("g", scalar(s.gated), "1 for gated activations"),
        Letter("tp", scalar(split.tp), "tensor-parallel degree"),
        Letter("sp", scalar(split.sp), "sequence-parallel degree"),
    )
    words = set(re.findall(r"\w+", formula))
    letters = tuple(letter for letter in known if letter.name in words)
    inner = Derivation(key=name, label=label, formula=formula, letters=letters, unit="")
    return Letter(name, inner.value, label, "", inner)


def derive_memory_bound(o: Origin) -> Derivation:
    """Return how memory-bound kernels of a step come about."""
    habits, params = o.case.habits, o.case.shape.layer_params / o.case.split.tp
    casts = scalar(habits.cast_bytes * o.case.rates.quantized_copies)
    letters: tuple[Letter, ...] = (
        o.n,
        o.layers,
        o.tokens,
        Letter("x", scalar(habits.memory_traffic), "traffic over the minimum"),
        _elements(
            o, "Ef", "elements per token, forward",
            "10 * h / sp + 2 * (q + kv) / tp + (2 + g) * f / tp",
        ),
        _elements(
            o, "Eb", "elements per token, backward",
            "12 * h / sp + 2 * (q + kv) / tp + (3 + 2 * g) * f / tp",
        ),
        Letter("d", scalar(habits.gradient_bytes), "bytes per parameter to handle gradients"),
        Letter("P", scalar(params), "parameters of a layer on one rank"),
        o.memory,
    )  # fmt: skip
    formula = "n * L * (2 * x * m * (Ef + Eb) + d * P) / B"
    if casts:
        letters = (
            *letters,
            Letter("c", casts, "bytes to quantize an element, all copies"),
            _elements(o, "If", "GEMM inputs per token, forward", "2 * h + (q + f) / tp"),
            _elements(
                o, "Ib", "output gradients per token",
                "2 * h + (q + 2 * kv + (1 + g) * f) / tp",
            ),
        )  # fmt: skip
        formula = "n * L * (2 * x * m * (Ef + Eb) + d * P + c * (m * (If + Ib) + P)) / B"
    return Derivation(
        key="memory_bound",
        label="memory-bound kernels",
        formula=formula,
        letters=letters,
        source=f"bandwidth: datasheet x {o.chip.memory_efficiency:g}; x, d: {o.software}",
    )


def derive_head(o: Origin) -> Derivation:
    """Return how LM head and loss of a step come about."""
    return Derivation(
        key="head",
        label="LM head and loss",
        formula="n * (H + z * m * V / tp / B)",
        letters=(
            o.n,
            _gemm(o, "H", "GEMMs of the LM head, 16 bits", Gemms._fields[12:]),
            Letter("z", scalar(o.case.habits.logit_bytes), "bytes moved per logit by the loss"),
            o.tokens,
            Letter("V", scalar(o.case.shape.vocab), "rows of the embedding"),
            Letter("tp", scalar(o.case.split.tp), "tensor-parallel degree"),
            o.memory,
        ),
        source=f"z: {o.software}",
    )


def derive_recompute(o: Origin) -> Derivation:
    """Return how the recompute of a step comes about."""
    kernels, again = o.step.layer.kernels, repeated(o.case)
    skipped = again.blocks * o.case.habits.recompute_skips_last
    parts = {
        "Gf": ("g", again.gemm, _gemm(o, "Gf", "GEMMs of a layer, forward", Gemms._fields[:4])),
        "Mf": ("w", again.memory, Letter(
            "Mf", scalar(kernels.memory_forward), "memory-bound kernels, forward", "s")),
        "Af": ("a", again.attention, Letter(
            "Af", scalar(kernels.attention_forward), "attention, forward", "s")),
        "D": ("b", skipped, _gemm(o, "D", "last GEMM, which backward never needs", ("down",))),
    }  # fmt: skip
    letters: list[Letter] = [o.n, o.layers]
    formula = ""
    for name, (small, fraction, letter) in parts.items():
        value = scalar(fraction)
        if not value:
            continue
        letters.append(letter)
        sign = " - " if name == "D" else " + " if formula else ""
        if value == 1.0:
            formula += f"{sign}{name}"
        else:
            formula += f"{sign}{small} * {name}"
            note = "blocks repeated in full" if name == "D" else f"{letter.meaning} repeated"
            letters.append(Letter(small, value, f"fraction of {note}"))
    return Derivation(
        key="recompute",
        label="recompute",
        formula=f"n * L * ({formula})",
        letters=tuple(letters),
        source=f"policy: {o.software}",
    )
