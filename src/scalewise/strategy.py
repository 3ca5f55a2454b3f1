"""Parallelization strategies, and their one-string form for commands, tables and file names.

    s = parse_strategy("fsdp256-tp2-pp4-mb2")
    s.tp, s.dp_shard            # 2, 256
    str(s)                      # 'fsdp256-tp2-pp4-mb2'

Tokens, joined by `-`, in any order:

    ddp8                 replicas with all-reduced gradients
    zero1x64 zero2x64    optimizer (and gradient) shards; zero1x4x16: 4 replicas of 16 shards
    fsdp64               fully sharded (ZeRO-3);  hsdp4x64: 4 replicas of groups of 64 shards
    tp8  nosp            tensor parallel, with sequence parallelism unless `nosp`
    cp4  cp4ag           context parallel: ring, or all-gather of keys and values
    pp8 v4               pipeline stages, virtual stages (model chunks) per stage
    gpipe 1f1b interleaved zbh1 zbv       pipeline schedule (1f1b, or interleaved when v > 1)
    first3 last2         layers of the first and last stage when they differ from the rest
    ep8 etp2             experts over 8 ranks; each of them split over 2 (tensor parallel)
    mb2 ga16             micro-batch size; gradient accumulation steps (by default derived)
    acfull ac1of4        activation recompute: whole blocks, all of them or 1 of 4; none if absent
    acattn acop acsel    attention alone; every other matmul; the selective one of the software
    acnorm aclatent      norms; up-projections of latent attention; the activation of experts;
    acact acmlp          dense MLPs: modules that are recomputed besides
    tilemlp8             dense MLPs in 8 tiles of the sequence, recomputed tile by tile in backward
    mics4x64             HSDP with replicas synchronized once per step, hierarchical all-gathers
    synconce hiergather  the two alone
    hpz8 qwz qgz         ZeRO++: backward all-gathers in groups of 8; weights gathered in int8,
                         gradients reduced in int4
    reduceeach reduceonce bucket25         gradients reduced after every micro-batch or once per
                         step; buckets of 25 MiB (DDP, ZeRO-1/2)
    offopt offparam      offload to host memory: optimizer state and gradients (updated by the
    offact offnvme       CPU), parameters (FSDP), activations; the former two to NVMe instead
    noreshard pf2        FSDP: keep parameters after forward; blocks all-gathered ahead (default 1)
    bf16 fp16 fp8 fp8row fp8block         precision, if it should differ from the workload's: scales
    mxfp8 nvfp4 tf32 fp32                 per tensor, row or block; 32 bits everywhere
    fp8attn gatherfp8                     attention in fp8; all-gathers of parameters in fp8
    compiled eager       if it should differ from the software stack's default
    reducebf16 reducefp32                 precision of the gradient reduction, likewise
    nodpoverlap notpoverlap noppoverlap noepoverlap      turn an overlap off
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.offload import OFFLOAD_TOKENS, check_offload, joined, offloads_of
from scalewise.precision import PRECISIONS, Precision
from scalewise.recompute import (
    MODULE_TOKENS,
    MODULES,
    RECOMPUTE_TOKENS,
    check_modules,
    check_recompute,
    modules_of,
    recompute_of_token,
)
from scalewise.sharding import (
    COUNTS,
    FLAGS,
    check_variants,
    data_token,
    dropped,
    put_data_parallel,
    variant_tokens,
)
from scalewise.workload import Workload

Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zbh1", "zbv"]
Recompute: TypeAlias = str
"""A word of `RECOMPUTES`, or "KofN" for whole blocks, K of every N."""
ContextMethod = Literal["ring", "allgather"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")


class Strategy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parallelization: degrees, sharding, recompute, overlap."""

    dp_replicate: int = 1
    """Data-parallel replicas of a sharding group."""

    dp_shard: int = 1
    """Ranks over which `sharding` shards."""

    sharding: Sharding = "zero3"
    """What the `dp_shard` ranks shard: nothing (ddp), optimizer (zero1), plus gradients (zero2),
    plus parameters (zero3, which is FSDP; with dp_replicate > 1, HSDP)."""

    reshard_after_forward: bool = True
    """FSDP: free all-gathered parameters after forward and all-gather them again in backward."""

    prefetch: int = 1
    """FSDP: blocks that are all-gathered ahead; 0 exposes every all-gather."""

    tp: int = 1
    """Tensor-parallel degree."""

    sequence_parallel: bool = True
    """With tp > 1, split norms and residuals over the sequence (all-gather + reduce-scatter)."""

    cp: int = 1
    """Context-parallel degree: ranks that split one sequence."""

    cp_method: ContextMethod = "ring"
    """Exchange of keys and values between context-parallel ranks."""

    pp: int = 1
    """Pipeline stages."""

    virtual_stages: int = 1
    """Model chunks per pipeline stage (interleaving)."""

    schedule: Schedule = "1f1b"
    """Pipeline schedule."""

    first_stage_layers: int | None = None
    """Layers of the first stage, or None for the framework's default."""

    last_stage_layers: int | None = None
    """Layers of the last stage, or None for the framework's default."""

    ep: int = 1
    """Expert-parallel degree: ranks of a pipeline stage that share the experts of a layer."""

    etp: int = 1
    """Expert tensor-parallel degree: ranks that split every expert. The experts of a stage have a
    mesh of their own over its tp x cp x dp ranks: etp innermost, then ep, then replicas."""

    micro_batch: int = 1
    """Micro-batch size: sequences per data-parallel rank and pass."""

    num_microbatches: int | None = None
    """Gradient accumulation steps, or None to derive them from the global batch."""

    recompute: Recompute = "none"
    """Which activations are recomputed in backward: a word of `RECOMPUTES`, or "1of4" for whole
    blocks, 1 of every 4."""

    recompute_modules: str = ""
    """Modules that are recomputed besides: words of `MODULES` in order, joined by "+"."""

    mlp_tiles: int = 1
    """Tiles of the sequence in which dense MLPs are computed, and recomputed in backward; 1 for the
    whole sequence at once."""

    offload: str = ""
    """What is kept off the device: words of `offload.OFFLOADS` in order, joined by "+"."""

    precision: Precision | None = None
    """Matmul precision, or None for the workload's."""

    attention_precision: Literal["fp8"] | None = None
    """Precision of attention in forward, or None for 16 bits."""

    gather_precision: Literal["fp8", "int8"] | None = None
    """Precision of all-gathered parameters: fp8 of layers (FSDP, ZeRO-1/2), int8 of all (ZeRO++
    qwZ, dequantized where they arrive), or None for 16 bits."""

    compiled: bool | None = None
    """Compiled (fused, graph-launched) or eager, or None for the software stack's default."""

    reduce_precision: Literal["fp32", "bf16", "int4"] | None = None
    """Precision of the gradient reduction, or None for the software stack's default; int4 is ZeRO++
    qgZ: quantized, in two hops."""

    backward_shard: int | None = None
    """FSDP: ranks over which a second copy of the parameters is sharded for the all-gather of
    backward (ZeRO++ hpZ, FSDP2's reshard_after_forward = 8), or None for all."""

    replica_sync: Literal["once"] | None = None
    """HSDP: replicas reduce gradients once per step (MiCS), or None for as often as shards do."""

    hierarchical_gather: bool = False
    """FSDP: all-gather between domains on every rail at once, then inside the domain (MiCS)."""

    reduce_each: bool | None = None
    """Reduce gradients after every micro-batch, or once per step (no_sync), or None for the
    software stack's default."""

    bucket_mb: int | None = None
    """Size of a gradient bucket of DDP and ZeRO-1/2, MiB, or None for the software stack's."""

    overlap_dp: bool = True
    """Overlap data-parallel communication with compute."""

    overlap_tp: bool = True
    """Overlap tensor-parallel communication with compute as far as the stack can."""

    overlap_pp: bool = True
    """Overlap pipeline P2P sends with compute as far as the schedule can."""

    overlap_ep: bool = True
    """Overlap the all-to-all of experts with another micro-batch as far as the stack can."""

    def __post_init__(self) -> None:
        for field in _DEGREES:
            _check_count(field, getattr(self, field), 1, _MAX_COUNT)
        _check_count("prefetch", self.prefetch, 0, 64)
        for field, least in _OPTIONAL_COUNTS.items():
            if getattr(self, field) is not None:
                _check_count(field, getattr(self, field), least, _MAX_COUNT)
        for field, words in _CHOICES.items():
            value = getattr(self, field)
            if value not in words:
                known = [str(word) for word in words if word is not None]
                shown = value[:40] if isinstance(value, str) else type(value).__name__
                raise InputError(f"unknown {field} {shown}", hint=did_you_mean(shown, known))
        check_recompute(self.recompute)
        check_modules(self.recompute_modules)
        check_variants(self)
        check_offload(self.offload)
        if self.virtual_stages > 1 and self.pp == 1:
            raise InputError(
                f"virtual_stages = {self.virtual_stages} needs a pipeline, but pp = 1",
                hint="add pp2 or more, or drop the v token",
            )
        if self.sharding == "ddp" and self.dp_shard > 1:
            raise InputError(
                f"dp_shard = {self.dp_shard} needs sharding zero1, zero2 or zero3, not ddp",
                hint=f"ddp{self.dp_shard}, or zero1x{self.dp_shard}",
            )
        if self.schedule == "interleaved" and self.virtual_stages == 1:
            raise InputError(
                "schedule = interleaved needs virtual_stages of at least 2",
                hint="for example pp4-v2-interleaved",
            )

    @property
    def data_parallel(self) -> int:
        """Ranks with different data: dp_replicate x dp_shard."""
        return self.dp_replicate * self.dp_shard

    @property
    def fully_sharded(self) -> bool:
        """Whether parameters are sharded over several ranks; one rank shards nothing."""
        return self.sharding == "zero3" and self.dp_shard > 1

    @property
    def accelerators(self) -> int:
        """Product of all degrees: the GPUs that it needs."""
        return self.dp_replicate * self.dp_shard * self.tp * self.cp * self.pp

    def __str__(self) -> str:
        return format_strategy(self)

    def with_(self, **changes: object) -> Strategy:
        """Return a copy with some fields changed, checked again.

        Variants that only some sharding has go with it.
        """
        for name in changes:
            if name not in self.__struct_fields__:
                raise InputError(
                    f"Strategy has no field {name!r}",
                    hint=did_you_mean(name, self.__struct_fields__),
                )
        gone = dropped(changes, self)
        return Strategy(**{**msgspec.structs.asdict(self), **gone, **changes})

    def check_mesh(self, accelerators: int) -> None:
        """Check that the degrees multiply to the number of accelerators.

        Raises:
            InputError: Naming all factors.
        """
        if self.accelerators != accelerators:
            factors = " x ".join(
                f"{name} {getattr(self, name)}"
                for name in ("dp_replicate", "dp_shard", "tp", "cp", "pp")
            )
            per_replica = self.tp * self.cp * self.pp
            fits = accelerators % per_replica == 0
            hint = (
                f"with tp x cp x pp = {per_replica}, dp_replicate x dp_shard must be "
                f"{accelerators // per_replica}"
                if fits
                else f"tp x cp x pp = {per_replica} does not divide {accelerators}"
            )
            raise InputError(
                f"strategy {self} needs {factors} = {self.accelerators} GPUs, "
                f"but the cluster has {accelerators}",
                hint=hint,
            )

    def microbatches_of(self, workload: Workload) -> int:
        """Return the gradient accumulation steps that reach exactly the global batch.

        Raises:
            InputError: If micro-batch size x data-parallel ranks does not divide the global batch,
                or given accumulation steps do not reach it.
        """
        per_micro_step = self.micro_batch * self.data_parallel
        if workload.global_batch % per_micro_step:
            raise InputError(
                f"global_batch = {workload.global_batch} is not a multiple of micro_batch "
                f"{self.micro_batch} x data-parallel ranks {self.data_parallel} = {per_micro_step}",
                hint="change the micro-batch, the data-parallel degree or the global batch",
            )
        steps = workload.global_batch // per_micro_step
        if self.num_microbatches is not None and self.num_microbatches != steps:
            raise InputError(
                f"num_microbatches = {self.num_microbatches} gives a global batch of "
                f"{self.num_microbatches * per_micro_step}, not {workload.global_batch}",
                hint=f"use ga{steps}, or leave ga out",
            )
        return steps


