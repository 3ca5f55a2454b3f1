"""The question of a scaling curve: the words of a question, with lists and a range of sizes.

    asked = scaling(Question(gpus="8..2048", strategy="fsdp,hsdp64"), weak=True)
    asked.curves()

MODEL, --on, --seq and --strategy may join several with commas. Without --weak the batch stays, and
is what an estimate of the same words chooses, so that a point of the curve is that estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.defaults import Default, default_batch, default_seq_len
from scalewise.ask.question import Question, question_fields
from scalewise.ask.resolve import Inputs, Objects, inputs
from scalewise.errors import InputError
from scalewise.explore.sizes import Rule, parse_sizes
from scalewise.explore.templates import BEST, Template, filled_batch, parse_template
from scalewise.step.estimate import CHOSEN_FIT
from scalewise.workload import WORK

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.explore.points import Curves
    from scalewise.explore.scale import Run
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack

MAX_PER_GPU = 65_536
"""Limit of sequences per GPU, as in the web UI."""

BATCH_PER_GPU = 2.0
"""Sequences per GPU in weak scaling where nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The inputs of scaling curves, and how they came about."""

    models: tuple[Model, ...]
    clusters: tuple[Cluster, ...]
    """At the largest size."""
    rules: tuple[Rule, ...]
    """What a step trains, one for each sequence length."""
    templates: tuple[Template, ...]
    sizes: tuple[int, ...]
    stack: Stack | None
    """Software that was named."""
    by: str
    fit: float
    defaults: tuple[Default, ...]
    changes: tuple[str, ...]

    def curves(
        self,
        *,
        convention: Convention = "causal",
        exhaustive: bool = False,
        run: Run | None = None,
    ) -> Curves:
        """Estimate every point; arguments as of `explore.scale`."""
        from scalewise.explore.scale import scale

        return scale(
            self.models,
            self.clusters,
            self.rules,
            self.templates,
            self.sizes,
            by=self.by,
            stack=self.stack,
            convention=convention,
            fit=self.fit,
            exhaustive=exhaustive,
            run=run,
        )


def scaling(
    question: Question,
    *,
    weak: bool | None = None,
    batch_per_gpu: float | None = None,
    objects: Objects | None = None,
) -> Scaling:
    """Load what is named and choose what is missing.

    Args:
        question: With lists in `model`, `on`, `seq` and `strategy`, and sizes in `gpus`.
        weak: Whether the batch grows with the cluster; None follows from what is given.
        batch_per_gpu: Sequences per GPU, in weak scaling.
        objects: What is at hand instead of a name.

    Raises:
        InputError: If a word is not understood, or flags exclude each other.
    """
    weak = _is_weak(question, weak=weak, batch_per_gpu=batch_per_gpu)
    if question.gpus is None:
        raise InputError(
            "--gpus is missing", hint="give sizes, such as --gpus 8..2048", field="gpus"
        )
    sizes = parse_sizes(str(question.gpus))
    _check_single(question)
    templates = tuple(parse_template(text) for text in _parts(question.strategy or BEST))

    def asked(**words: Any) -> Inputs:
        common = {"gpus": sizes[-1], "strategy": None, "batch": 1 if weak else question.batch}
        single = {name: _parts(getattr(question, name))[0] for name in ("model", "on")}
        if question.seq is not None:
            single["seq"] = _parts(str(question.seq))[0]
        return inputs(msgspec.structs.replace(question, **common | single | words), objects)

    models = [asked(model=name) for name in _parts(question.model)]
    clusters = [asked(on=name) for name in _parts(question.on)]
    found = models
    if question.seq is not None:
        found = [asked(seq=text) for text in _parts(str(question.seq))]
    first, chosen = found[0], _Chosen()
    lengths = chosen.lengths(question, found)
    batch = float(first.workload.global_batch)
    if weak:
        batch = batch_per_gpu or chosen.batch_per_gpu()
    elif question.batch is None and "workload.global_batch" not in " ".join(question.sets):
        batch = chosen.batch(models, lengths[0], sizes[-1], templates)
    precision = None if question.precision is None else first.workload.precision
    if first.changes:
        precision = first.workload.precision
    rules = tuple(
        Rule(
            kind="weak" if weak else "strong",
            batch=batch,
            seq_len=length,
            precision=precision,
            **{name: getattr(first.workload, name) for name in WORK},
        )
        for length in lengths
    )
    known = {"--batch", "--seq", "--gpus"}
    return Scaling(
        models=tuple(each.model for each in models),
        clusters=tuple(each.cluster for each in clusters),
        rules=rules,
        templates=templates,
        sizes=sizes,
        stack=first.stack,
        by=question.by,
        fit=question.fit or CHOSEN_FIT,
        defaults=(
            *chosen.defaults,
            *(each for each in first.defaults if each.flag not in known),
            *_open_parts(question, templates),
        ),
        changes=first.changes,
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _is_weak(question: Question, *, weak: bool | None, batch_per_gpu: float | None) -> bool:
    """Read which kind of scaling is meant."""
    if weak is False and batch_per_gpu is not None:
        raise InputError("--batch-per-gpu belongs to weak scaling", hint="give --batch instead")
    if weak and question.batch is not None:
        raise InputError("--batch belongs to strong scaling", hint="give --batch-per-gpu instead")
    if question.batch is not None and batch_per_gpu is not None:
        raise InputError("--batch and --batch-per-gpu exclude each other", hint="keep one of them")
    if batch_per_gpu is not None and not 0.0 < batch_per_gpu <= MAX_PER_GPU:
        rule = f"must be at most {MAX_PER_GPU:,}" if batch_per_gpu > 0.0 else "must be positive"
        raise InputError(f"--batch-per-gpu {batch_per_gpu:g}: {rule}", hint="for example 2 or 0.5")
    return bool(weak) or batch_per_gpu is not None


def _check_single(question: Question) -> None:
    """Refuse changes of several things at once: whose field would it be?"""
    switches = [name for name in ("power_cap", "algorithm", "protocol", "price")
                if getattr(question, name) is not None]  # fmt: skip
    if any(text.strip().startswith("strategy.") for text in question.sets):
        raise InputError(
            "--set strategy.*: curves are drawn for each of --strategy",
            hint="spell it there, such as --strategy fsdp-tp2",
        )
    if not question.sets and not switches:
        return
    for name in ("model", "on", "seq"):
        text = str(getattr(question, name) or "")
        if "," in text:
            raise InputError(
                f"{question_fields()[name].flag} {text}: --set and switches change one model, one "
                "cluster, one length",
                hint="draw one curve at a time, or leave out --set and the switches",
                field=name,
            )


def _open_parts(question: Question, templates: Sequence[Template]) -> list[Default]:
    """Name what is chosen at every size anew."""
    found = []
    if question.strategy is None:
        why = "best of the usual ones at each size"
        found.append(Default(flag="--strategy", value=BEST, why=why))
    elif any(each.limits is None and not each.has_micro_batch for each in templates):
        why = "largest micro-batch that reaches the batch and fits, at each size"
        found.append(Default(flag="--strategy", value="mb", why=why))
    if question.stack is None:
        found.append(Default(flag="--stack", value="usual", why="follows the strategy"))
    return found


class _Chosen:
    """What is chosen for all curves of a question together."""

    def __init__(self) -> None:
        self.defaults: list[Default] = []

    def lengths(self, question: Question, found: Sequence[Inputs]) -> list[int]:
        """The sequence lengths: the same for all models, or they could not be compared."""
        if question.seq is not None or any("seq_len" in text for text in question.sets):
            return [each.workload.seq_len for each in found]
        shortest = min((default_seq_len(each.model) for each in found), key=lambda pair: pair[0])
        self.defaults.append(shortest[1])
        return [shortest[0]]

    def batch_per_gpu(self) -> float:
        """Sequences per GPU in weak scaling."""
        value = f"{BATCH_PER_GPU:g}"
        self.defaults.append(Default(flag="--batch-per-gpu", value=value, why="weak scaling"))
        return BATCH_PER_GPU

    def batch(
        self,
        found: Sequence[Inputs],
        seq_len: int,
        largest: int,
        templates: Sequence[Template],
    ) -> float:
        """The batch of strong scaling: that of an estimate at the largest size."""
        given = [each for each in templates if each.limits is None]
        multiple = lcm(*(_multiple(each, largest) for each in given)) if given else largest
        model = max((each.model for each in found), key=lambda each: each.parameters)
        batch, default = default_batch(model, seq_len, multiple, exact=bool(given))
        self.defaults.append(default)
        return float(batch)


def _multiple(template: Template, size: int) -> int:
    """Sequences of one micro-batch of every data-parallel rank."""
    base = template.base
    ranks = base.data_parallel if template.fixed else size // (base.tp * base.cp * base.pp)
    return filled_batch(base, max(ranks, 1))


__all__ = ["BATCH_PER_GPU", "Scaling", "scaling"]
