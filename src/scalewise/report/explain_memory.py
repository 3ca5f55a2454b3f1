"""How does the peak memory come about? Each part of the fullest rank, worked out.

for each in explain_memory(work(e)):
    each.key, each.result       # result equals e.memory[each.key]
"""

from __future__ import annotations

from typing import NamedTuple

from scalewise.report.explained import Explained, Letter, plain
from scalewise.report.words import gibibytes
from scalewise.report.worked import Worked, number
from scalewise.step.memory import activation_bytes, in_flight
from scalewise.units import format_bytes

ADAM = "mixed-precision AdamW, Rajbhandari et al., arXiv 1910.02054"


class Stage(NamedTuple):
    """One candidate for the fullest rank."""

    name: str
    layers: float
    """Layers it holds."""
    flight: float
    """Micro batches whose activations it holds."""
    params: float
    """parameters of one rank before data parallelism shards them."""
    logits: bool
    """Whether the output of the head is there."""


def explain_memory(w: Worked) -> list[Explained]:
    """Explain every part of the peak that is not zero, in order.

    Args:
        w: The recomputed estimate.

    Returns:
        One explanation for each.
    """
    stage = fullest(w)
    told = {each.key: each for each in _parts(w, stage)}
    return [told[name] for name, value in w.e.memory.items() if value and name in told]


def _stages(w: Worked) -> list[Stage]:
    pp, tp, layer = w.field("pp"), w.field("tp"), w.field("layer_params")
    embedding, head = w.field("embedding_params"), w.field("head_params")

    def stage(name: str, layers: float, place: float, edge: float, *, logits: bool) -> Stage:
        flight = number(in_flight(w.case, place))
        return Stage(name, layers, flight, (layers * layer + edge) / tp, logits)

    first, middle, last = (w.field(f"{place}_layers") for place in ("first", "middle", "last"))
    if pp == 1:
        return [stage("the model", first, 0.0, embedding + head, logits=True)]
    return [
        stage("the first stage", first, 0.0, embedding, logits=False),
        stage("the last stage", last, pp - 1.0, head or embedding, logits=True),
        stage("a middle stage", middle, min(1.0, pp - 1.0), 0.0, logits=False),
    ]


def fullest(w: Worked) -> Stage:
    """Find the stage that the estimate's peak belongs to: the one whose parts match it."""
    return min(_stages(w), key=lambda stage: _distance(w, stage))


def _distance(w: Worked, stage: Stage) -> float:
    return sum(
        abs(each.result - w.e.memory[each.key])
        for each in _parts(w, stage)
        if each.key in w.e.memory
    )


def _parts(w: Worked, stage: Stage) -> list[Explained]:
    sharding, shards = w.field("sharding"), w.shards
    where = f"parameters of one rank of {stage.name}, before data parallelism shards them"
    weights = Letter("P", plain(stage.params), where)
    split = Letter("d", plain(shards), "ranks that share one copy")
    full = sharding == 3
    parts = [
        _state(
            "parameters", "parameters", 4.0 if full else 2.0, stage.params, weights,
            split if full else None, "32-bit master copy" if full else "16-bit weights", shards,
        ),
        _state(
            "gradients", "gradients", 4.0 if sharding >= 2 else w.field("gradient_memory"),
            stage.params, weights, split if sharding >= 2 else None, "gradients", shards,
        ),
        _state(
            "optimizer", "optimizer state", 8.0 if full else 12.0, stage.params, weights,
            split if sharding >= 1 else None,
            "moments" if full else "master weights and moments", shards,
        ),
        _activations(w, stage),
        _logits(w, stage),
        _buffers(w, stage),
    ]  # fmt: skip
    workspace = w.field("workspace_bytes")
    parts.append(
        _part(
            "workspace",
            "context, communication buffers, workspaces",
            "M = constant of the stack",
            (),
            workspace,
            f"stack {w.e.stack.name}",
        )
    )
    held = sum(each.result for each in parts)
    share = w.field("fragmentation")
    letters = (
        Letter("x", plain(share), "share the allocator cannot use"),
        Letter("", format_bytes(held), "all of the above"),
    )
    parts.append(
        _part(
            "fragmentation",
            "fragmentation",
            "M = x (all of the above)",
            letters,
            share * held,
            f"stack {w.e.stack.name}",
        )
    )
    return parts


def _part(
    key: str, title: str, formula: str, letters: tuple[Letter, ...], result: float, source: str
) -> Explained:
    return Explained(
        key=key,
        kind="memory",
        title=f"Memory: {title}",
        formula=formula,
        letters=letters,
        result=result,
        show=gibibytes,
        source=source,
    )


def _state(
    key: str,
    title: str,
    each: float,
    params: float,
    weights: Letter,
    split: Letter | None,
    what: str,
    shards: float,
) -> Explained:
    """Explain something kept per parameter, sharded or not."""
    letters = (Letter("b", plain(each), f"bytes per parameter: {what}"), weights)
    if split is None:
        return _part(key, title, "M = b P", letters, each * params, ADAM)
    return _part(key, title, "M = b P / d", (*letters, split), each * params / shards, ADAM)


def _activations(w: Worked, stage: Stage) -> Explained:
    stored, whole = (number(value) for value in activation_bytes(w.case))
    kept = stage.layers * stage.flight
    again = w.field("recompute") > 0
    letters = (
        Letter("L", plain(stage.layers), f"layers of {stage.name}"),
        Letter("n", plain(stage.flight), "micro batches in flight"),
        Letter("K", format_bytes(stored), "kept per layer and micro batch"),
    )
    if not again:
        source = "Korthikanti et al., arXiv 2205.05198, with fused attention; stack factor"
        return _part("activations", "activations", "M = L n K", letters, kept * stored, source)
    return _part(
        "activations",
        "activations",
        "M = (L n - 1) K + F",
        (*letters, Letter("F", format_bytes(whole), "of the layer that is being recomputed")),
        (kept - 1.0) * stored + whole,
        "Korthikanti et al., arXiv 2205.05198; stack factor",
    )


def _logits(w: Worked, stage: Stage) -> Explained:
    each, columns = w.field("logit_memory"), w.field("vocab") / w.field("tp")
    letters: tuple[Letter, ...] = (
        Letter("z", plain(each), "bytes per logit at the peak"),
        Letter("m", plain(w.tokens), "tokens of one rank in a micro step"),
        Letter("V / tp", plain(columns), "columns of the output projection"),
    )
    formula, count = "M = z m V / tp", 1.0
    if w.field("schedule") == 0 and w.field("pp") > 1:
        formula, count = "M = a z m V / tp", w.steps
        letters = (Letter("a", plain(count), "micro steps, all forward passes first"), *letters)
    result = count * each * w.tokens * columns if stage.logits else 0.0
    source = f"stack {w.e.stack.name}"
    return _part("logits", "logits", formula, letters, result, source)


def _buffers(w: Worked, stage: Stage) -> Explained:
    block = w.field("layer_params") / w.field("tp")
    reshard = w.field("reshard") > 0
    ahead = min(1.0 + w.field("prefetch"), stage.layers) if reshard else stage.layers
    reduce = w.field("reduce_bytes")
    letters = (
        Letter("n", plain(ahead), "layers gathered at once"),
        Letter("g", plain(reduce), "bytes per gradient in flight"),
        Letter("P", plain(block), "parameters of a layer"),
    )
    full = w.field("sharding") == 3
    result = (2.0 * ahead + reduce) * block if full else 0.0
    source = "FSDP: what is gathered and not yet freed"
    return _part("gather_buffers", "gather buffers", "M = (2 n + g) P", letters, result, source)
