"""Numbers of GPUs of a scaling curve, and the batch at each of them.

    parse_sizes("8..2048")                            # (8, 16, 32, ..., 2048)
    rule = Rule(kind="weak", batch=2, seq_len=4096)   # two sequences per GPU
    rule.global_batch(1024)                           # 2048

A batch is counted in sequences, whatever their length: of two sequence lengths, steps of the longer
one train more tokens, and curves compare tokens/s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from scalewise.errors import InputError
from scalewise.precision import Precision
from scalewise.units import parse_count
from scalewise.workload import WORK, Work, Workload

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

MAX_SIZES = 64
"""Maximum sizes of one curve: more is a typing error, and no table shows it."""

MAX_GPUS = 2**22
"""Maximum number of GPUs: beyond any cluster, and the limit of a strategy."""


class Rule(Work, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batch of a step as the cluster grows: proportional (weak scaling) or constant (strong)."""

    kind: Literal["weak", "strong"]
    """Weak: the batch grows with the cluster. Strong: it is constant."""
    batch: float
    """Sequences per step: per GPU if weak, of all GPUs if strong."""
    seq_len: int
    """Tokens per sequence."""
    precision: Precision | None = None
    """Precision of GEMMs; None is bf16, or fp16 on chips without bf16."""

    def __post_init__(self) -> None:
        if self.kind not in ("weak", "strong"):
            raise InputError(f"unknown kind of scaling {self.kind}", hint="use weak or strong")
        if not 0 < self.batch <= 2**27:
            rule = f"must be at most {2**27:,}" if self.batch > 0 else "must be positive"
            raise InputError(f"batch = {self.batch:g} {rule}", hint="for example 2")
        # The workload checks everything else.
        self._workload(1, self.precision or "bf16")

    def global_batch(self, accelerators: int) -> int:
        """Return the sequences of a step on a number of accelerators.

        Raises:
            InputError: If that is not a whole number.
        """
        batch = self.batch * accelerators if self.kind == "weak" else self.batch
        # 0.3 x 10 is not exactly 3 in floating point.
        if batch < 0.5 or abs(batch - round(batch)) > 1e-9 * batch:
            per = f" x {accelerators:,} GPUs" if self.kind == "weak" else ""
            raise InputError(
                f"batch: {self.batch:g}{per} is not a whole number of sequences",
                hint="use a batch that is a whole number at every size",
            )
        return round(batch)

    def at(self, cluster: Cluster) -> Workload:
        """Return the workload of a step on a cluster."""
        batch = self.global_batch(cluster.accelerators)
        return self._workload(batch, self.precision or default_precision(cluster))

    def _workload(self, batch: int, precision: Precision) -> Workload:
        return Workload(
            seq_len=self.seq_len,
            global_batch=batch,
            precision=precision,
            **{name: getattr(self, name) for name in WORK},
        )


def default_precision(cluster: Cluster) -> Precision:
    """Return bf16, or fp16 on chips without bf16."""
    peaks = cluster.accelerator.peak_flops
    return "fp16" if "bf16" not in peaks and "fp16" in peaks else "bf16"


def parse_sizes(text: str, name: str = "--gpus") -> tuple[int, ...]:
    """Return numbers of GPUs: "8..2048" doubles, "64..256+32" adds, "8,64" lists.

    Args:
        text: For example "8..2048", "8,64,512", "8..64,96" or "64..256+32".
        name: Flag or field of the text, for errors.

    Returns:
        The numbers in ascending order, each once.

    Raises:
        InputError: If a number or an end of a range is wrong, or there are too many.
    """
    where = f"{name} {text[:40]}"
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = (each.strip() for each in part.partition(".."))
        if dots and not (first and last):
            end_name = "upper" if first else "lower"
            raise InputError(
                f"{where}: the range has no {end_name} end", hint="for example 8..2048"
            )
        last, plus, step = (each.strip() for each in last.partition("+"))
        size, added = _size(first, where), _size(step, where) if plus else 0
        end = _size(last, where) if dots else size
        if end < size:
            raise InputError(f"{where}: the range ends below its start", hint=f"{end}..{size}")
        while size <= end:
            found.add(size)
            size += added or size
            if len(found) > MAX_GPUS.bit_length() + MAX_SIZES:
                break
    if len(found) > MAX_SIZES:
        raise InputError(
            f"{where}: {len(found)} sizes, more than {MAX_SIZES}", hint="for example 8..2048"
        )
    return tuple(sorted(found))


def _size(text: str, where: str) -> int:
    try:
        size = parse_count(text)
    except InputError as error:
        raise InputError(
            f"{where}: {text[:20]!r} is not a number of GPUs",
            hint="for example 8..2048 or 8,64,512",
        ) from error
    if not 1 <= size <= MAX_GPUS:
        raise InputError(
            f"{where}: {text[:20]} must be between 1 and {MAX_GPUS:,}", hint="for example 8..2048"
        )
    return size
