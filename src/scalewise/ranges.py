"""80% prediction intervals of levels, intervals of ratios, and the chance that A beats B.

    level_range(e.basis)                 # factors on predicted tokens/s: (0.83, 1.20)
    ratio_range(a.basis, b.basis)        # of tokens/s of A over B
    chance_faster(a.basis, b.basis)      # 0 to 1

The log of measured over predicted is a sum of effects: software family, chip generation, mode
(eager or compiled), source (the team), shape, the terms of the step, and noise. A level (tokens/s,
days, cost) carries all of them. Two answers to one question share family, mode and source: these
cancel in a ratio, and what differs between the two steps remains. The effects live in
`catalog/ranges.toml`, fitted on predictions of sources that no constant had seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.numeric import Array, Num
from scalewise.physics.memory import normal_cdf
from scalewise.reading import read_toml, user_path
from scalewise.terms import TERMS

if TYPE_CHECKING:
    from scalewise.stack import Stack

FILE = Path(__file__).parent / "catalog" / "ranges.toml"
"""Effects of the shipped constants, written by `scalewise calibrate`."""

Z80 = 1.2816
"""Standard deviations from the middle to an end of an 80% interval."""

TIE_CHANCE = 1 / 3
"""Chance to be faster than the best from which a strategy ties with it: odds of 2 to 1 decide
nothing."""

TIE_DEVIATIONS = 0.4307
"""Lead in standard deviations at which the slower one has that chance."""

LENGTH, PART_LENGTH = float(np.log(4.0)), 0.1
"""Change of model size, sequence or tokens per GPU (log), and of a fraction of the step, over which
the effect of shape changes. Chosen by the likelihood among factors of 2, 4 and 8, and fractions of
0.05, 0.1 and 0.2."""

# Families of stacks by the start of their name; others are PyTorch.
_FAMILIES = {"megatron": "megatron", "maxtext": "xla", "neuronx": "neuron"}

Knowledge = Literal["own", "runs", "family", "nothing"]
"""What is known of the software: own runs, published runs of the stack, its family, or nothing."""

ExpertSoftware = Literal["none", "stated", "usual"]
"""Dispatcher, CUDA graphs, overlap and fusion of experts: none in a dense model, stated, or those
that are usual for the stack."""


class Effects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Standard deviations of log(measured / predicted), by cause."""

    family: float
    """Software family: applies where the software is not stated."""

    generation: float
    """Chip generation within a family."""

    mode: float
    """Eager or compiled within a family: applies where the stack has no runs of its own."""

    source: float
    """Team: two teams with the same stated facts differ by this."""

    shape: float
    """Shape: model size, sequence length, tokens per GPU, and fractions of the step. Steps of one
    shape share it."""

    compute: float
    """GEMM and attention rates, times the fraction of the step they take."""

    memory: float
    """Memory-bound kernels and optimizer, times the fraction of the step they take."""

    communication: float
    """Exposed communication, contention and stragglers, times the fraction of the step they
    take."""

    waiting: float
    """Kernel launches, pipeline bubble and overhead, times the fraction of the step they take."""

    noise: float
    """Run-to-run variation, rounding, and what columns do not say."""

    idle_noise: float
    """Additional noise of a step, times the fraction of it that is not GEMM and attention."""

    scale: float
    """Per square root of a doubling of GPUs between two sizes, or beyond the largest fitted run."""

    borrowed: float = 1.0
    """Factor on the effects of shape, terms, scale and noise where the stack has no runs of its own
    and answers with the constants of its family."""

    experts: float = 0.0
    """Layers with experts: applies to models that have them."""

    recipe: float = 0.0
    """Dispatcher, CUDA graphs, overlap and fusion of experts: applies where they are not stated,
    and those usual for the stack are taken."""

    beyond: float
    """Per doubling beyond the largest fitted run, times the fraction of the step that communicates.
    Not fitted: FSDP loses 37% from 128 to 2,048 H100s (arXiv 2411.13055), 24% in a model fitted up
    to 512, in which a quarter of the step communicates. The 80% interval just holds that."""

    uncalibrated: float
    """Chip without a calibration. Not fitted: GEMMs of ten boards reach 0.51 to 0.97 of peak, the
    datasheet default is their median."""

    fitted_on: str
    """Residuals the effects were fitted on."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not 0.0 <= value < 10.0:
                raise InputError(
                    f"ranges.toml: {name} = {value} must be between 0 and 10",
                    hint="run `scalewise calibrate` again",
                )


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What the interval of a prediction depends on; numbers, or arrays over strategies."""

    rate: Num
    """Predicted tokens/s per GPU."""
    parts: Mapping[str, Num]
    """Fraction of the step by activity: compute, memory, communication, waiting."""
    software: str
    """Name of the stack."""
    family: str
    """Its family."""
    chip: str
    """Architecture of the accelerator."""
    accelerators: int
    """Number of GPUs."""
    beyond: float
    """Doublings of GPUs beyond the largest run the stack was fitted on."""
    parameters: float
    """Of the model."""
    seq_len: int
    """Tokens per sequence."""
    tokens: Num
    """Tokens per GPU and step."""
    knowledge: Knowledge = "runs"
    """What is known of the software."""
    own_runs: int = 0
    """Runs of the user's own behind the stack."""
    own_noise: float = 0.0
    """Standard deviation (log) of these runs around the fit."""
    calibrated: bool = True
    """Whether the chip has a calibration."""
    experts: ExpertSoftware = "none"
    """What is known of the software of experts."""


