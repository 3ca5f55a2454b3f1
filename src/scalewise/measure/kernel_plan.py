"""Plan of a sweep of kernels: the shapes of a model under a strategy.

    plan = plan_kernels(load_model("tiny"), parse_strategy("tp2-mb2"), seq_len=256, dtype="fp32")
    plan.gemms[0], plan.attention

Plain data, without torch. GEMMs are those of the decoder that is trained here: separate query, key
and value projections, each as forward, dgrad and wgrad. Experts are grouped GEMMs of balanced rows.
"""

from __future__ import annotations

import msgspec

from scalewise.errors import InputError
from scalewise.model import Model
from scalewise.strategy import Strategy

STREAM_BYTES = 2**28
"""Size of the buffer that is copied: beyond every cache."""


class Gemm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One matrix product C[m, n] = A[m, k] B[k, n]."""

    m: int
    """Rows."""
    n: int
    """Columns."""
    k: int
    """Depth."""
    role: str
    """Whose product it is: "wq forward", "head weight"."""
    groups: int = 1
    """Products of that shape in one kernel: the experts of a rank."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """What tells products apart."""
        return self.groups, self.m, self.n, self.k


class Attention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One causal attention."""

    batch: int
    """Sequences."""
    heads: int
    """Query heads of a rank."""
    seq_len: int
    """Tokens."""
    head_dim: int
    """Width of a head."""


class Elementwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a block streams through memory: two norms, two additions, rotary, the activation."""

    tokens: int
    """Rows."""
    hidden: int
    """Width of the residual stream."""
    query: int
    """Width of all query heads of a rank."""
    key_value: int
    """Width of all key heads of a rank."""
    ffn: int
    """Width of the MLP of a rank."""
    gated: bool
    """Whether the activation multiplies two of them."""
    head_dim: int
    """Width of a head."""


class Loss(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Softmax and loss over logits."""

    tokens: int
    """Rows."""
    vocab: int
    """Columns."""


class KernelPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep over kernels."""

    dtype: str
    """Of operands: "bf16" or "fp32"."""
    gemms: list[Gemm] = []
    """Matrix products."""
    attention: list[Attention] = []
    """Attention, forward and backward."""
    elementwise: list[Elementwise] = []
    """Memory-bound work of a block."""
    losses: list[Loss] = []
    """Loss, forward and backward."""
    optimizer: list[int] = []
    """AdamW steps over so many parameters."""
    stream_bytes: list[int] = []
    """Copies of so many bytes."""
    launch: bool = True
    """Whether to time launches of kernels that do nothing."""
    iters: int = 20
    """Samples of each kernel on each rank; long ones get fewer."""
    warmup: int = 3
    """Calls that are not counted."""
    budget: float = 0.3
    """Seconds that the samples of one kernel may take, roughly."""

    def __post_init__(self) -> None:
        if self.dtype not in ("bf16", "fp32"):
            raise InputError(f"dtype {self.dtype[:20]!r} is not timed", hint="use bf16 or fp32")
        if self.iters < 1 or self.warmup < 0:
            raise InputError(f"iters = {self.iters} and warmup = {self.warmup} make no sample")


def plan_kernels(
    model: Model, strategy: Strategy, *, seq_len: int, dtype: str, iters: int = 20
) -> KernelPlan:
    """The kernels of one step.

    Args:
        model: Whose shapes.
        strategy: How they are split: tp divides widths, cp tokens, the micro-batch multiplies; ep
            divides experts, etp their width.
        seq_len: Tokens per sequence.
        dtype: Of the operands.
        iters: Samples of each.

    Raises:
        InputError: If tp does not divide the heads, cp the sequence, ep the experts, or etp their
            width.
    """
    tp, cp, batch = strategy.tp, strategy.cp, strategy.micro_batch
    if model.heads % tp or model.ffn % tp:
        raise InputError(
            f"tp = {tp} does not divide the {model.heads} heads and ffn = {model.ffn} of "
            f"{model.name}"
        )
    if seq_len % cp:
        raise InputError(f"cp = {cp} does not divide the sequence of {seq_len} tokens")
    tokens = batch * seq_len // cp
    query = model.heads * model.head_dim // tp
    key_value = max(model.kv_heads // tp, 1) * model.head_dim
    ffn, hidden, vocab = model.ffn // tp, model.hidden, -(-model.vocab // tp)
    gemms = [
        *_products("wq", tokens, query, hidden),
        *_products("wk and wv", tokens, key_value, hidden),
        *_products("wo", tokens, hidden, query),
        *(_mlp_products("", model, tokens, ffn) if ffn else ()),
        *_products("head", tokens, vocab, hidden),
    ]
    # Every activation of a token, whichever block has the most.
    if model.moe is not None:
        experts, width = _expert_products(model, strategy, tokens)
        gemms += experts
        ffn = max(ffn, width)
    distinct: dict[tuple[int, ...], Gemm] = {}
    for gemm in gemms:
        distinct.setdefault(gemm.shape, gemm)
    return KernelPlan(
        dtype=dtype,
        gemms=list(distinct.values()),
        attention=[
            Attention(
                batch=batch, heads=model.heads // tp, seq_len=seq_len // cp,
                head_dim=model.head_dim,
            )
        ],
        elementwise=[
            Elementwise(
                tokens=tokens, hidden=hidden, query=query, key_value=key_value, ffn=ffn,
                gated=model.gated, head_dim=model.head_dim,
            )
        ],
        losses=[Loss(tokens=tokens, vocab=vocab)],
        optimizer=[int(model.layer_parameters) // tp],
        stream_bytes=[STREAM_BYTES],
        iters=iters,
    )  # fmt: skip


def _products(name: str, rows: int, n: int, k: int, groups: int = 1) -> list[Gemm]:
    """Forward, dgrad and wgrad of a product with a weight of n x k."""
    shapes = {"forward": (rows, n, k), "input": (rows, k, n), "weight": (n, k, rows)}
    return [
        Gemm(m=shape[0], n=shape[1], k=shape[2], role=f"{name} {role}", groups=groups)
        for role, shape in shapes.items()
    ]


def _mlp_products(prefix: str, model: Model, rows: int, width: int, groups: int = 1) -> list[Gemm]:
    """Products of an MLP, or of as many experts as there are groups."""
    first = f"{prefix}w1 and w3" if model.gated else f"{prefix}w1"
    return [
        *_products(first, rows, width, model.hidden, groups),
        *_products(f"{prefix}w2", rows, model.hidden, width, groups),
    ]


def _expert_products(model: Model, strategy: Strategy, tokens: int) -> tuple[list[Gemm], int]:
    """Products of router, routed and shared experts, and activations of a token, elements.

    Of the tokens x experts_per_token rows, an expert gets the same number from each of the
    ep x etp ranks that exchange them.
    """
    moe, ep, tp = model.moe, strategy.ep, strategy.tp
    etp = strategy.etp
    assert moe is not None
    if moe.experts % ep or moe.ffn % etp:
        raise InputError(
            f"ep = {ep} and etp = {etp} do not divide the {moe.experts} experts of {moe.ffn} of "
            f"{model.name}"
        )
    # Sequence parallelism leaves each tensor-parallel rank its part of the tokens.
    own = tokens // tp
    rows = max(own * moe.experts_per_token * ep * etp // moe.experts, 1)
    shared = moe.shared_experts * moe.shared_ffn // tp
    listed = [
        *_products("router", own, moe.experts, model.hidden),
        *_mlp_products("expert ", model, rows, moe.ffn // etp, moe.experts // ep),
        *(_mlp_products("shared ", model, tokens, shared) if shared else ()),
    ]
    return listed, moe.experts_per_token * moe.ffn // tp + shared


def join_plans(plans: list[KernelPlan]) -> KernelPlan:
    """Put the kernels of several models into one plan, each shape once."""
    first = plans[0]
    rows: dict[str, list[object]] = {}
    for field in ("gemms", "attention", "elementwise", "losses", "optimizer", "stream_bytes"):
        listed = [row for plan in plans for row in getattr(plan, field)]
        seen: dict[object, object] = {}
        for row in listed:
            shape = row.shape if isinstance(row, Gemm) else row
            seen.setdefault(shape, row)
        rows[field] = list(seen.values())
    return msgspec.structs.replace(first, **rows)
