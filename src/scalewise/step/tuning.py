"""Fine-tuning: adapters of a frozen model, and a frozen model in 4 bits.

Frozen matrices have no weight gradients: backward computes the gradient of their input alone, and
nothing of them is reduced or updated. What every adapter adds is two products forward, four
backward, and the addition to the output of the frozen matrix. Forward and backward make 16-bit
matrices of 4-bit ones before each product (Dettmers et al., arXiv 2305.14314).

Tensor parallelism splits adapters like their matrices: B where the matrix is split by columns, A
where it is split by rows. The other half is whole on every rank; its gradients are added up with
those of norms, which is left out here as there. FSDP all-gathers the frozen model as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Array, Num, maximum, minimum, scalar, some, where
from scalewise.physics.adapters import (
    ADAPTER_BACKWARD,
    ADAPTER_FORWARD,
    DEQUANTIZE_KERNELS,
    DEQUANTIZE_TRAFFIC,
    FROZEN_KERNELS,
    LAYER_KERNELS,
    adapter_shapes,
    dequantize_seconds,
    elementwise_bytes,
)
from scalewise.physics.compute import KERNEL_SECONDS, derive_gemm, gemm_seconds
from scalewise.step.case import Case
from scalewise.tuning import adapter_parameters

if TYPE_CHECKING:
    from scalewise.step.origin import Origin
    from scalewise.step.result import Estimate

PROJECTIONS = ("query", "key", "value", "out", "gate", "up", "down")
"""Matrices of a layer that can have an adapter."""

SPLIT_BY_ROWS = ("out", "down")
"""Those whose inputs tensor parallelism splits; it splits the outputs of the others."""

PRODUCTS = (
    ("a", "A x"), ("b", "B (A x)"), ("b_dgrad", "gradient of A x"), ("a_dgrad", "gradient of x"),
    ("a_wgrad", "gradient of A"), ("b_wgrad", "gradient of B"),
)  # fmt: skip
"""Products of an adapter, in the order of `physics.adapters.adapter_shapes`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningKernels:
    """Kernels that adapters and storage in 4 bits add to a layer and micro-batch, seconds."""

    forward: Num
    """Adapters forward."""
    backward: Num
    """Adapters backward."""
    wgrad: Num
    """The part of it that is gradients of their weights."""
    mlp_forward: Num
    """The part of forward that belongs to the MLP."""
    dequantize: Num
    """Making 16-bit matrices of all of a layer, for one pass."""


def trained(case: Case) -> Num:
    """Return 1 where the parameters of the model are trained, and 0 where they are frozen."""
    return 1.0 - case.tuned.frozen


def adapted(case: Case) -> list[Num]:
    """Return 1 for each of `PROJECTIONS` that has an adapter."""
    t = case.tuned
    gate = t.on_mlp * case.shape.gated
    return [t.on_query, t.on_key, t.on_value, t.on_out, gate, t.on_mlp, t.on_mlp]


def adapters(case: Case) -> Num:
    """Return the adapters of a layer; none without width."""
    count: Num = sum(adapted(case), case.zeros)
    return where(case.tuned.rank > 0.0, count, 0.0)


def sides(case: Case) -> list[tuple[Num, Num]]:
    """Return inputs and outputs of each of `PROJECTIONS` on one rank, elements."""
    s, tp = case.shape, case.split.tp
    widths = (s.query, s.key_value, s.key_value, s.query, s.ffn, s.ffn, s.ffn)
    return [
        (width / tp, s.hidden) if name in SPLIT_BY_ROWS else (s.hidden, width / tp)
        for name, width in zip(PROJECTIONS, widths, strict=True)
    ]


def adapter_params(case: Case) -> Num:
    """Return the parameters of the adapters of one layer on one rank."""
    found: Num = case.zeros
    for here, (inputs, outputs) in zip(adapted(case), sides(case), strict=True):
        found = found + here * case.tuned.rank * (inputs + outputs)
    return found


def trained_layer(case: Case, params: Num) -> Num:
    """Return the parameters of one layer on one rank that are trained.

    Args:
        case: The step.
        params: All of them but adapters and routed experts.
    """
    if not case.has_frozen:
        return params
    return where(case.tuned.frozen > 0.0, adapter_params(case), params)


