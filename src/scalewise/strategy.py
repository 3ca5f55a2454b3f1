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
    ep8                  expert parallel (inside the data-parallel ranks)
    mb2 ga16             micro-batch size; gradient accumulation steps (by default derived)
    acfull ac1of4        activation recompute: whole blocks, all of them or 1 of 4; none if absent
    acattn acop acsel    attention alone; every other matmul; the selective one of the software
    noreshard pf2        FSDP: keep parameters after forward; blocks all-gathered ahead (default 1)
    bf16 fp16 fp8 mxfp8 nvfp4             precision, if it should differ from the workload's
    compiled eager       if it should differ from the software stack's default
    reducebf16 reducefp32                 precision of the gradient reduction, likewise
    nodpoverlap notpoverlap noppoverlap   turn an overlap off
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.workload import Precision, Workload

Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zbh1", "zbv"]
Recompute: TypeAlias = str
"""A word of `RECOMPUTES`, or "KofN" for whole blocks, K of every N."""
ContextMethod = Literal["ring", "allgather"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")

RECOMPUTES = {
    "none": "nothing",
    "selective": "what the software's selective mode repeats: one of the next two, or a policy",
    "attention": "the attention core alone, as Megatron-LM does",
    "op": "every other matmul and all memory-bound kernels, as torchtitan does",
    "full": "whole blocks",
}
"""Kinds of activation recompute by word, the least repeated work first. "1of4" is full recompute of
every fourth block."""

MAX_BLOCKS = 1023
"""Largest N of "KofN"."""


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
    """Expert-parallel degree, inside the data-parallel ranks."""

    micro_batch: int = 1
    """Micro-batch size: sequences per data-parallel rank and pass."""

    num_microbatches: int | None = None
    """Gradient accumulation steps, or None to derive them from the global batch."""

    recompute: Recompute = "none"
    """Which activations are recomputed in backward: a word of `RECOMPUTES`, or "1of4" for whole
    blocks, 1 of every 4."""

    precision: Precision | None = None
    """Matmul precision, or None for the workload's."""

    compiled: bool | None = None
    """Compiled (fused, graph-launched) or eager, or None for the software stack's default."""

    reduce_precision: Literal["fp32", "bf16"] | None = None
    """Precision of the gradient reduction, or None for the software stack's default."""

    overlap_dp: bool = True
    """Overlap data-parallel communication with compute."""

    overlap_tp: bool = True
    """Overlap tensor-parallel communication with compute as far as the stack can."""

    overlap_pp: bool = True
    """Overlap pipeline P2P sends with compute as far as the schedule can."""

    def __post_init__(self) -> None:
        for field in _DEGREES:
            _check_count(field, getattr(self, field), 1, _MAX_COUNT)
        _check_count("prefetch", self.prefetch, 0, 64)
        for field in ("num_microbatches", "first_stage_layers", "last_stage_layers"):
            if getattr(self, field) is not None:
                _check_count(field, getattr(self, field), 1, _MAX_COUNT)
        for field, words in _CHOICES.items():
            value = getattr(self, field)
            if value not in words:
                known = [str(word) for word in words if word is not None]
                shown = value[:40] if isinstance(value, str) else type(value).__name__
                raise InputError(f"unknown {field} {shown}", hint=did_you_mean(shown, known))
        _check_recompute(self.recompute)
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
        """Return a copy with some fields changed, checked again."""
        for name in changes:
            if name not in self.__struct_fields__:
                raise InputError(
                    f"Strategy has no field {name!r}",
                    hint=did_you_mean(name, self.__struct_fields__),
                )
        return Strategy(**{**msgspec.structs.asdict(self), **changes})

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
    "dp_replicate", "dp_shard", "tp", "cp", "pp", "virtual_stages", "ep", "micro_batch",
)  # fmt: skip

_MAX_COUNT = 2**22
"""Largest count: larger than any cluster, and exact in floating point."""

