"""What is trained per step: sequence length, global batch, precision, token budget.

    Workload(sequence=4096, global_batch=1024)

The global batch is the user's promise to the optimizer: nothing in scalewise changes it.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
MOST = 2**27
"""Longest sequence and largest batch: beyond any run, and exact in floating point."""

PRECISIONS: tuple[str, ...] = get_args(Precision)


def _shown(value: object) -> str:
    """A wrong value for a message: short, whatever it is."""
    if isinstance(value, int) and abs(value) > 10**15:
        return "a huge number"
    return str(value)[:40]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One optimizer step's worth of work, and how many tokens the whole run sees."""

    sequence: int
    """Tokens per sequence."""

    global_batch: int
    """Sequences per optimizer step, over all accelerators."""

    precision: Precision = "bf16"
    """Matmul precision. With fp8 and below, attention, head and optimizer stay in 16 or 32 bits."""

    tokens: float | None = None
    """Token budget of the whole run, or None when only a step is of interest."""

    def __post_init__(self) -> None:
        for field in ("sequence", "global_batch"):
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= MOST:
                raise InputError(
                    f"{field} = {_shown(value)} must be a whole number from 1 to {MOST}",
                    hint=f"for example {field} = 2048",
                )
        if self.precision not in PRECISIONS:
            word = _shown(self.precision)
            raise InputError(
                f"precision = {word} is not known", hint=did_you_mean(word, PRECISIONS)
            )
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
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step consumes."""
        return self.sequence * self.global_batch