def trained_params(case: Case, layers: Num, params: Num) -> Num:
    """Return the parameters of one rank that are trained.

    Args:
        case: The step.
        layers: Layers of the rank.
        params: All of its parameters but adapters and routed experts.
    """
    if not case.has_frozen:
        return params
    return where(case.tuned.frozen > 0.0, layers * adapter_params(case), params)


def trained_only(case: Case, params: Num) -> Num:
    """Return parameters of the model where they are trained, else 0."""
    return trained(case) * params if case.has_frozen else params


def layer_gather_bytes(case: Case, params: Num) -> Num:
    """Return the bytes of a layer's parameters that FSDP all-gathers, without routed experts.

    Args:
        case: The step.
        params: Parameters of the layer on one rank, but adapters and experts.
    """
    whole = case.split.gather_bytes * params
    if not case.has_frozen:
        return whole
    tuned = case.tuned
    stored = minimum(tuned.base_bytes, case.split.gather_bytes)
    frozen = stored * params + case.update.weight_bytes * adapter_params(case)
    return where(tuned.frozen > 0.0, frozen, whole)


def dequantize_buffer(case: Case) -> Num:
    """Return the bytes of the largest matrix in 16 bits: one exists at a time."""
    return 2.0 * case.tuned.quantized * case.tuned.largest_matrix / case.split.tp


def layer_kernels(case: Case) -> TuningKernels | None:
    """Return the kernels of one layer; None where no step has a frozen model."""
    if not case.has_frozen:
        return None
    rates, tuned = case.rates, case.tuned
    here, pairs = adapted(case), sides(case)
    on: list[Num] = [where(tuned.rank > 0.0, each, 0.0) for each in here]
    none: Num = case.zeros
    forward = backward = wgrad = inner = inputs = outputs = mlp_outputs = none
    for name, exists, (one, other) in zip(PROJECTIONS, on, pairs, strict=True):
        a, b, b_dgrad, a_dgrad, a_wgrad, b_wgrad = exists * _seconds(case, one, other)
        forward = forward + (a + b)
        wgrad = wgrad + (a_wgrad + b_wgrad)
        backward = backward + (b_dgrad + a_dgrad + a_wgrad + b_wgrad)
        inputs, outputs = inputs + exists * one, outputs + exists * other
        if name in ("gate", "up", "down"):
            inner, mlp_outputs = inner + (a + b), mlp_outputs + exists * other
    unfused: Num = where(case.habits.composed_kernels, 1.0, 0.0)
    moved = elementwise_bytes(case.tokens, inputs, outputs, unfused=unfused)
    mlp_moved, _ = elementwise_bytes(case.tokens, none, mlp_outputs, unfused=unfused)
    return TuningKernels(
        forward=forward + moved[0] / rates.memory,
        backward=backward + moved[1] / rates.memory,
        wgrad=wgrad,
        mlp_forward=inner + mlp_moved / rates.memory,
        dequantize=dequantize_seconds(
            tuned.matrix_elements / case.split.tp,
            base_bytes=tuned.matrix_bytes,
            matrices=tuned.matrices,
            memory_rate=rates.memory,
            calls=tuned.quantized,
        ),
    )


def mlp_again(case: Case, kernels: TuningKernels) -> Num:
    """Return what recompute of the module "mlp" repeats of adapters and 4-bit matrices, seconds."""
    split, t = case.split, case.tuned
    left = (1.0 - split.recompute_blocks) * t.frozen
    matrices = (2.0 + case.shape.gated) * case.shape.hidden * case.shape.ffn
    of_all = matrices / maximum(t.matrix_elements, 1.0)
    again = left * (kernels.mlp_forward + of_all * kernels.dequantize)
    return where(split.recomputes("mlp"), again, 0.0)


def _seconds(case: Case, inputs: Num, outputs: Num) -> Array:
    """Return the time of the six products of an adapter, in 16 bits, seconds."""
    rates = case.rates
    rows, columns, depths = adapter_shapes(case.tokens, inputs, outputs, case.tuned.rank)
    return np.asarray(
        gemm_seconds(
            rows,
            columns,
            depths,
            rate=rates.gemm16,
            units=rates.units,
            memory_rate=rates.memory,
            fill=rates.gemm_fill,
        )
    )