_DEGREES = (
    "dp_replicate", "dp_shard", "tp", "cp", "pp", "virtual_stages", "ep", "etp", "micro_batch",
    "mlp_tiles",
)  # fmt: skip

_OPTIONAL_COUNTS = {
    "num_microbatches": 1, "first_stage_layers": 1, "last_stage_layers": 1, "backward_shard": 2,
    "bucket_mb": 1,
}  # fmt: skip
"""Counts that may be absent, with the smallest value of each."""

_MAX_COUNT = 2**22
"""Largest count: larger than any cluster, and exact in floating point."""

_CHOICES: dict[str, tuple[object, ...]] = {
    "sharding": get_args(Sharding),
    "schedule": get_args(Schedule),
    "cp_method": get_args(ContextMethod),
    "precision": (None, *get_args(Precision)),
    "attention_precision": (None, "fp8"),
    "gather_precision": (None, "fp8", "int8"),
    "compiled": (None, True, False),
    "reduce_precision": (None, "fp32", "bf16", "int4"),
    "replica_sync": (None, "once"),
    "reduce_each": (None, True, False),
    **dict.fromkeys(
        (
            "reshard_after_forward",
            "sequence_parallel",
            "hierarchical_gather",
            "overlap_dp",
            "overlap_tp",
            "overlap_pp",
            "overlap_ep",
        ),
        (True, False),
    ),
}


