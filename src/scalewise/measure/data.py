"""Training data: tokens that are the same for every parallelization strategy.

    source = Synthetic(vocab=8192, seed=0)        # or TextFile(path, vocab)
    inputs, targets = batch(source, step=3, sequences=[0, 4], length=256)

Each sequence of the global batch depends only on the seed, the step and its index in the batch, so
ranks read different data without communication.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from scalewise.errors import InputError
from scalewise.reading import read_bytes

BRANCHES = 8
"""In synthetic text the next token is one of so many: a model can learn that, as a falling loss
shows."""

BYTES = 256
"""Tokens of a text file: its bytes."""


class Source(Protocol):
    """Where tokens come from."""

    def seq_len(self, step: int, index: int, length: int) -> Tensor:
        """`length` tokens of one sequence of a step's global batch."""
        ...


class Synthetic:
    """Endless text made up from a seed: each token is its predecessor plus less than `BRANCHES`."""

    def __init__(self, vocab: int, seed: int) -> None:
        self.vocab, self.seed = vocab, seed

    def seq_len(self, step: int, index: int, length: int) -> Tensor:
        """Draw a sequence; a generator of its own makes it independent of all others."""
        generator = torch.Generator().manual_seed(_mixed(self.seed, step, index))
        hops = torch.randint(0, BRANCHES, (length,), generator=generator)
        hops[0] = torch.randint(0, self.vocab, (1,), generator=generator)[0]
        return hops.cumsum(0) % self.vocab


class TextFile:
    """The bytes of a file, read at places drawn from a seed."""

    def __init__(self, path: str, vocab: int, seed: int, length: int) -> None:
        if vocab < BYTES:
            raise InputError(
                f"a vocabulary of {vocab} has no room for the {BYTES} bytes of a text file",
                hint="take a model with vocab 256 or more, or leave --text out",
            )
        content = read_bytes(path, what="--text")
        if len(content) <= length:
            raise InputError(
                f"{path} has {len(content)} bytes, fewer than one sequence of {length} + 1",
                hint="take a longer text, or a shorter --seq",
            )
        self.tokens = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        self.seed = seed

    def seq_len(self, step: int, index: int, length: int) -> Tensor:
        """Read a piece of the file."""
        generator = torch.Generator().manual_seed(_mixed(self.seed, step, index))
        start = int(torch.randint(0, len(self.tokens) - length + 1, (1,), generator=generator))
        return self.tokens[start : start + length].long()


def batch(
    source: Source, *, step: int, sequences: Sequence[int], length: int
) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (sequences, length) each, for some sequences of a step."""
    rows = torch.stack([source.seq_len(step, index, length + 1) for index in sequences])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def sequences_of(rank: int, ranks: int, *, micro_batch: int, num_microbatches: int) -> list[int]:
    """Places in the global batch that a data-parallel rank reads, micro-batch by micro-batch."""
    return [
        (step * ranks + rank) * micro_batch + i
        for step in range(num_microbatches)
        for i in range(micro_batch)
    ]


def _mixed(seed: int, step: int, index: int) -> int:
    """One seed out of three numbers; 32 bits, because CPU generators ignore the rest."""
    return zlib.crc32(f"{seed} {step} {index}".encode())