FEWEST = 30
"""Runs from which the constants of a stack are its own: below, priors of the family hold them."""


def load_effects() -> Effects:
    """Return the effects of the user's catalog if it has them, else those of the package."""
    return _effects_of(os.environ.get("SCALEWISE_CATALOG"))


@lru_cache(maxsize=8)
def _effects_of(own: str | None) -> Effects:
    mine = user_path(own) / FILE.name if own else FILE
    file = mine if mine.exists() else FILE
    try:
        return msgspec.convert(read_toml(file, what="ranges"), Effects)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{file} is not a table of ranges: {error}", hint="`scalewise calibrate` writes it"
        ) from error


def family_of(stack: Stack) -> str:
    """Return the software family of a stack."""
    stated = getattr(stack, "family", "")
    if stated:
        return str(stated)
    found = [kind for start, kind in _FAMILIES.items() if stack.name.startswith(start)]
    return found[0] if found else "pytorch"


def knowledge_of(stack: Stack, *, stated: bool) -> Knowledge:
    """Return what is known of the software of an answer.

    Args:
        stack: Its constants.
        stated: Whether the software was named; a name that no stack covers says nothing.
    """
    if stack.own_runs:
        return "own"
    if stack.stands_in or not stated:
        return "nothing"
    return "runs" if stack.runs >= FEWEST else "family"


def parts_of(terms: Mapping[str, Num], step_seconds: Num) -> dict[str, Num]:
    """Return the fraction of a step by activity, from the seconds of its terms.

    >>> parts_of({"gemm": 0.6, "contention": 0.1, "bubble": 0.3}, 1.0)
    {'compute': 0.6, 'memory': 0.0, 'communication': 0.1, 'waiting': 0.3}
    """
    found: dict[str, Num] = dict.fromkeys(("compute", "memory", "communication", "waiting"), 0.0)
    for name, seconds in terms.items():
        activity = TERMS[name].activity
        found[activity] = found[activity] + seconds / step_seconds
    return found


def noise_deviation(basis: Basis, effects: Effects | None = None) -> Num:
    """Return the standard deviation (log) of one run around its own mean.

        sqrt(noise^2 + (idle_noise (1 - compute))^2)

    Steps that wait vary more than steps that compute: repeats of GEMM-bound steps differ by 1%.
    """
    e = effects or load_effects()
    idle = 1.0 - np.asarray(basis.parts["compute"])
    return np.asarray(np.sqrt(e.noise**2 + (e.idle_noise * idle) ** 2))