def _check_count(field: str, value: object, minimum: int, maximum: int) -> None:
    """Check that a value is a whole number in range."""
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
        return
    shown = value if isinstance(value, int | float) and abs(value) < 1e15 else type(value).__name__
    raise InputError(
        f"{field} = {shown} must be a whole number from {minimum} to {maximum}",
        hint=f"for example {field} = {max(minimum, 1)}",
    )


_FLAGS: dict[str, tuple[str, object]] = {
    "nosp": ("sequence_parallel", False),
    "noreshard": ("reshard_after_forward", False),
    **{token: ("recompute", kind) for token, kind in RECOMPUTE_TOKENS.items()},
    "compiled": ("compiled", True),
    "eager": ("compiled", False),
    "reducebf16": ("reduce_precision", "bf16"),
    "reducefp32": ("reduce_precision", "fp32"),
    "nodpoverlap": ("overlap_dp", False),
    "notpoverlap": ("overlap_tp", False),
    "noppoverlap": ("overlap_pp", False),
    "noepoverlap": ("overlap_ep", False),
    **{name: ("schedule", name) for name in SCHEDULES},
    **{name: ("precision", name) for name in PRECISIONS},
    "fp8attn": ("attention_precision", "fp8"),
    "gatherfp8": ("gather_precision", "fp8"),
    **FLAGS,
}

