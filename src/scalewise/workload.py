"""Work of one training step: sequence length, global batch, precision, token budget.

    Workload(seq_len=4096, global_batch=1024)

Nothing in scalewise changes the global batch: convergence depends on it.
"""

from __future__ import annotations

import msgspec

from scalewise.critical_batch import parse_critical_batch
from scalewise.errors import InputError, did_you_mean
from scalewise.lengths import BATCHINGS, Batching, filled, read_lengths
from scalewise.loss import LOSS_WORDS, Loss
from scalewise.optimizer import WEIGHTS, Weights
from scalewise.precision import PRECISIONS, RECIPES, Precision
from scalewise.reliability import parse_reliability
from scalewise.tuning import Tuning, parse_tuning

MAX_COUNT = 2**27
"""Largest sequence length and batch: larger than any run, and exact in floating point."""

_BOUNDS = (("imbalance", 1.0, 1024.0), ("capacity", 0.1, 1024.0))


def _shown(value: object) -> str:
    """Return a wrong value for an error message, truncated."""
    if isinstance(value, int) and abs(value) > 10**15:
        return "a huge number"
    return str(value)[:40]


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all steps of a run have in common, on any number of GPUs and with any batch.

    A `Workload` adds one batch, the rule of a scaling curve one for every size.
    """

    tokens: float | None = None
    """Token budget of the whole run, or None."""

    goodput: str | None = None
    """Failures, restarts and checkpoints of the run, as `reliability` reads them; None for what is
    usual wherever there is a token budget."""

    critical_batch: str | None = None
    """Critical batch of the run, as `critical_batch` reads it; None where it is not asked for."""

    imbalance: float = 1.0
    """Tokens of the busiest expert-parallel rank over the mean; 1 is balanced routing."""

    capacity: float | None = None
    """Capacity factor of experts: every expert computes so many times its mean of tokens, the rest
    is dropped or padded. None for dropless routing."""

    optimizer: str = "adamw"
    """Optimizer: name in the catalog, or a .toml file."""

    loss: Loss | None = None
    """Loss: full, chunked or fused; None for the software's."""

    weights: Weights = "mixed"
    """Stored parameters: 16 bits with a 32-bit master copy (mixed), bf16 alone, or fp32 alone.
    GEMMs in tf32 and fp32 read 32-bit weights: mixed is fp32 then."""

    tuning: str = "full"
    """What is trained: full, or adapters of a frozen model such as lora16, lora8-qv, qlora64."""

    lengths: str | None = None
    """Lengths of documents: one for all, a range, a distribution or a file, as `lengths` reads
    them. None for documents of which nothing is known: all tokens count and attend to all before
    them."""

    batching: Batching = "packed"
    """How documents become sequences: packed, padded or bucketed."""


class Workload(Work, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work of one optimizer step, and the token budget of the run."""

    seq_len: int
    """Tokens per sequence."""

    global_batch: int
    """Sequences per optimizer step over all GPUs."""

    precision: Precision = "bf16"
    """Precision of GEMMs, a word of `precision.RECIPES`; the LM head has at least 16 bits."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "tuning", str(parse_tuning(self.tuning)))
        for field in ("seq_len", "global_batch"):
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= MAX_COUNT:
                raise InputError(
                    f"{field} = {_shown(value)} must be a whole number from 1 to {MAX_COUNT}",
                    hint=f"for example {field} = 2048",
                )
        for field, words in (
            ("weights", WEIGHTS), ("loss", (None, *LOSS_WORDS)), ("batching", BATCHINGS),
        ):  # fmt: skip
            if getattr(self, field) not in words:
                word, known = _shown(getattr(self, field)), [str(each) for each in words if each]
                raise InputError(f"unknown {field} {word}", hint=did_you_mean(word, known))
        if self.precision not in PRECISIONS:
            word = _shown(self.precision)
            raise InputError(f"unknown precision {word}", hint=did_you_mean(word, PRECISIONS))
        recipe, tuned = RECIPES[self.precision], self.tuned
        if tuned.frozen and (recipe.wide or (tuned.quantized and recipe.family != "bf16")):
            stored = "in 4 bits" if tuned.quantized else "in 16 bits"
            raise InputError(
                f"tuning {self.tuning} with precision {self.precision}: a frozen model {stored} "
                "computes in 16 bits",
                hint="use --precision bf16",
            )
        if self.weights == "bf16" and recipe.wide:
            raise InputError(
                f"weights = bf16: GEMMs in {self.precision} read 32-bit weights",
                hint="use --weights fp32",
            )
        for field, least, most in _BOUNDS:
            number = getattr(self, field)
            if number is None and field == "capacity":
                continue
            real = isinstance(number, int | float) and not isinstance(number, bool)
            if not real or not least <= number <= most:
                raise InputError(
                    f"{field} = {_shown(number)} must be a number from {least:g} to {most:g}",
                    hint=f"for example {field} = {max(least, 1.0):g}",
                )
        if self.lengths is not None:
            read_lengths(self.lengths)
        elif self.batching != "packed":
            raise InputError(
                f"batching = {self.batching} needs lengths of documents",
                hint="for example --lengths 100..2000",
            )
        if self.goodput is not None:
            parse_reliability(self.goodput)
        if self.critical_batch is not None:
            parse_critical_batch(self.critical_batch)
        if self.tokens is not None and not (
            isinstance(self.tokens, int | float)
            and not isinstance(self.tokens, bool)
            and 0 < self.tokens < 1e30
        ):
            raise InputError(
                f"tokens = {_shown(self.tokens)} must be a positive number below 1e30",
                hint="for example tokens = 2e12",
            )

    @property
    def tuned(self) -> Tuning:
        """What is trained, read from its word."""
        return parse_tuning(self.tuning)

    @property
    def useful_fraction(self) -> float:
        """Tokens of documents over tokens of full sequences; the rest is padding."""
        if self.lengths is None:
            return 1.0
        return filled(self.lengths, self.batching, self.seq_len).useful

    @property
    def tokens_per_step(self) -> float:
        """Tokens per optimizer step that count: those of documents."""
        if self.lengths is None:
            return self.seq_len * self.global_batch
        return self.seq_len * self.global_batch * self.useful_fraction


WORK: tuple[str, ...] = Work.__struct_fields__
"""Fields that a workload shares with the rule of a scaling curve."""
