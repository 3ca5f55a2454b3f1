"""Lengths of documents, and how sequences are filled with them.

    documents = read_lengths("lognormal:mean=600,sigma=0.8")
    documents.mean, documents.longest_of(8)       # 600, and the mean of the longest of 8
    filled("100..2000", "packed", 4096).useful    # fraction of the tokens that count

A distribution is held as equally probable lengths, so that every mean over it is a sum and the same
on every machine. `Batching` says how documents become sequences:

- packed: several documents in a sequence, by best-fit packing (Ding et al., arXiv 2404.10830). A
  document longer than the sequence is cut into pieces of the sequence and a rest; no other is
  split. What no document fits is padding. Attention stays within documents.
- padded: one document per sequence, truncated or padded to its length; padding is computed.
- bucketed: one document per sequence, padded to the longest document of the micro-batch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.reading import read_text, user_path
from scalewise.units import parse

if TYPE_CHECKING:
    from scalewise.model import Model
    from scalewise.numeric import Array

Batching: TypeAlias = Literal["packed", "padded", "bucketed"]
"""How documents become sequences."""

BATCHINGS: tuple[str, ...] = get_args(Batching)

BINS = 2048
"""Equally probable lengths that stand for a distribution. The mean is exact; the mean square of a
uniform distribution is 8e-8 too small."""

MAX_LENGTH = 2.0**27
"""Longest document, tokens: as long as a sequence can be."""

_EXAMPLES = "600, 100..2000, lognormal:mean=600,sigma=0.8, or a file such as lengths.csv"


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution of document lengths."""

    text: str
    """As it was written."""
    tokens: tuple[float, ...]
    """Equally probable lengths, ascending; one where all are the same."""

    @property
    def mean(self) -> float:
        """Mean length, tokens."""
        return float(np.mean(self.tokens))

    def up_to(self, seq_len: int) -> Lengths:
        """The lengths of documents that are truncated to a sequence."""
        return Lengths(text=self.text, tokens=tuple(min(x, float(seq_len)) for x in self.tokens))

    def longest_of(self, draws: float, power: int = 1) -> float:
        """Return the mean of the longest of some documents, to a power.

            sum over the ascending lengths x_i of x_i ((i / n)^k - ((i - 1) / n)^k)

        Args:
            draws: k: documents.
            power: 2 for the mean of its square.

        >>> pair = Lengths(text="", tokens=(1.0, 3.0))
        >>> pair.longest_of(1.0), pair.longest_of(2.0)
        (2.0, 2.5)
        """
        below = np.power(np.arange(len(self.tokens) + 1.0) / len(self.tokens), draws)
        return float(np.sum(np.power(self.tokens, power) * np.diff(below)))


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences of one length, filled with documents."""

    useful: float
    """Tokens of documents over tokens of full sequences, 0 to 1."""
    pieces: tuple[tuple[float, float], ...]
    """Lengths of documents as they stand in sequences, tokens, and how often; ascending."""

    def span(self, model: Model) -> float:
        """Return the keys a token of a document attends to, mean over tokens and layers.

        A document of l tokens under the causal mask has l / 2: E[l^2] / (2 E[l]) in the mean.
        """
        return _weighted(self.pieces, model.attention_span)

    @property
    def document(self) -> float:
        """Tokens of a document, mean over tokens: E[l^2] / E[l]."""
        return _weighted(self.pieces, float)


def _weighted(pieces: tuple[tuple[float, float], ...], of: object) -> float:
    """Return the mean of a function of the length over tokens."""
    assert callable(of)
    if len(pieces) == 1:
        return float(of(pieces[0][0]))
    tokens = math.fsum(length * count for length, count in pieces)
    return math.fsum(length * count * of(length) for length, count in pieces) / tokens


def filled(text: str, batching: Batching, seq_len: int) -> Filled:
    """Return how sequences are filled with documents.

    Args:
        text: Their lengths, as `read_lengths` reads them.
        batching: How.
        seq_len: Tokens per sequence.

    >>> filled("4096", "packed", 4096).useful, filled("1..4095", "padded", 4096).useful
    (1.0, 0.5)
    >>> round(filled("600", "packed", 4096).useful, 4)        # six documents in a sequence
    0.8789
    """
    return _filled(read_lengths(text), batching, seq_len)


@lru_cache(maxsize=256)
def _filled(lengths: Lengths, batching: Batching, seq_len: int) -> Filled:
    if batching != "packed":
        short = lengths.up_to(seq_len)
        return Filled(useful=short.mean / seq_len, pieces=_counted(short.tokens))
    whole = math.fsum(x // seq_len for x in lengths.tokens)
    rests = [x % seq_len for x in lengths.tokens if x % seq_len >= 1.0]
    sequences = whole + _best_fit(rests, float(seq_len))
    pieces = [*_counted(tuple(rests)), *([(float(seq_len), whole)] if whole else [])]
    tokens = math.fsum(rests) + whole * seq_len
    return Filled(useful=min(tokens / (sequences * seq_len), 1.0), pieces=tuple(pieces))


def _best_fit(pieces: list[float], room: float) -> float:
    """Return the sequences that best-fit packing needs, the last one as far as it is filled.

    The longest piece first, each into the sequence with the least room that it fits. Pieces of one
    length fill every sequence alike.
    """
    if not pieces:
        return 0.0
    if len(set(pieces)) == 1:
        return len(pieces) / (room // pieces[0])
    left: list[float] = []
    opened = 0
    for piece in sorted(pieces, reverse=True):
        place = bisect_left(left, piece)
        if place == len(left):
            opened += 1
            insort(left, room - piece)
        else:
            insort(left, left.pop(place) - piece)
    # In a long run the sequence with most room goes on to be filled.
    return opened - left[-1] / room


def _counted(tokens: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """Distinct lengths, ascending, with their counts."""
    values, counts = np.unique(np.array(tokens), return_counts=True)
    return tuple(zip(values.tolist(), counts.astype(float).tolist(), strict=True))


def padded_length(lengths: Lengths, micro_batch: Array, ranks: Array, steps: Array) -> Array:
    """Return the tokens that a sequence of a bucketed batch is computed as, mean, tokens.

        x(m) + (x(m d) - x(m)) / sqrt(n)

    with x(k) the mean of the longest of k documents. A rank pads to the longest of its m documents;
    ranks wait for the longest of all d of them after every n micro-batches, over which their sums
    even out.

    Args:
        lengths: Documents, truncated to the sequence.
        micro_batch: m: sequences per micro-batch and rank.
        ranks: d: data-parallel ranks.
        steps: n: micro-batches between two waits.
    """
    return _padded(lengths, micro_batch, ranks, steps, 1)


def padded_square(lengths: Lengths, micro_batch: Array, ranks: Array, steps: Array) -> Array:
    """Return the same for the square of that length, which attention grows with, tokens^2."""
    return _padded(lengths, micro_batch, ranks, steps, 2)


def _padded(lengths: Lengths, micro_batch: Array, ranks: Array, steps: Array, power: int) -> Array:
    alone = _longest(lengths, micro_batch, power)
    together = _longest(lengths, micro_batch * ranks, power)
    result: Array = alone + (together - alone) / np.sqrt(steps)
    return result


def _longest(lengths: Lengths, draws: Array, power: int) -> Array:
    """`Lengths.longest_of` of every distinct number of documents."""
    distinct, place = np.unique(np.asarray(draws), return_inverse=True)
    values = np.array([lengths.longest_of(float(k), power) for k in distinct])
    result: Array = values[place].reshape(np.shape(draws))
    return result


def is_lengths_file(text: str) -> bool:
    """Whether lengths are read from a file."""
    return "/" in text or text.strip().lower().endswith((".csv", ".txt", ".tsv"))


def read_lengths(text: str) -> Lengths:
    """Return a distribution of document lengths.

    Args:
        text: One length ("600"), a uniform range ("100..2000"), a lognormal distribution by its
            mean and the deviation of the logarithm ("lognormal:mean=600,sigma=0.8"), or a file
            with a length per line, the first column of a table.

    Raises:
        InputError: If it is none of these, or a length is below a token.

    >>> read_lengths("100..2000").mean
    1050.0
    """
    word = text.strip()
    if not is_lengths_file(word):
        return _lengths(word, 0)
    try:
        changed = user_path(word).stat().st_mtime_ns
    except (OSError, ValueError):
        changed = 0
    # A file is read again once it has changed.
    return _lengths(word, changed)


@lru_cache(maxsize=64)
def _lengths(word: str, _changed: int) -> Lengths:
    if is_lengths_file(word):
        return Lengths(text=word, tokens=_binned(_read_file(word)))
    if word.lower().startswith("lognormal:"):
        return Lengths(text=word, tokens=_lognormal(word))
    first, dots, last = word.partition("..")
    low = _tokens(word, first)
    if not dots:
        return Lengths(text=word, tokens=(low,))
    high = _tokens(word, last)
    if high < low:
        raise _refused(word, "the range ends below its start")
    if high == low:
        return Lengths(text=word, tokens=(low,))
    middles = low + (high - low) * (np.arange(BINS) + 0.5) / BINS
    return Lengths(text=word, tokens=tuple(middles.tolist()))


def _lognormal(text: str) -> tuple[float, ...]:
    """Means of equally probable parts of a lognormal distribution, tokens."""
    # Its import takes 5 ms.
    from statistics import NormalDist

    given: dict[str, str] = {}
    for part in text.partition(":")[2].split(","):
        name, _, value = part.partition("=")
        given[name.strip().lower()] = value
    if set(given) != {"mean", "sigma"}:
        raise _refused(text, "a lognormal distribution has a mean and a sigma")
    mean = _tokens(text, given["mean"])
    try:
        sigma = float(given["sigma"])
    except ValueError:
        sigma = -1.0
    if not 0.0 < sigma <= 4.0:
        raise _refused(text, "sigma must be above 0 and at most 4")
    normal = NormalDist()
    edges = [normal.cdf(normal.inv_cdf(i / BINS) - sigma) for i in range(1, BINS)]
    parts = mean * BINS * np.diff([0.0, *edges, 1.0])
    return tuple(np.clip(parts, 1.0, MAX_LENGTH).tolist())


def _read_file(path: str) -> list[float]:
    """The numbers of the first column of a file; a first line of words is its head."""
    try:
        lines = read_text(path, what="lengths").splitlines()
    except InputError:
        raise InputError(
            f"lengths = {path[:80]}: no such text file", hint=f"lengths are {_EXAMPLES}"
        ) from None
    found: list[float] = []
    for number, line in enumerate(lines):
        cell = line.replace("\t", ",").partition(",")[0].strip()
        try:
            length = float(cell)
        except ValueError:
            if cell and number:
                raise _refused(path, f"line {number + 1} is not a number") from None
            continue
        if not 1.0 <= length <= MAX_LENGTH:
            raise _refused(path, f"line {number + 1} is not between 1 and {MAX_LENGTH:,.0f}")
        found.append(length)
    if not found:
        raise _refused(path, "it has no lengths")
    return found


def _binned(found: list[float]) -> tuple[float, ...]:
    """Equally probable lengths, ascending: all of a short list, means of parts of a long one."""
    ordered = np.sort(np.array(found))
    if len(ordered) <= BINS:
        return tuple(ordered.tolist())
    # Sums up to every edge between bins, which may lie within one length.
    edges = np.linspace(0.0, len(ordered), BINS + 1)
    sums = np.interp(
        edges, np.arange(len(ordered) + 1.0), np.concatenate([[0.0], ordered.cumsum()])
    )
    return tuple((np.diff(sums) * BINS / len(ordered)).tolist())


def _tokens(text: str, number: str) -> float:
    try:
        value = float(parse(number.strip(), "count"))
    except InputError:
        raise _refused(text, f"{number.strip()[:20] or 'nothing'} is not a number of tokens") from (
            None
        )
    if not 1.0 <= value <= MAX_LENGTH:
        raise _refused(text, f"lengths must be between 1 and {MAX_LENGTH:,.0f}")
    return value


def _refused(text: str, rule: str) -> InputError:
    return InputError(f"lengths = {text[:60]}: {rule}", hint=f"lengths are {_EXAMPLES}")