def level_deviation(basis: Basis, effects: Effects | None = None) -> Num:
    """Return the standard deviation (log) of a level: tokens/s, days, cost.

        sqrt(software^2 + terms^2 + shape^2 + noise^2 + scale^2 d + (beyond d f)^2)

    with d doublings beyond the largest fitted run and f the communicating fraction. Own runs
    identify software, terms and shape, if they are steps like the one that is asked: n of them
    leave 1 / (1 / s^2 + n / noise^2) of their variance s^2.

    Args:
        basis: What was asked, and what is known.
        effects: Standard deviations; by default those of the catalog.
    """
    e = effects or load_effects()
    noise = np.maximum(np.asarray(noise_deviation(basis, e)), basis.own_noise) ** 2
    software = e.source**2 + e.generation**2
    if basis.knowledge in ("family", "nothing"):
        software += e.mode**2
    if basis.knowledge == "nothing":
        software += e.family**2
    if basis.experts != "none":
        software += e.experts**2
    if basis.experts == "usual":
        software += e.recipe**2
    if not basis.calibrated:
        software += e.uncalibrated**2
    lent = borrowing(basis, e) ** 2
    noise = lent * noise
    within = sum((getattr(e, k) * np.asarray(f)) ** 2 for k, f in basis.parts.items())
    known = software + lent * (e.shape**2 + np.asarray(within))
    if basis.own_runs:
        known = 1.0 / (1.0 / known + basis.own_runs / noise)
    far = lent * e.scale**2 * basis.beyond + (e.beyond * _far(basis)) ** 2
    return np.asarray(np.sqrt(known + noise + far))


def borrowing(basis: Basis, effects: Effects) -> float:
    """Return the factor on effects within a source: 1 where the stack has runs of its own."""
    return effects.borrowed if basis.knowledge in ("family", "nothing") else 1.0


def _far(basis: Basis) -> Array:
    """Doublings beyond the evidence, times the fraction of the step that communicates."""
    return np.asarray(basis.beyond * np.asarray(basis.parts["communication"]))


def shape_distance(a: Basis, b: Basis) -> Num:
    """Return the squared distance in shape: 1 for a factor of 4, or a tenth of the step."""
    apart = np.log(a.parameters / b.parameters) ** 2 + np.log(a.seq_len / b.seq_len) ** 2
    apart = (apart + np.log(np.asarray(a.tokens) / b.tokens) ** 2) / LENGTH**2
    for name, fraction in a.parts.items():
        apart = apart + (fraction - np.asarray(b.parts[name])) ** 2 / PART_LENGTH**2
    return np.asarray(apart)


def ratio_deviation(
    a: Basis, b: Basis, effects: Effects | None = None, *, paired: bool = False
) -> Num:
    """Return the standard deviation (log) of the ratio of two answers to one question.

        sqrt(noise_a^2 + noise_b^2 + sum_k (term_k (f_a,k - f_b,k))^2
             + 2 shape^2 (1 - exp(-d^2 / 2)) + scale^2 n + (beyond m)^2 + software^2)

    with f the fractions of the two steps by activity, d their distance in shape, n doublings
    between their sizes, m the difference in doublings beyond the evidence times the communicating
    fraction. `software` is 0 for one
    stack and chip; other software adds twice the effect of a family or a mode, another chip twice
    that of a generation.

    Args:
        a: One answer.
        b: The other one.
        effects: Standard deviations; by default those of the catalog.
        paired: Whether both are one configuration, changed in one place: its noise cancels.

    >>> e = Effects(family=.1, generation=.05, mode=.1, source=.1, shape=0., compute=0.,
    ...     memory=0., communication=.5, waiting=0., noise=.01, idle_noise=0., scale=0.,
    ...     beyond=0., uncalibrated=.2, fitted_on="an example")
    >>> a = Basis(rate=100., parts=parts_of({"gemm": .9, "contention": .1}, 1.), software="x",
    ...     family="x", chip="hopper", accelerators=8, beyond=0., parameters=7e9, seq_len=4096,
    ...     tokens=8192.)
    >>> b = Basis(**{**vars(a), "parts": parts_of({"gemm": .7, "contention": .3}, 1.)})
    >>> [round(float(ratio_deviation(a, x, e)), 4) for x in (a, b)]
    [0.0141, 0.101]
    """
    e = effects or load_effects()
    one, other = np.asarray(noise_deviation(a, e)), np.asarray(noise_deviation(b, e))
    total = np.zeros(()) if paired else one**2 + other**2
    apart = shape_distance(a, b)
    for name, fraction in a.parts.items():
        differs = (fraction - np.asarray(b.parts[name])) ** 2
        total = total + getattr(e, name) ** 2 * differs
    total = total - 2.0 * e.shape**2 * np.expm1(-0.5 * apart)
    doublings = abs(float(np.log2(a.accelerators / b.accelerators)))
    total = total + e.scale**2 * doublings
    total = max(borrowing(a, e), borrowing(b, e)) ** 2 * total
    total = total + (e.beyond * (_far(a) - _far(b))) ** 2
    if a.family != b.family:
        total = total + 2.0 * e.family**2
    elif a.software != b.software:
        total = total + 2.0 * e.mode**2
    if a.chip != b.chip:
        unknown = e.uncalibrated**2 * ((not a.calibrated) + (not b.calibrated))
        total = total + 2.0 * e.generation**2 + unknown
    return np.asarray(np.sqrt(total))