_CHOICES: dict[str, tuple[object, ...]] = {
    "sharding": get_args(Sharding),
    "schedule": get_args(Schedule),
    "cp_method": get_args(ContextMethod),
    "precision": (None, *get_args(Precision)),
    "compiled": (None, True, False),
    "reduce_precision": (None, "fp32", "bf16"),
    **dict.fromkeys(
        ("reshard_after_forward", "sequence_parallel", "overlap_dp", "overlap_tp", "overlap_pp"),
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


_BLOCKS = re.compile("([0-9]{1,4})of([0-9]{1,4})")


def recomputed_blocks(kind: str) -> tuple[int, int] | None:
    """Return (K, N) of a recompute of K of every N blocks, or None for the other kinds.

    >>> recomputed_blocks("1of4"), recomputed_blocks("full"), recomputed_blocks("op")
    ((1, 4), (1, 1), None)
    """
    if kind == "full":
        return 1, 1
    match = _BLOCKS.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def _check_recompute(kind: object) -> None:
    """Check that a value is a kind of recompute."""
    if isinstance(kind, str):
        if kind in RECOMPUTES:
            return
        blocks = recomputed_blocks(kind)
        if blocks is not None:
            if 1 <= blocks[0] < blocks[1] <= MAX_BLOCKS and kind == "{}of{}".format(*blocks):
                return
            raise InputError(
                f"recompute {kind} must be K of N blocks with 1 <= K < N <= {MAX_BLOCKS}",
                hint="for example 1of4; all blocks are `full`",
            )
    shown = kind[:40] if isinstance(kind, str) else type(kind).__name__
    known = [*RECOMPUTES, "1of4", "1of2"]
    raise InputError(f"unknown recompute {shown}", hint=did_you_mean(shown, known))


RECOMPUTE_TOKENS = {
    "acsel": "selective", "acattn": "attention", "acop": "op", "acfull": "full",
}  # fmt: skip
"""Kinds of recompute by their token in a strategy; blocks are "ac1of4"."""


def recompute_of_token(token: str) -> str | None:
    """Return the kind of recompute that a token of a strategy says, or None.

    >>> recompute_of_token("acop"), recompute_of_token("ac1of4"), recompute_of_token("tp8")
    ('op', '1of4', None)
    """
    if token in RECOMPUTE_TOKENS:
        return RECOMPUTE_TOKENS[token]
    return token[2:] if token.startswith("ac") and _BLOCKS.fullmatch(token[2:]) else None


def recompute_words(kind: str) -> str:
    """Return a kind of recompute in words, for launch lines and suggestions.

    >>> recompute_words("1of4"), recompute_words("op")
    ('full recompute of 1 in 4 blocks', 'op recompute')
    """
    if kind == "none":
        return "no recompute"
    blocks = recomputed_blocks(kind)
    if blocks is None or kind == "full":
        return f"{kind} recompute"
    return f"full recompute of {blocks[0]} in {blocks[1]} blocks"


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
    **{name: ("schedule", name) for name in SCHEDULES},
    **{name: ("precision", name) for name in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")},
}

_COUNTS = {
    "tp": "tp", "pp": "pp", "v": "virtual_stages", "ep": "ep", "mb": "micro_batch",
    "ga": "num_microbatches", "pf": "prefetch", "first": "first_stage_layers",
    "last": "last_stage_layers",
}  # fmt: skip

_NUMBER = "([0-9]{1,9})"
_DATA_PARALLEL = re.compile(f"(ddp|zero1x|zero2x|fsdp|hsdp|zero3x|dp){_NUMBER}(?:x{_NUMBER})?")
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
        elif match := _DATA_PARALLEL.fullmatch(token):
            kind, first, second = match.groups()
            _put_data_parallel(kind, int(first), int(second) if second else None, put, token)
        elif kind_ := recompute_of_token(token):
            put("recompute", kind_, token)
        elif match := _CONTEXT.fullmatch(token):
            put("cp", int(match[1]), token)
            put("cp_method", "allgather" if match[2] == "ag" else "ring", token)
        elif (match := _COUNT.fullmatch(token)) and match[1] in _COUNTS:
            put(_COUNTS[match[1]], int(match[2]), token)
        else:
            known = [*_FLAGS, *_COUNTS, "ddp", "zero1x", "zero2x", "fsdp", "hsdp", "cp", "ac1of"]
            raise InputError(
                f"strategy {text[:80]}: unknown part {token[:40]!r}",
                hint=did_you_mean(token[:40].rstrip("0123456789"), known)
                + " (for example fsdp256-tp2-pp4-mb2)",
            )
    if "schedule" not in fields and fields.get("virtual_stages", 1) != 1:
        fields["schedule"] = "interleaved"
    return Strategy(**fields)  # type: ignore[arg-type]


def _put_data_parallel(kind: str, first: int, second: int | None, put: object, token: str) -> None:
    """Return the three fields of a data-parallel token."""
    assert callable(put)
    if kind in ("ddp", "dp"):
        if second is not None:
            raise InputError(f"`{token}` takes one number", hint="for example ddp8")
        put("sharding", "ddp", token)
        put("dp_replicate", first, token)
        return
    if kind == "hsdp" and second is None:
        raise InputError(
            f"`{token}` needs replicas x shards", hint="for example hsdp4x64 for 4 replicas of 64"
        )
    put("sharding", {"zero1x": "zero1", "zero2x": "zero2"}.get(kind, "zero3"), token)
    put("dp_replicate", first if second is not None else 1, token)
    put("dp_shard", second if second is not None else first, token)


def format_strategy(strategy: Strategy) -> str:
    """Return the canonical text: degrees first, then fields that differ from their defaults."""
    s = strategy
    if s.sharding == "ddp":
        data = f"ddp{s.dp_replicate}"
    elif s.sharding == "zero3":
        hybrid = s.dp_replicate > 1
        data = f"hsdp{s.dp_replicate}x{s.dp_shard}" if hybrid else f"fsdp{s.dp_shard}"
    elif s.dp_replicate > 1:
        data = f"{s.sharding}x{s.dp_replicate}x{s.dp_shard}"
    else:
        data = f"{s.sharding}x{s.dp_shard}"
    parts = [data]
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
    if s.ep > 1:
        parts.append(f"ep{s.ep}")
    parts.append(f"mb{s.micro_batch}")
    if s.num_microbatches is not None:
        parts.append(f"ga{s.num_microbatches}")
    if s.recompute != "none":
        tokens = {kind: token for token, kind in RECOMPUTE_TOKENS.items()}
        parts.append(tokens.get(s.recompute) or f"ac{s.recompute}")
    if not s.reshard_after_forward:
        parts.append("noreshard")
    if s.prefetch != 1:
        parts.append(f"pf{s.prefetch}")
    if s.precision is not None:
        parts.append(s.precision)
    if s.compiled is not None:
        parts.append("compiled" if s.compiled else "eager")
    if s.reduce_precision is not None:
        parts.append(f"reduce{s.reduce_precision}")
    for field in ("dp", "tp", "pp"):
        if not getattr(s, f"overlap_{field}"):
            parts.append(f"no{field}overlap")
    return "-".join(parts)
