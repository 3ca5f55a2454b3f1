"""Work of one training step: sequence length, global batch, precision, token budget.

    Workload(seq_len=4096, global_batch=1024)

Nothing in scalewise changes the global batch: convergence depends on it.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
MAX_COUNT = 2**27
"""Largest sequence length and batch: larger than any run, and exact in floating point."""

PRECISIONS: tuple[str, ...] = get_args(Precision)


def _shown(value: object) -> str:
    """Return a wrong value for an error message, truncated."""
    if isinstance(value, int) and abs(value) > 10**15:
        return "a huge number"
    return str(value)[:40]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work of one optimizer step, and the token budget of the run."""

    seq_len: int
    """Tokens per sequence."""

    global_batch: int
    """Sequences per optimizer step over all GPUs."""

    precision: Precision = "bf16"
    """Matmul precision. With fp8 and below, attention, head and optimizer stay in 16 or 32 bits."""

    tokens: float | None = None
    """Token budget of the whole run, or None."""

    def __post_init__(self) -> None:
        for field in ("seq_len", "global_batch"):
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= MAX_COUNT:
                raise InputError(
                    f"{field} = {_shown(value)} must be a whole number from 1 to {MAX_COUNT}",
                    hint=f"for example {field} = 2048",
                )
        if self.precision not in PRECISIONS:
            word = _shown(self.precision)
            raise InputError(f"unknown precision {word}", hint=did_you_mean(word, PRECISIONS))
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
        """Tokens per optimizer step."""
        return self.seq_len * self.global_batch