def level_range(basis: Basis, effects: Effects | None = None) -> tuple[float, float]:
    """Return the 80% prediction interval of a level, as factors on the prediction."""
    reach = float(np.exp(Z80 * np.asarray(level_deviation(basis, effects))))
    return 1.0 / reach, reach


def mixture_range(answers: Sequence[Basis], effects: Effects | None = None) -> tuple[float, float]:
    """Return the 80% prediction interval of tokens/s per GPU where one of several answers holds.

    The 10% and 90% quantiles of the mean of their distributions: each is as likely as the others,
    and has the deviation of a level. One answer has its `level_range`.
    """
    centers = np.log([float(each.rate) for each in answers])
    wide = np.array([float(level_deviation(each, effects)) for each in answers])
    # Both quantiles at once, one in each row.
    share = np.array([0.1, 0.9])
    low = np.full(2, np.min(centers - 6.0 * wide))
    high = np.full(2, np.max(centers + 6.0 * wide))
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = np.mean(normal_cdf((middle[:, None] - centers) / wide), axis=1) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    first, last = np.exp(low).tolist()
    return first, last


def without_own_runs(basis: Basis) -> Basis:
    """Return the same question to software of the same family that was never measured here."""
    return replace(basis, own_runs=0, own_noise=0.0, knowledge="family")


def with_own_runs(basis: Basis, residuals: Sequence[float]) -> Basis:
    """Return the same question after a calibration on runs of the user's own.

    Args:
        basis: The question.
        residuals: Log of measured over predicted of these runs, before the calibration.
    """
    left = float(np.std(residuals, ddof=1)) if len(residuals) > 2 else 0.0
    return replace(basis, own_runs=len(residuals), own_noise=left, knowledge="own")


def ratio_range(
    a: Basis, b: Basis, effects: Effects | None = None, *, paired: bool = False
) -> tuple[float, float]:
    """Return the 80% prediction interval of tokens/s per GPU of A over those of B."""
    ratio = float(a.rate) / float(b.rate)
    reach = float(np.exp(Z80 * np.asarray(ratio_deviation(a, b, effects, paired=paired))))
    return ratio / reach, ratio * reach


def chance_faster(a: Basis, b: Basis, effects: Effects | None = None) -> Array:
    """Return the chance that A has more tokens/s per GPU than B, 0 to 1.

    Phi(ln(rate_a / rate_b) / deviation of the ratio): 0.5 for equal predictions.
    """
    lead = np.log(np.asarray(a.rate) / np.asarray(b.rate))
    return chance(lead, ratio_deviation(a, b, effects))


def chance(lead: Num, deviation: Num) -> Array:
    """Return the chance that a normal variable with this mean and deviation is positive.

    >>> [chance(lead, 0.1).round(3).item() for lead in (0.0, 0.1)]
    [0.5, 0.841]
    """
    return np.asarray(normal_cdf(np.asarray(lead) / deviation))


def tie_width(effects: Effects | None = None) -> float:
    """Return the lead, as a fraction, below which two steps of one kind tie.

    The lead at which the slower of two GEMM-bound steps still has a chance of `TIE_CHANCE`.

    >>> 0.003 < tie_width() < 0.03
    True
    """
    e = effects or load_effects()
    return float(np.expm1(TIE_DEVIATIONS * np.sqrt(2.0) * e.noise))


def run_range(*effects: tuple[float, float]) -> tuple[float, float]:
    """Return factors on the time of a run: low and high, of independent effects.

    Args:
        *effects: Factors on it of each: low, at most 1, and high, at least 1.

    >>> [round(each, 3) for each in run_range((0.9, 1.2), (0.97, 1.05))]
    [0.896, 1.208]
    """
    ends = np.sqrt(np.sum(np.log(effects) ** 2, axis=0))
    return float(np.exp(-ends[0])), float(np.exp(ends[1]))


def plus_minus(interval: tuple[float, float]) -> str:
    """Return an interval of factors as a percentage: "±17%".

    >>> plus_minus((1 / 1.17, 1.17))
    '±16%'
    """
    low, high = interval
    return f"±{50.0 * (high - low):.0f}%"
