"""Derivations of the terms that kernels take: GEMMs, attention, memory-bound work, head, recompute.

derive_gemm_term(e.origin).value           # equals e.terms["gemm"]
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Array, scalar, some, where
from scalewise.physics.compute import ATTENTION_HALF_SEQUENCE, derive_gemm
from scalewise.physics.layer import ATTENTION_BACKWARD, unfused_bytes
from scalewise.physics.shapes import shape_factor
from scalewise.precision import ATTENTION_RATE, TRANSPOSE_BYTES
from scalewise.recompute import MODULES
from scalewise.step import (
    expert_parallel,
    latent_attention,
    mlp_tiles,
    quantized_collectives,
    tuning,
)
from scalewise.step.context_parallel import imbalance
from scalewise.step.expert_parallel import GroupedGemms
from scalewise.step.kernels import (
    Gemms,
    gemm_shapes,
    gemms,
    head_passes,
    module_seconds,
    qkv_passes,
)
from scalewise.step.latent_attention import LatentGemms
from scalewise.step.recompute import repeated, skipped_last

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


def _product(o: Origin, name: str) -> Derivation:
    """How the time of one GEMM comes about: of a layer, of latent attention or a shared expert."""
    rates, refined, times = o.case.rates, False, 1.0
    operand = rates.matmul_bytes
    if name in LatentGemms._fields:
        place, shapes = LatentGemms._fields.index(name), latent_attention.shapes(o.case)
    elif name.startswith("shared_"):
        place = GroupedGemms._fields.index(name.removeprefix("shared_"))
        shapes = expert_parallel.shared_shapes(o.case)
    else:
        place = Gemms._fields.index(name)
        *all_shapes, operands = gemm_shapes(o.case)
        shapes, operand = tuple(all_shapes), np.asarray(operands)[place]  # type: ignore[assignment]
        refined = scalar(operand) == 2.0 and bool(rates.gemm_shapes.flat[0])
        times = scalar(np.asarray(mlp_tiles.tiles_of_products(o.case))[place])
    rows, columns, depths = (np.asarray(each)[place] for each in shapes)
    product = derive_gemm(
        name,
        scalar(rows),
        scalar(columns),
        scalar(depths),
        rate=scalar(rates.gemm16 if name.startswith("head") else rates.gemm),
        units=scalar(rates.units),
        memory_rate=scalar(rates.memory),
        element_bytes=scalar(operand),
        fill=scalar(rates.gemm_fill),
    )
    if refined:
        product = _refined(o, product, rows, columns, depths)
    return product if times == 1.0 else _in_tiles(product, times)


def _in_tiles(product: Derivation, tiles: float) -> Derivation:
    """Return a GEMM that runs once for every tile of the sequence."""
    return Derivation(
        key=product.key,
        label=f"{product.label}, in tiles",
        formula="k * t",
        letters=(
            Letter("k", tiles, "tiles of the sequence"),
            Letter("t", product.value, f"{product.label}, one tile", "s", product),
        ),
    )


def _derive_gemms(o: Origin, key: str, label: str, names: tuple[str, ...]) -> Derivation:
    """Return the sum of some GEMMs, each with its own derivation.

    Those of a dense MLP count for the layers that have one, those of shared experts for the others.
    """
    letters, formula = [], []
    sparse = scalar(o.case.slowest_sparse)
    for name in _present(o, names):
        product = _product(o, name)
        letters.append(Letter(name, product.value, product.label, "s", product))
        weight = "" if not sparse else _WEIGHTS.get(name.split("_")[0], "")
        formula.append(f"{weight}{name}")
    if any("w" in each.split(" * ")[0] for each in formula if " * " in each):
        letters.append(Letter("w", sparse, "fraction of the layers that have experts"))
    return Derivation(key=key, label=label, formula=" + ".join(formula), letters=tuple(letters))


_WEIGHTS = {"up": "(1 - w) * ", "down": "(1 - w) * ", "shared": "w * "}


def _present(o: Origin, names: tuple[str, ...]) -> list[str]:
    """The GEMMs that a layer really has in place of those of an ordinary one."""
    latent, query = bool(o.case.shape.latent[0]), bool(o.case.shape.query_rank[0] > 0.0)
    sparse = scalar(o.case.slowest_sparse)
    shared = o.case.has_experts and sparse > 0.0 and bool(o.case.sparse.shared_ffn[0] > 0.0)
    found: list[str] = []
    for name in names:
        first, _, kind = name.partition("_")
        suffix = f"_{kind}" if kind else ""
        if first == "qkv" and latent:
            kinds = ("query_down", "kv_down", "query_up", "kv_up")
            found += [f"{each}{suffix}" for each in kinds if query or each != "query_down"]
            continue
        if first in ("up", "down") and sparse == 1.0:
            found += [f"shared_{name}"] if shared else []
            continue
        found.append(name)
        if first in ("up", "down") and shared:
            found.append(f"shared_{name}")
    return found


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


def _frozen(o: Origin) -> bool:
    """Whether the parameters of the model are frozen."""
    return bool(scalar(o.case.tuned.frozen))


def derive_gemm_term(o: Origin) -> Derivation:
    """Return how the GEMMs of a step come about."""
    names = Gemms._fields
    # Frozen matrices have no wgrads.
    end = 8 if _frozen(o) else 12
    return Derivation(
        key="gemm",
        label="GEMM",
        formula="n * L * (Gf + Gb)",
        letters=(
            o.n,
            o.layers,
            _gemm(o, "Gf", "GEMMs of a layer, forward", names[:4]),
            _gemm(o, "Gb", "GEMMs of a layer, backward", names[4:end]),
        ),
        source=f"peak: datasheet; efficiency: {o.kernels}",
    )


def derive_attention(o: Origin) -> Derivation:
    """Return how attention of a step comes about."""
    shape, split, rates = o.case.shape, o.case.split, o.case.rates
    latent = scalar(o.case.sparse.latent_attention) if shape.latent[0] else 1.0
    flops = Derivation(
        key="attention_flops",
        label="FLOPs of attention forward, one layer",
        formula="4 * m * S * q / tp * i / k",
        letters=(
            o.tokens,
            Letter("S", scalar(shape.span), "keys a query attends to, mean"),
            Letter("q", scalar(shape.attention_width), "width of all query heads, padded"),
            Letter("tp", scalar(split.tp), "tensor-parallel degree"),
            Letter("i", scalar(imbalance(o.case)), "slowest rank of the ring over the mean"),
            Letter("k", latent, "rate with latent attention over equal heads"),
        ),
        unit="FLOP",
    )
    forward, backward = "F * (1 + s0 / s) / Rf", "k * F * (1 + s0 / s) / Rb"
    piece = where(split.cp_ring, shape.document / split.cp, shape.document)
    letters: tuple[Letter, ...] = (
        o.n,
        o.layers,
        Letter("F", flops.value, flops.label, "FLOP", flops),
        Letter("k", ATTENTION_BACKWARD, "FLOPs of backward over forward"),
        Letter("s", scalar(piece), "tokens of one kernel call"),
        Letter("s0", ATTENTION_HALF_SEQUENCE, "tokens at half of the rate"),
        _derive_forward_rate(o),
        Letter("Rb", scalar(rates.attention_backward), "backward rate", "FLOP/s"),
    )
    formula = f"n * L * ({forward} + {backward})"
    if o.case.habits.unfused_attention[0]:
        scores = o.case.tokens * shape.seq_len * shape.heads / split.tp
        letters = (
            *letters,
            Letter("Z", scalar(scores), "scores of a layer"),
            Letter(
                "z",
                sum(scalar(b) for b in unfused_bytes(rates.activation_bytes)),
                "bytes moved per score",
            ),
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


def _derive_forward_rate(o: Origin) -> Letter:
    """The rate of forward attention as a letter; in 8 bits that of 16 bits, scaled."""
    rate = scalar(o.case.rates.attention_forward)
    if not scalar(o.case.rates.attention_cast_bytes):
        return Letter("Rf", rate, "forward rate", "FLOP/s")
    inner = Derivation(
        key="Rf",
        label="forward rate, fp8",
        formula="k * R",
        letters=(
            Letter("k", ATTENTION_RATE, "attention in fp8 over 16 bits"),
            Letter("R", rate / ATTENTION_RATE, "forward rate in 16 bits", "FLOP/s"),
        ),
        unit="FLOP/s",
        source="cuDNN on H100, figures of arXiv 2407.08608",
    )
    return Letter("Rf", rate, inner.label, "FLOP/s", inner)


def _elements(o: Origin, name: str, label: str, formula: str) -> Letter:
    """Elements per token as a letter."""
    s, split = o.case.shape, o.case.split
    known = (
        Letter("h", scalar(s.hidden), "width of the residual stream"),
        Letter("q", scalar(s.query), "width of the attention output"),
        Letter("r", scalar(s.rotary), "what rotary positions read and write"),
        Letter("y", scalar(s.qkv), "width of queries, keys and values"),
        Letter("l", scalar(s.query_rank + s.kv_rank), "width of latents"),
        Letter("f", scalar(o.case.mlp), "width of the MLP, mean over layers"),
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
    habits, rates = o.case.habits, o.case.rates
    whole = o.case.layer_params / o.case.split.tp
    params = tuning.trained_layer(o.case, whole)
    if o.case.has_experts:
        whole = whole + o.case.expert_params_mean
        params = params + tuning.trained_only(o.case, o.case.expert_params_mean)
    casts, heads = scalar(rates.quantize_bytes), scalar(rates.attention_cast_bytes)
    letters: tuple[Letter, ...] = (
        o.n,
        o.layers,
        o.tokens,
        Letter("x", scalar(habits.memory_traffic), "traffic over the minimum"),
        _elements(
            o, "Ef", "elements per token, forward",
            "10 * h / sp + r / tp + (2 + g) * f / tp",
        ),
        _elements(
            o, "Eb", "elements per token, backward",
            "12 * h / sp + r / tp + (3 + 2 * g) * f / tp",
        ),
        Letter("d", scalar(habits.gradient_bytes), "bytes per parameter to handle gradients"),
        Letter("P", scalar(params), "trained parameters of a layer on one rank"),
        o.memory,
    )  # fmt: skip
    element = scalar(rates.activation_bytes)
    inner = f"{element:g} * x * m * (Ef + Eb) + d * P"
    if habits.composed_kernels[0] and o.case.shape.gated[0]:
        letters = (
            *letters,
            _elements(
                o, "Uf", "elements of unfused kernels, forward",
                "32 * h / sp + 3 * r / tp + 2 * f / tp",
            ),
            _elements(
                o, "Ub", "elements of unfused kernels, backward",
                "86 * h / sp + 3 * r / tp + 4 * f / tp",
            ),
        )  # fmt: skip
        inner = f"{element:g} * m * (x * (Ef + Eb) + Uf + Ub) + d * P"
    if casts:
        letters = (
            *letters,
            Letter("c", casts, "bytes to quantize an element, all copies"),
            _elements(o, "If", "GEMM inputs per token, forward", "2 * h + l + (q + f) / tp"),
            _elements(
                o, "Ib", "output gradients per token",
                "2 * h + (y + (1 + g) * f) / tp",
            ),
        )  # fmt: skip
        weights = "P"
        if _frozen(o):
            letters = (*letters, Letter("N", scalar(whole), "parameters of a layer on one rank"))
            weights = "N"
        if o.case.split.gathers_quantized[0]:
            quantized = _derive_weights(o)
            kept = tuple(each for each in letters if each.name != "N")
            letters, weights = (
                (*kept, Letter("W", quantized.value, quantized.label, "", quantized)),
                "W",
            )
        inner += f" + c * (m * (If + Ib) + {weights})"
    if heads:
        letters = (
            *letters,
            Letter("a", heads, "bytes to quantize an element of queries, keys and values"),
            _elements(o, "A", "queries, keys and values per token", "y / tp"),
        )
        inner += " + a * m * A"
    if quantized_collectives.quantizes(o.case.split):
        letters, inner = (*letters, quantized_collectives.derive_kernels(o)), f"{inner} + Q"
    return Derivation(
        key="memory_bound",
        label="memory-bound kernels",
        formula=f"n * L * ({inner}) / B",
        letters=letters,
        source=f"bandwidth: datasheet x {o.chip.memory_efficiency:g}; x, d: {o.software}",
    )


def _derive_weights(o: Origin) -> Derivation:
    """How many weights a rank quantizes, where they are all-gathered as quantized."""
    case, split = o.case, o.case.split
    experts = case.expert_params_mean if case.has_experts else 0.0
    return Derivation(
        key="W",
        label="weights quantized, and transposed in units of that",
        formula="min(d + e, d / s + e / z + t * (d + e) / max(c, 1))",
        letters=(
            Letter("d", scalar(case.layer_params / split.tp), "parameters but experts"),
            Letter("e", scalar(experts), "parameters of experts"),
            Letter("s", scalar(split.shards), "ranks that shard them"),
            Letter("z", scalar(split.expert_shards), "ranks that shard experts"),
            Letter("t", TRANSPOSE_BYTES, "bytes to transpose a quantized element"),
            Letter("c", scalar(case.rates.quantize_bytes), "bytes to quantize an element"),
        ),
        unit="",
    )


def derive_head(o: Origin) -> Derivation:
    """Return how LM head and loss of a step come about."""
    trained = 0 if _frozen(o) else 1
    return Derivation(
        key="head",
        label="LM head and loss",
        formula="n * (p * H + k * z * m * V / tp / B)",
        letters=(
            o.n,
            Letter("p", scalar(head_passes(o.case)), "passes through the head"),
            Letter("k", 1.0 + scalar(o.case.shape.mtp), "predictions per token"),
            _gemm(
                o,
                "H",
                f"GEMMs of the LM head, {8 * scalar(o.case.rates.activation_bytes):g} bits",
                Gemms._fields[12 : 14 + trained],
            ),
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
    memory_forward = scalar(kernels.memory_forward)
    if quantized_collectives.quantizes(o.case.split):
        # What is all-gathered once is not all-gathered again.
        moved = quantized_collectives.kernels(o.case).forward
        memory_forward -= scalar(moved / o.case.rates.memory)
    skipped = skipped_last(o.case)
    last = _product(o, "down")
    parts = {
        "Gf": ("g", again.gemm, _gemm(o, "Gf", "GEMMs of a layer, forward", Gemms._fields[:4])),
        "Ef": ("e", again.gemm * o.case.has_experts, Letter(
            "Ef", scalar(kernels.experts_forward), "GEMMs of experts, forward", "s")),
        "Rf": ("p", again.memory * o.case.has_experts, Letter(
            "Rf", scalar(kernels.routing_forward), "routing of tokens, forward", "s")),
        "Tf": ("t", again.gemm * o.case.has_frozen, Letter(
            "Tf", _tuning_forward(o), "adapters and dequantization, forward", "s")),
        "Mf": ("w", again.memory, Letter(
            "Mf", memory_forward, "memory-bound kernels, forward", "s")),
        "Af": ("a", again.attention, Letter(
            "Af", scalar(kernels.attention_forward), "attention, forward", "s")),
        "D": ("b", skipped, Letter(
            "D", last.value, "last GEMM of a dense layer, which backward never needs", "s", last)),
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
    for module, seconds in _modules(o).items():
        formula += f" + {module}" if formula else module
        letters.append(Letter(module, seconds, f"{MODULES[module]}, again", "s"))
    if again_in_tiles := scalar(mlp_tiles.repeated_seconds(o.case, gemms(o.case))):
        formula += " + Kf" if formula else "Kf"
        letters.append(Letter("Kf", again_in_tiles, "MLP, forward, again in tiles", "s"))
    return Derivation(
        key="recompute",
        label="recompute",
        formula=f"n * L * ({formula})",
        letters=tuple(letters),
        source=f"policy: {o.software}",
    )


def _tuning_forward(o: Origin) -> float:
    """Seconds of adapters and dequantization of a layer's forward."""
    kernels = o.step.layer.kernels.tuning
    return 0.0 if kernels is None else scalar(kernels.forward + kernels.dequantize)


def _modules(o: Origin) -> dict[str, float]:
    """Forward work of modules that are recomputed besides, seconds."""
    case = o.case
    if not some(case.split.modules):
        return {}
    t = gemms(case)
    activation = expert_parallel.layer_kernels(case).activation
    parts = module_seconds(case, qkv_passes(case, t)[1], activation, t)
    if (adapters := o.step.layer.kernels.tuning) is not None:
        parts["mlp"] = parts["mlp"] + tuning.mlp_again(case, adapters)
    return {module: scalar(seconds) for module, seconds in parts.items() if scalar(seconds)}
