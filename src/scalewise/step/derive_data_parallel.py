"""Derivations of all-gathers and reductions of sharded layers: `data_parallel` as formulas.

derive_gathers(e.origin), derive_tails(e.origin)       # letters of the terms that `block` explains
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import scalar
from scalewise.physics.collectives import derive_all_reduce
from scalewise.step import tuning
from scalewise.step.data_parallel import (
    ends_again,
    expert_traffic,
    last_reduce_overlaps,
    reduce_overlaps_next_forward,
    replicas_apart,
)
from scalewise.step.groups import replica_group, shard_group
from scalewise.step.hierarchical import derive_gather
from scalewise.step.quantized_collectives import derive_reduce

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


def derive_gathers(o: Origin) -> tuple[Letter, ...]:
    """Return the first all-gather of a micro-batch, and that of what no layer holds."""
    split = o.case.split
    bytes_ = scalar(tuning.layer_gather_bytes(o.case, o.case.layer_params / split.tp))
    one = derive_gather(o.case, "all-gather", bytes_, shard_group(split))
    if o.case.has_experts:
        one = _with_experts(one, "all-gather", scalar(expert_traffic(o.case).gather))
    if not split.fully_sharded[0]:
        one = Derivation(key="all-gather", label="parameters are not sharded", formula="0")
    root = scalar(o.step.stage.root_all_gather)
    often = scalar(o.case.habits.gathers(split))
    twice = ", and what is gathered twice" if scalar(ends_again(o.case)) else ""
    return (
        Letter("g", often, "all-gathers per micro-batch"),
        Letter("G", one.value, "all-gather of a layer, which nothing overlaps", "s", one),
        Letter("Gr", root, f"all-gather of embedding and LM head on that stage{twice}", "s"),
    )


def _derive_layer_reduce(o: Origin) -> Derivation:
    """How the reduction of one layer's gradients comes about, mean over micro-batches."""
    split, links, habits = o.case.split, o.case.links, o.case.habits
    elements = scalar(tuning.trained_layer(o.case, o.case.layer_params / split.tp))
    if not elements:
        return Derivation(key="R", label="no gradients of a layer are reduced", formula="0")
    scatter = derive_reduce(o.case, elements, shard_group(split))
    across = derive_all_reduce(
        "all-reduce",
        scalar(habits.reduce_bytes) * elements / scalar(split.shards),
        replica_group(split),
        links,
    )
    apart = bool(scalar(replicas_apart(split)))
    once = bool(scalar(habits.syncs_once(split)))
    behind = "Ar / n" if once else "Ar"
    letters = [
        Letter("r", scalar(habits.reductions(split)), "reductions per micro-batch"),
        Letter("Rs", scatter.value, scatter.label, "s", scatter),
    ]
    formula = "r * Rs"
    if not apart:
        formula = f"r * (Rs + {behind})"
        letters.append(Letter("Ar", across.value, "all-reduce between replicas", "s", across))
    if o.case.has_experts:
        experts = expert_traffic(o.case)
        formula += f" + r * (Re + {behind.replace('Ar', 'Ae')})"
        letters += [
            Letter("Re", scalar(experts.reduce), "reduction of its experts' gradients, mean", "s"),
            Letter("Ae", scalar(experts.across), "their all-reduce between replicas", "s"),
        ]
    if "/ n" in formula:
        letters.append(o.n)
    return Derivation(
        key="R",
        label="reduction of a layer's gradients",
        formula=formula,
        letters=tuple(letters),
    )


def _with_experts(one: Derivation, what: str, seconds: float) -> Derivation:
    """A collective of a layer together with that of its experts."""
    return Derivation(
        key=one.key,
        label=f"{one.label}, with experts",
        formula="d + e",
        letters=(
            Letter("d", one.value, one.label, "s", one),
            Letter("e", seconds, f"{what} of its experts, mean over layers", "s"),
        ),
    )


def _tail_letters(o: Origin) -> dict[str, Letter]:
    """Letters of the formulas of the last reductions."""
    step, reduce = o.step, _derive_layer_reduce(o)
    follows = bool(scalar(last_reduce_overlaps(o.case, step.traffic)))
    contention, backward = scalar(o.case.habits.contention), scalar(step.block.backward_alone)
    letters = (
        Letter("R", reduce.value, reduce.label, "s", reduce),
        Letter("h", 1.0 - 1.0 / o.n.value if follows else 0.0, "micro-batches that have a next"),
        Letter("L", scalar(step.stage.layers), "layers of the slowest stage"),
        Letter("F", scalar(step.block.forward_alone), "forward of a layer", "s"),
        Letter("b", backward, "backward of a layer", "s"),
        Letter("s", contention * min(reduce.value, backward), "compute slowed beside R", "s"),
        Letter("c", contention, "contention: compute lost per second of communication"),
        Letter("q", scalar(step.stage.root_reduce), "reduction of embedding and LM head", "s"),
        Letter("H", scalar(step.stage.head), "LM head and loss of the stage", "s"),
        Letter("G", scalar(step.traffic.backward_all_gather), "all-gather beside it", "s"),
    )
    return {letter.name: letter for letter in letters}


def _tail(o: Origin, name: str, label: str, formula: str, used: str) -> Letter:
    """A part of the last reductions as a letter."""
    known = _tail_letters(o)
    inner = Derivation(
        key=name, label=label, formula=formula, letters=tuple(known[each] for each in used)
    )
    return Letter(name, inner.value, label, "s", inner)


def derive_tails(o: Origin) -> tuple[Letter, ...]:
    """Return the exposed last reductions: of a layer, of what no layer holds, and of wgrads."""
    free = bool(scalar(reduce_overlaps_next_forward(o.case, o.step.traffic)))
    late = "max(R - (b + s), 0)"
    layer = f"(1 - h) * R + h * min(L, 1) * {late}", "hRbsL"
    root = "(1 - h) * q + h * max(q - (L * max(b + s - R - G, 0) + H), 0)", "hqLbsRGH"
    if free:
        waits = f"max(max(L - 2, 0) * {late}, L * (R - F - b - s) + q - H)"
        layer = f"(1 - h) * (R + max(L - 1, 0) * {late}) + h * {waits}", "hRLbsFqH"
        root = "(1 - h) * q", "hq"
    return (
        _tail(o, "S", "exposed reduction of the last layer, mean", *layer),
        _tail(o, "Sr", "the same of embedding and LM head", *root),
        Letter("Sa", scalar(o.step.stage.tail_across), "the same between replicas", "s"),
        Letter("Sl", scalar(o.step.stage.tail_late), "reductions after the last wgrad", "s"),
    )


def derive_tail_slowed(o: Origin) -> Letter:
    """Return the compute slowed by the last reductions of the micro-batch before."""
    label = "compute slowed by the last reductions of the micro-batch before"
    if not o.case.split.shards_gradients[0]:
        return Letter("Z", 0.0, label, "s")
    return _tail(o, "Z", label, "h * (min(L, 1) * s + c * min(q, L * F))", "hLscqF")
