"""Which sizes, and what does a step train at each of them? The question of a scaling curve.

    parse_sizes("8..2048")                            # (8, 16, 32, ..., 2048)
    rule = Rule(kind="weak", batch=2, sequence=4096)  # two sequences per accelerator
    rule.global_batch(1024)                           # 2048

A batch is counted in sequences, whatever their length: where several lengths are compared, each
step of the longer ones trains more tokens, and what is compared is tokens/s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from scalewise.errors import InputError
from scalewise.units import parse_count
from scalewise.workload import Precision, Workload

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

MOST_SIZES = 64
"""Most sizes of one curve: more is a typing error, and no table shows it."""

MOST = 2**22
"""Most accelerators: beyond any cluster, and what a strategy can spell."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step trains as the cluster grows: more (weak scaling), or the same (strong)."""

    kind: Literal["weak", "strong"]
    """Weak: the batch grows with the cluster. Strong: it stays."""
    batch: float
    """Sequences per step: of one accelerator if weak, of all if strong."""
    sequence: int
    """Tokens per sequence."""
    precision: Precision | None = None
    """Of the matrix products; None is bf16, or fp16 on chips without bf16 units."""
    tokens: float | None = None
    """Token budget of the whole run, or None."""

    def __post_init__(self) -> None:
        if self.kind not in ("weak", "strong"):
            raise InputError(f"kind = {self.kind!r} is not known", hint="use weak or strong")
        if not 0 < self.batch <= 2**27:
            raise InputError(f"batch = {self.batch:g} must be positive", hint="for example 2")
        # Sequence, precision and budget have the workload's own rules.
        Workload(
            sequence=self.sequence,
            global_batch=1,
            precision=self.precision or "bf16",
            tokens=self.tokens,
        )

    def global_batch(self, accelerators: int) -> int:
        """Say how many sequences a step has at one size.

        Raises:
            InputError: If that is not a whole number.
        """
        batch = self.batch * accelerators if self.kind == "weak" else self.batch
        # Fractions of a sequence per accelerator are binary, so 0.3 x 10 is only almost 3.
        if batch < 0.5 or abs(batch - round(batch)) > 1e-9 * batch:
            per = f" x {accelerators:,} accelerators" if self.kind == "weak" else ""
            raise InputError(
                f"batch: {self.batch:g}{per} is not a whole number of sequences",
                hint="choose a batch that is whole at every size",
            )
        return round(batch)

    def at(self, cluster: Cluster) -> Workload:
        """Return the workload of one cluster at its size."""
        return Workload(
            sequence=self.sequence,
            global_batch=self.global_batch(cluster.accelerators),
            precision=self.precision or default_precision(cluster),
            tokens=self.tokens,
        )


def default_precision(cluster: Cluster) -> Precision:
    """Choose bf16, or fp16 on chips that came before it."""
    peaks = cluster.accelerator.peak_flops
    return "fp16" if "bf16" not in peaks and "fp16" in peaks else "bf16"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read sizes: "8..2048" doubles from 8 as long as it stays within 2048; commas join parts.

    Args:
        text: For example "8..2048", "8,64,512" or "8..64,96".

    Returns:
        The sizes, rising, each once.

    Raises:
        InputError: If a part is no positive count, a range falls, or there are too many.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        size = _size(first, text)
        end = _size(last, text) if dots else size
        if end < size:
            raise InputError(
                f"sizes {text[:40]!r}: {size} is above {end}", hint=f"write {end}..{size}"
            )
        while size <= end:
            found.add(size)
            size *= 2
    if len(found) > MOST_SIZES:
        raise InputError(
            f"sizes {text[:40]!r} are {len(found)}, more than {MOST_SIZES}",
            hint="use a doubling range such as 8..2048",
        )
    return tuple(sorted(found))


def _size(text: str, whole: str) -> int:
    try:
        size = parse_count(text.strip())
    except InputError as error:
        raise InputError(
            f"sizes {whole[:40]!r}: {text.strip()[:20]!r} is no count",
            hint="for example 8..2048 or 8,64,512",
        ) from error
    if not 1 <= size <= MOST:
        raise InputError(
            f"sizes {whole[:40]!r}: {text.strip()[:20]} must lie between 1 and {MOST:,}",
            hint="for example 8..2048",
        )
    return size
