"""Plan of a sweep of host time: minimal decoders with and without PyTorch's wrappers.

    plan = HostPlan()
    case_of(plan, "fsdp", wide=False, layers=2).job     # two ranks, next to no kernels or bytes

Plain data, without torch. What FSDP and DTensor take on the host is in no kernel and no collective.
Decoders of two depths separate a layer from what no layer holds, those of two widths host time from
copies of parameters.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from scalewise.model import Model
from scalewise.records.job import TrainJob
from scalewise.strategy import parse_strategy

Technique = Literal["plain", "fsdp", "tp"]

TECHNIQUES: tuple[Technique, ...] = get_args(Technique)

RANKS = 2
"""Ranks of a sweep: host time does not depend on their number."""

STRATEGIES: dict[Technique, str] = {"plain": "ddp1-mb1", "fsdp": "fsdp2-mb1", "tp": "tp2-mb1"}

SEQ_LEN = 32
"""Tokens of a sequence: a GEMM of them takes microseconds."""

VOCAB = 256


class HostPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep over minimal decoders."""

    layers: tuple[int, int] = (2, 6)
    """Depths."""
    narrow: tuple[int, int] = (64, 128)
    """Hidden size and width of the MLP at which parameters take no time."""
    wide: tuple[int, int] = (512, 1408)
    """The same at which FSDP's copies of parameters show."""
    iters: int = 20
    """Steps of each decoder; long ones get fewer."""
    warmup: int = 3
    """Steps that are not counted."""
    budget: float = 2.0
    """Seconds that the steps of one decoder may take, roughly."""


class HostCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decoder of a sweep."""

    technique: Technique
    """What wraps it."""
    wide: bool
    """Whether its parameters show."""
    job: TrainJob
    """One step of it; "plain" runs on each rank by itself."""


def cases_of(plan: HostPlan) -> list[HostCase]:
    """The decoders of a sweep; tensor parallelism copies no parameters."""
    return [
        case_of(plan, technique, wide=wide, layers=layers)
        for wide in (False, True)
        for technique in TECHNIQUES
        if not (wide and technique == "tp")
        for layers in plan.layers
    ]


def case_of(plan: HostPlan, technique: Technique, *, wide: bool, layers: int) -> HostCase:
    """One of them."""
    hidden, ffn = plan.wide if wide else plan.narrow
    model = Model(
        name=f"{'wide' if wide else 'narrow'}-{layers}", layers=layers, hidden=hidden, heads=4,
        kv_heads=2, ffn=ffn, gated=True, vocab=VOCAB, tied=False, positions="rotary", norm="rms",
    )  # fmt: skip
    strategy = parse_strategy(STRATEGIES[technique])
    job = TrainJob(
        model=model, strategy=strategy, seq_len=SEQ_LEN, global_batch=strategy.data_parallel,
        precision="fp32", steps=1, warmup=0,
    )  # fmt: skip
    return HostCase(technique=technique, wide=wide, job=job)
