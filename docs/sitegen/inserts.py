"""Text that a page inserts by name.

<!-- insert: command_line -->
<!-- insert: section README.md | Not modeled -->
"""

from __future__ import annotations

from collections.abc import Callable

from sitegen import commands, hardware, includes, layers, physics, python_api
from sitegen.words import docstring, table


def strategy_words() -> str:
    """Return the grammar of strategies from the docstring of its module."""
    import scalewise.strategy

    return docstring(scalewise.strategy.__doc__)


def precisions() -> str:
    """Return a table of precisions: what each costs and saves."""
    from scalewise.precision import RECIPES, quantize_bytes

    rows = [
        (
            f"`{word}`",
            recipe.words,
            f"{recipe.rate:g}",
            f"{quantize_bytes(recipe, 4.0, 0.0):g}",
            f"{quantize_bytes(recipe, 8.0, 2.0):g}",
            f"{recipe.operand_bytes + recipe.scale_bytes:g}",
            "yes" if recipe.gathers else "no",
        )
        for word, recipe in RECIPES.items()
    ]
    head = ["word", "GEMM inputs", "rate", "fused casts", "compiled casts", "kept", "`gatherfp8`"]
    return table(head, rows)


MEANINGS = {
    "gemm": "Matrix products of the layers, forward and backward.",
    "attention": "Attention kernels, forward and backward.",
    "experts": "Grouped GEMMs of routed experts.",
    "routing": "Router, permutation and activation of the tokens of experts.",
    "adapters": "Low-rank adapters (LoRA): their products, and the addition to frozen matrices.",
    "dequantize": "Making 16-bit matrices of a frozen model in 4 bits (QLoRA).",
    "memory_bound": "Norms, activation functions, rotary embedding, casts.",
    "head": "LM head, softmax and loss.",
    "recompute": "Forward work repeated in backward.",
    "host": "Time in which the GPU waits for the host to launch kernels.",
    "tensor_parallel": "Collectives of tensor and sequence parallelism that no compute overlaps.",
    "context_parallel": "Transfers of keys and values that attention does not overlap.",
    "expert_parallel": "All-to-all of tokens between experts that no compute overlaps.",
    "dp_all_gather": "All-gathers of sharded parameters that no compute overlaps.",
    "dp_grad_reduce": "Reduce-scatters or all-reduces of gradients that no compute overlaps.",
    "contention": "Slowdown of compute by communication that overlaps it.",
    "bubble": "Idle time of the slowest pipeline stage.",
    "pp_p2p": "P2P sends between pipeline stages that no compute overlaps.",
    "offload": "Copies to host memory or NVMe and back that no compute overlaps.",
    "optimizer": "Optimizer step, on the GPU or on the CPUs of the host.",
    "overhead": "Constant per step: data loader, gradient clipping, logging.",
    "straggler": "Wait for the slowest scale-up domain.",
}
"""Meaning of each term of a step."""

MEMORY_MEANINGS = {
    "parameters": "Parameters of this rank, sharded or whole.",
    "gradients": "Gradients of this rank, with their buffers.",
    "optimizer": "Optimizer state and fp32 master weights of this rank.",
    "all_gather_buffers": "All-gathered parameters of the layers in use.",
    "workspace": "CUDA context, NCCL buffers, cuBLAS workspace.",
    "logits": "Logits of one micro-batch and their gradient.",
    "activations": "Activations kept for backward, of all micro-batches in flight.",
    "fragmentation": "Memory that the allocator holds and cannot use.",
}
"""Meaning of each part of peak memory."""


def terms() -> str:
    """Return a table of the terms of a step."""
    from scalewise.terms import TERMS

    rows = [(t.label, MEANINGS[t.key], t.kind, f"`{t.key}`") for t in TERMS.values()]
    return table(["term", "meaning", "kind", "key in JSON"], rows)


def memory_parts() -> str:
    """Return a table of the parts of peak memory."""
    from scalewise.terms import MEMORY_PARTS

    rows = [(p.label, MEMORY_MEANINGS[p.key], f"`{p.key}`") for p in MEMORY_PARTS.values()]
    return table(["part", "meaning", "key in JSON"], rows)


GENERATED: dict[str, Callable[[], str]] = {
    "command_line": commands.command_line,
    "public_names": python_api.public_names,
    "worked_examples": physics.worked_examples,
    "formulas": physics.formulas,
    "accelerators": hardware.accelerators,
    "clusters": hardware.clusters,
    "fabrics": hardware.fabrics,
    "calibrations": hardware.calibrations,
    "stacks": hardware.stacks,
    "layers": layers.layers,
    "strategy_words": strategy_words,
    "precisions": precisions,
    "terms": terms,
    "memory_parts": memory_parts,
}
"""Inserts that are read from the code."""


def insert(order: str) -> str:
    """Return the text of one insert.

    Raises:
        KeyError: If the name is unknown.
    """
    word, _, rest = order.partition(" ")
    if not rest:
        if word not in GENERATED:
            raise KeyError(f"unknown insert {word!r}: {', '.join(GENERATED)}")
        return GENERATED[word]()
    name, _, part = (piece.strip() for piece in rest.partition("|"))
    if word == "section":
        return includes.section(name, part)
    if word == "page":
        return includes.whole(name)
    raise KeyError(f"unknown insert {word!r}")