def launches(case: Case, total: Num) -> tuple[Num, Num]:
    """Return the launches of a layer that come, and go, with a frozen model, seconds.

        h / K (4 a + 3 q)        h / K (8 a + 3 q - 22)

    forward and backward, with a adapters, q matrices in 4 bits, and K kernels of a layer that take
    h. Frozen matrices have no launches of weight gradients. Where graphs capture a part of them,
    the kernels of a layer take less than the software's usual h.

    Args:
        case: The step.
        total: All launches of the layer, where all parameters are trained, seconds.
    """
    tuned = case.tuned
    each = minimum(case.habits.host_layer_seconds, total) / LAYER_KERNELS
    count = adapters(case)
    dequantize = DEQUANTIZE_KERNELS * tuned.quantized * tuned.matrices
    forward = each * (ADAPTER_FORWARD * count + dequantize)
    backward = each * (ADAPTER_BACKWARD * count + dequantize - FROZEN_KERNELS * tuned.frozen)
    return forward, backward


def wgrad_launches(case: Case, usual: float) -> Num:
    """Return the fraction of backward's launches that computes weight gradients.

    Args:
        case: The step.
        usual: The same where all parameters are trained.
    """
    if not case.has_frozen:
        return usual
    tuned = case.tuned
    count = adapters(case)
    # Half of an adapter's launches in backward: two products, and two additions of gradients.
    own = 0.5 * ADAPTER_BACKWARD * count
    left = LAYER_KERNELS * 2.0 / 3.0 - FROZEN_KERNELS
    rest = left + DEQUANTIZE_KERNELS * tuned.quantized * tuned.matrices
    frozen = own / (rest + ADAPTER_BACKWARD * count)
    return where(tuned.frozen > 0.0, frozen, usual)


def column_inputs(case: Case) -> Num:
    """Return the fraction of column-split halves of a layer whose inputs backward needs.

    With sequence parallelism they are all-gathered again: for the gradients of weights alone.
    """
    if not case.has_frozen:
        return 1.0
    t = case.tuned
    attention = ((t.on_query + t.on_key + t.on_value) > 0.0) & (t.rank > 0.0)
    adapters = 0.5 * attention + 0.5 * t.on_mlp * (t.rank > 0.0)
    return where(t.frozen > 0.0, adapters, 1.0)


def kept_elements(case: Case, sparse: Num) -> Num:
    """Return the elements per token of a layer that a frozen model keeps less.

        (1 - x) h / sp + (1 - y) h / sp + (1 - z) f / tp - a r

    Inputs of frozen matrices are needed for gradients of adapters alone: x, y and z are 1 where
    those of the qkv projections, of the first and of the last matrices of the MLP have adapters.
    Attention needs its output in any case. Each of a adapters keeps A x. Tiles of dense MLPs keep
    their input to repeat forward, and nothing inside (`mlp_tiles.spared_elements`).

    Args:
        case: The step.
        sparse: Fraction of the layers that have experts.
    """
    s, t, split = case.shape, case.tuned, case.split
    wide, some_rank = s.hidden / split.sp, t.rank > 0.0
    qkv = ((t.on_query + t.on_key + t.on_value) > 0.0) & some_rank
    mlp = (t.on_mlp > 0.0) & some_rank
    inside = wide + case.mlp_of(sparse) / split.tp
    if some(tiled := split.mlp_tiles > 1.0):
        dense = 1.0 - sparse if case.has_experts else 1.0
        inside = where(tiled, inside - dense * (wide + s.ffn / split.tp), inside)
    less = where(qkv, 0.0, wide) + where(mlp, 0.0, inside)
    return where(t.frozen > 0.0, less - adapters(case) * t.rank, 0.0)


def frozen_modules(case: Case, parts: Mapping[str, Num], sparse: Num) -> dict[str, Num]:
    """Return the elements per token that recomputed modules spare, where a frozen model keeps less.

    Args:
        case: The step.
        parts: The same where all parameters are trained.
        sparse: Fraction of the layers that have experts.
    """
    frozen, mlp = case.tuned.frozen > 0.0, case.tuned.on_mlp * (case.tuned.rank > 0.0)
    ffn = (1.0 - sparse) * case.shape.ffn / case.split.tp
    norms = 2.0 * column_inputs(case) * case.shape.hidden / case.split.sp
    return {
        **parts,
        "norm": where(frozen, norms, parts["norm"]),
        # The output of the activation is the input of a frozen matrix.
        "activation": where(frozen, 0.0, parts["activation"]),
        "mlp": where(frozen, parts["mlp"] - (1.0 - mlp) * ffn, parts["mlp"]),
    }