COUNT_TOKENS = {
    "tp": "tp", "pp": "pp", "v": "virtual_stages", "ep": "ep", "etp": "etp", "mb": "micro_batch",
    "ga": "num_microbatches", "pf": "prefetch", "first": "first_stage_layers",
    "last": "last_stage_layers", "tilemlp": "mlp_tiles", **COUNTS,
}  # fmt: skip
"""Counts by the letters that begin their token."""

_NUMBER = "([0-9]{1,9})"
_DATA_PARALLEL = re.compile(f"(ddp|zero1x|zero2x|fsdp|hsdp|mics|zero3x|dp){_NUMBER}(?:x{_NUMBER})?")
_CONTEXT = re.compile(f"cp{_NUMBER}(ag|ring)?")
_COUNT = re.compile(f"([a-z]+){_NUMBER}")


def parse_strategy(text: str) -> Strategy:
    """Parse a strategy.

    Args:
        text: For example "fsdp256-tp2-pp4-mb2".

    Returns:
        The strategy; `str()` of it returns the canonical text.

    Raises:
        InputError: On an unknown or repeated token.
    """
    fields: dict[str, object] = {}

    def put(name: str, value: object, token: str) -> None:
        if name in fields:
            raise InputError(
                f"strategy {text[:80]}: {name} is set twice, at {token}", hint="keep one of the two"
            )
        fields[name] = value

    for token in text.strip().lower().split("-"):
        if token in _FLAGS:
            put(*_FLAGS[token], token)
        elif token in MODULE_TOKENS:
            again = [*modules_of(str(fields.pop("recompute_modules", ""))), MODULE_TOKENS[token]]
            fields["recompute_modules"] = "+".join(each for each in MODULES if each in again)
        elif token in OFFLOAD_TOKENS:
            kept = offloads_of(str(fields.pop("offload", "")))
            fields["offload"] = joined([*kept, OFFLOAD_TOKENS[token]])
        elif match := _DATA_PARALLEL.fullmatch(token):
            kind, first, second = match.groups()
            put_data_parallel(kind, int(first), int(second) if second else None, put, token)
        elif kind_ := recompute_of_token(token):
            put("recompute", kind_, token)
        elif match := _CONTEXT.fullmatch(token):
            put("cp", int(match[1]), token)
            put("cp_method", "allgather" if match[2] == "ag" else "ring", token)
        elif (match := _COUNT.fullmatch(token)) and match[1] in COUNT_TOKENS:
            put(COUNT_TOKENS[match[1]], int(match[2]), token)
        else:
            known = [
                *_FLAGS,
                *MODULE_TOKENS,
                *OFFLOAD_TOKENS,
                *COUNT_TOKENS,
                "ddp",
                "zero1x",
                "zero2x",
                "fsdp",
                "hsdp",
                "mics",
                "cp",
                "ac1of",
            ]
            raise InputError(
                f"strategy {text[:80]}: unknown part {token[:40]!r}",
                hint=did_you_mean(token[:40].rstrip("0123456789"), known)
                + " (for example fsdp256-tp2-pp4-mb2)",
            )
    if "schedule" not in fields and fields.get("virtual_stages", 1) != 1:
        fields["schedule"] = "interleaved"
    return Strategy(**fields)  # type: ignore[arg-type]


