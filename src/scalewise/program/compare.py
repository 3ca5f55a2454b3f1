"""A captured program beside our model of it: where the two differ.

    comparison = compare(captures, Question(on="dgx-h100"))
    comparison.replay.seconds, comparison.asked.estimate().step_seconds

The program is priced by `replay`, the recognized strategy by `estimate`, both with the constants of
one chip, fabric and software.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from scalewise.ask.resolve import Objects, resolve
from scalewise.catalog import names
from scalewise.errors import InputError
from scalewise.model import Model, load_model
from scalewise.program.account import Traffic, collectives_of, flops_by_phase
from scalewise.program.complete import missing
from scalewise.program.flops import FlopsPart, explained, flops_by_part
from scalewise.program.recognize import Recognized, recognize
from scalewise.program.replay import Replay, replay
from scalewise.program.run import CaptureError
from scalewise.step.estimate import estimate

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.ask.resolve import Asked
    from scalewise.program.events import Capture
    from scalewise.step.result import Estimate

CLOSE = 0.005
"""Difference of parameters at which a captured model is taken for one of the catalog."""

FLOPS_AGREE = 0.02
"""Difference of FLOPs from the count of the model that needs no explanation."""

TINY = 1e-9
"""Seconds that are rounding."""

GROUP_OF = {
    "shard": "data_parallel", "replicate": "data_parallel", "tensor": "tensor_parallel",
    "context": "context_parallel", "expert": "expert_parallel", "pipeline": "pipeline",
}  # fmt: skip
"""Communication group (`terms.GROUPS`) of each role."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One quantity of the program, and of our model of it."""

    name: str
    unit: Literal["s", "FLOP", "bytes"]
    program: float
    model: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A program, its price, and the estimate of the same job."""

    captures: tuple[Capture, ...]
    """One per pipeline stage, first stage first."""
    recognized: Recognized
    replay: Replay
    asked: Asked
    """The recognized job as a question."""
    estimate: Estimate
    traffic: tuple[Traffic, ...]
    """Collectives of all captured ranks."""

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Quantities side by side; seconds of the step first."""
        return (
            Line(
                name="step time", unit="s",
                program=self.replay.seconds, model=self.estimate.step_seconds,
            ),
            *_compute(self), *_exposed(self), *_waiting(self), _flops(self),
            Line(
                name="peak memory", unit="bytes",
                program=max(each.peak_bytes for each in self.captures),
                model=self.estimate.memory_bytes,
            ),
        )  # fmt: skip

    @cached_property
    def flops(self) -> tuple[FlopsPart, ...]:
        """FLOPs of a rank by part of the model."""
        r = self.recognized
        return flops_by_part(
            self.captures, self.asked.model, seq_len=r.seq_len, tokens=_tokens(r), tp=r.strategy.tp
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the comparison, one sentence each."""
        flops = _flops(self)
        found = [*self.recognized.notes, *self.captures[0].notes]
        if abs(flops.program / flops.model - 1.0) > FLOPS_AGREE:
            found.append(
                f"the program computes {flops.program / flops.model:.3f} times the FLOPs of the "
                f"model: {explained(self.flops)}"
            )
        found.append(
            "kernels are those of eager PyTorch on CPU tensors: what a compiler or a GPU library "
            "fuses counts as several"
        )
        return tuple(found)


def compare(
    captures: Sequence[Capture], question: Question, *, model: str | None = None
) -> Comparison:
    """Price a captured program beside the estimate of its strategy.

    Args:
        captures: One per pipeline stage, first stage first.
        question: Machine and software; what the program says is filled in.
        model: Name or file of what it trains; None to recognize it by its parameters.

    Raises:
        CaptureError: If the capture is not whole.
        InputError: If the model is not recognized.
    """
    recognized = recognize(captures)
    holes = missing(captures, recognized)
    if holes:
        raise CaptureError(
            "the capture is not whole: " + "; ".join(holes),
            hint="price the strategy alone: scalewise estimate",
        )
    trained = load_model(model) if model is not None else recognize_model(captures)
    asked = resolve(
        msgspec.structs.replace(
            question,
            model=model or trained.name,
            gpus=captures[0].world,
            strategy=str(recognized.strategy),
            seq=recognized.seq_len,
            batch=recognized.global_batch,
            precision=recognized.precision,
        ),
        Objects(model=trained),
    )
    one = asked.estimate()
    many = estimate(
        asked.model, asked.cluster, asked.workload, [asked.strategy], stack=asked.software
    )
    return Comparison(
        captures=tuple(captures),
        recognized=recognized,
        replay=replay(captures, many.case, recognized.roles),
        asked=asked,
        estimate=one,
        traffic=tuple(collectives_of(captures)),
    )


def recognize_model(captures: Sequence[Capture]) -> Model:
    """Return the model of the catalog with the captured vocabulary, width and parameters.

    Args:
        captures: One per pipeline stage.

    Raises:
        InputError: If there is none.
    """
    first = captures[0]
    parameters = sum(capture.parameters for capture in captures)
    for name in names("models"):
        model = load_model(name)
        alike = (model.vocab, model.hidden) == (first.vocab, first.hidden)
        if alike and abs(model.parameters / parameters - 1.0) < CLOSE:
            return model
    raise InputError(
        f"no known model has {parameters:,.0f} parameters, a vocabulary of {first.vocab:,} and a "
        f"width of {first.hidden:,}",
        hint="name it: --model llama-3-8b, or --model config.json",
    )


def _compute(found: Comparison) -> list[Line]:
    """Kernels by kind, seconds."""
    program, terms = found.replay.compute, found.estimate.terms
    rows = (
        ("GEMM", "gemm", terms["gemm"] + terms["head"] + terms["experts"]),
        ("attention", "attention", terms["attention"]),
        ("recompute", "recompute", terms["recompute"]),
        ("memory-bound kernels", "other", terms["memory_bound"] + terms["routing"]),
        ("optimizer", "optimizer", terms["optimizer"]),
    )
    both = [(name, program.get(key, 0.0), ours) for name, key, ours in rows]
    return [Line(name=name, unit="s", program=p, model=m) for name, p, m in both if p or m]


def _exposed(found: Comparison) -> list[Line]:
    """Exposed communication by group, seconds."""
    program: dict[str, float] = {}
    for role, seconds in found.replay.exposed.items():
        group = GROUP_OF.get(role)
        if group is not None:
            program[group] = program.get(group, 0.0) + seconds
    ours: dict[str, float] = dict(found.estimate.exposed)
    return [
        Line(
            name=f"exposed {group.replace('_', ' ')}", unit="s",
            program=program.get(group, 0.0), model=ours.get(group, 0.0),
        )
        for group in dict.fromkeys([*ours, *program])
        if program.get(group) or ours.get(group)
    ]  # fmt: skip


def _waiting(found: Comparison) -> list[Line]:
    """Contention, and everything that is neither compute nor communication, seconds."""
    terms, r = found.estimate.terms, found.replay
    ours = sum(terms[key] for key in ("host", "bubble", "overhead", "straggler"))
    both = (("contention", r.contention, terms["contention"]), ("waiting", r.waiting, ours))
    return [Line(name=name, unit="s", program=p, model=m) for name, p, m in both if p + m > TINY]


def _flops(found: Comparison) -> Line:
    """FLOPs of one rank, recompute left out; with a pipeline, of one rank of every stage."""
    phases = flops_by_phase(found.captures)
    program = phases.get("forward", 0.0) + phases.get("backward", 0.0)
    r = found.recognized
    model = found.asked.model.training_flops(r.seq_len) * _tokens(r)
    return Line(name="FLOPs of a rank", unit="FLOP", program=program, model=model)


def _tokens(recognized: Recognized) -> float:
    """Return the tokens of a rank, divided by the ranks that share their work."""
    s = recognized.strategy
    batch = recognized.seq_len * recognized.global_batch
    return batch / (s.data_parallel * s.cp * s.tp)