def derive(o: Origin) -> Derivation:
    """Return how adapters of a step come about."""
    case = o.case
    names = [
        name for name, here in zip(PROJECTIONS, adapted(case), strict=True) if scalar(here) > 0.0
    ]
    products = []
    inputs = outputs = 0.0
    for name, pair in zip(PROJECTIONS, sides(case), strict=True):
        if name in names:
            products.append(_adapter(o, name, *(scalar(each) for each in pair)))
            inputs, outputs = inputs + scalar(pair[0]), outputs + scalar(pair[1])
    total = Derivation(
        key="A",
        label="products of a layer's adapters",
        formula=" + ".join(names),
        letters=tuple(Letter(each.key, each.value, each.label, "s", each) for each in products),
    )
    return Derivation(
        key="adapters",
        label="adapters",
        formula="n * L * (A + 2 * m * ((3 + 4 * u) * O + 3 * I) / B)",
        letters=(
            o.n,
            o.layers,
            Letter("A", total.value, total.label, "s", total),
            o.tokens,
            Letter("u", scalar(case.habits.composed_kernels), "1 where operations are not fused"),
            Letter("O", outputs, "outputs of all adapters"),
            Letter("I", inputs, "inputs of all adapters"),
            o.memory,
        ),
        source=f"LoRA: arXiv 2106.09685; kernels of peft and torchtune; {o.kernels}",
    )


def _adapter(o: Origin, name: str, inputs: float, outputs: float) -> Derivation:
    """How the six products of one adapter come about."""
    rates = o.case.rates
    shapes = adapter_shapes(scalar(o.case.tokens), inputs, outputs, scalar(o.case.tuned.rank))
    letters = []
    for place, (key, what) in enumerate(PRODUCTS):
        product = derive_gemm(
            f"{name}_{key}",
            *(float(each[place]) for each in shapes),
            rate=scalar(rates.gemm16),
            units=scalar(rates.units),
            memory_rate=scalar(rates.memory),
            fill=scalar(rates.gemm_fill),
        )
        letters.append(Letter(key, product.value, what, "s", product))
    return Derivation(
        key=name,
        label=f"adapter of {name}",
        formula=" + ".join(key for key, _ in PRODUCTS),
        letters=tuple(letters),
    )


def derive_flops(e: Estimate, whole: Derivation) -> Derivation:
    """Return how the FLOPs of a step come about where the model is frozen.

    Args:
        e: The estimate.
        whole: The same where all parameters are trained.
    """
    model, tuned = e.model, e.workload.tuned
    palm = e.convention in ("palm", "6n")
    count = model.active_parameters if palm else model.matmul_parameters
    return Derivation(
        key="training_flops",
        label=f"{whole.label}, frozen model",
        formula="F - 2 * N + 6 * A",
        letters=(
            Letter("F", whole.value, "with all parameters trained", "FLOP", whole),
            Letter("N", float(count), "parameters whose gradients are not computed"),
            Letter("A", float(adapter_parameters(model, tuned)), "parameters of adapters"),
        ),
        unit="FLOP",
    )


def derive_dequantize(o: Origin) -> Derivation:
    """Return how dequantization of a step comes about."""
    t = o.case.tuned
    return Derivation(
        key="dequantize",
        label="dequantization",
        formula="n * L * 2 * (x * (b + 2) * E / B + 3 * k * t0)",
        letters=(
            o.n,
            o.layers,
            Letter("x", DEQUANTIZE_TRAFFIC, "traffic over the minimum, an assumption"),
            Letter("b", scalar(t.matrix_bytes), "bytes of a stored element"),
            Letter("E", scalar(t.matrix_elements / o.case.split.tp), "elements of a layer"),
            o.memory,
            Letter("k", scalar(t.matrices), "matrices of a layer"),
            Letter("t0", KERNEL_SECONDS, "start and end of a kernel", "s"),
        ),
        notes=("forward and backward; recompute has its own",),
        source="QLoRA: arXiv 2305.14314; kernels of bitsandbytes",
    )