def format_strategy(strategy: Strategy) -> str:
    """Return the canonical text: degrees first, then fields that differ from their defaults."""
    s = strategy
    parts = [data_token(s)]
    if s.tp > 1:
        parts.append(f"tp{s.tp}")
    if not s.sequence_parallel:
        parts.append("nosp")
    if s.cp > 1 or s.cp_method != "ring":
        parts.append(f"cp{s.cp}" + ("ag" if s.cp_method == "allgather" else ""))
    if s.pp > 1:
        parts.append(f"pp{s.pp}")
    if s.virtual_stages > 1:
        parts.append(f"v{s.virtual_stages}")
    if s.schedule != ("interleaved" if s.virtual_stages > 1 else "1f1b"):
        parts.append(s.schedule)
    if s.first_stage_layers is not None:
        parts.append(f"first{s.first_stage_layers}")
    if s.last_stage_layers is not None:
        parts.append(f"last{s.last_stage_layers}")
    parts += [f"{name}{degree}" for name, degree in (("ep", s.ep), ("etp", s.etp)) if degree > 1]
    parts.append(f"mb{s.micro_batch}")
    if s.num_microbatches is not None:
        parts.append(f"ga{s.num_microbatches}")
    if s.recompute != "none":
        tokens = {kind: token for token, kind in RECOMPUTE_TOKENS.items()}
        parts.append(tokens.get(s.recompute) or f"ac{s.recompute}")
    again = modules_of(s.recompute_modules)
    parts += [token for token, module in MODULE_TOKENS.items() if module in again]
    if s.mlp_tiles > 1:
        parts.append(f"tilemlp{s.mlp_tiles}")
    parts += [f"off{word}" for word in offloads_of(s.offload)]
    if not s.reshard_after_forward:
        parts.append("noreshard")
    if s.prefetch != 1:
        parts.append(f"pf{s.prefetch}")
    if s.precision is not None:
        parts.append(s.precision)
    if s.attention_precision is not None:
        parts.append(f"{s.attention_precision}attn")
    if s.gather_precision == "fp8":
        parts.append("gatherfp8")
    if s.compiled is not None:
        parts.append("compiled" if s.compiled else "eager")
    if s.reduce_precision in ("bf16", "fp32"):
        parts.append(f"reduce{s.reduce_precision}")
    parts += variant_tokens(s)
    for field in ("dp", "tp", "pp", "ep"):
        if not getattr(s, f"overlap_{field}"):
            parts.append(f"no{field}overlap")
    return "-".join(parts)
