"""One question: what every command, the web UI, studies, plan files and Python ask.

    Question(model="llama-3-70b", on="dgx-h100", gpus=256)

Its fields are the flags of the command line, the keys of plan files, the schema of the API and the
state in an address: a field added here, with its docstring, is there in all of them. Values are the
words people write ("4k", "800Gbit/s"); `ask.resolve` reads them and chooses what is missing. This
file imports only `errors` and `fields` of scalewise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.fields import field_docs

Objective = Literal["time", "tokens", "cost", "energy", "memory"]

MAX_SETS, MAX_LENGTH = 64, 200
"""Overrides of one question, and characters of a word."""


def words(metavar: str, *, unit: str = "", default: str = "", **names: str) -> msgspec.Meta:
    """Describe a field that is written as words.

    Args:
        metavar: What stands for the value in help texts.
        unit: Kind of quantity (`scalewise.units`); empty for names.
        default: What is chosen where nothing is said.
        **names: Its `flag`, and its `key` in an address, where they differ from the field's name;
            `aside`, the one command that has the flag.
    """
    extra = {"metavar": metavar, "unit": unit, "default": default, **names}
    return msgspec.Meta(min_length=1, max_length=MAX_LENGTH, extra=extra)


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, a cluster, a batch, how the work is split, and what is asked to be different."""

    model: Annotated[str, words("MODEL", default="llama-2-7b", flag="MODEL")] = "llama-2-7b"
    """Model: name in the catalog, Hugging Face config.json or its directory, or .toml file."""
    on: Annotated[str, words("CLUSTER", default="dgx-h100")] = "dgx-h100"
    """Cluster or accelerator: name in the catalog, or .toml file."""
    gpus: (
        Annotated[str, words("N", unit="count", default="the strategy's or the cluster's", key="n")]
        | (Annotated[int, msgspec.Meta(ge=1)])
        | None
    ) = None
    """Number of GPUs (chips on TPUs)."""
    node: (
        Annotated[str, words("N", unit="count", default="the cluster's")]
        | (Annotated[int, msgspec.Meta(ge=1)])
        | None
    ) = None
    """GPUs per node, which share its scale-up links and its network."""
    network: Annotated[str, words("NET", default="the cluster's")] | None = None
    """Network of one node: 100GbE, 25GbE-tcp, 8x400G-ib, 4x200G-roce, 3.2GB/s-tcp, efa or tcp."""
    strategy: Annotated[str, words("S", default="best of the usual ones that very likely fit")] | (
        None
    ) = None
    """Strategy, such as fsdp256-tp2-pp4-mb2; without sizes, such as fsdp-tp2; or best."""
    seq: (
        Annotated[str, words("N", unit="count", default="4096")]
        | (Annotated[int, msgspec.Meta(ge=1)])
        | None
    ) = None
    """Sequence length, tokens."""
    batch: (
        Annotated[str, words("N", unit="count", default="about 4M tokens")]
        | (Annotated[int, msgspec.Meta(ge=1)])
        | None
    ) = None
    """Global batch, sequences per step over all GPUs; with a unit of tokens, such as 4Mtok."""
    precision: Annotated[str, words("P", default="bf16")] | None = None
    """Precision of GEMMs: bf16, fp16, fp8, fp8row, fp8block, mxfp8, nvfp4, tf32 or fp32."""
    imbalance: (
        Annotated[float, msgspec.Meta(ge=1, le=1024, extra={"metavar": "X", "default": "1"})] | None
    ) = None
    """Tokens of the busiest expert-parallel rank over the mean; 1 for balanced routing."""
    capacity: (
        Annotated[
            float, msgspec.Meta(ge=0.1, le=1024, extra={"metavar": "X", "default": "dropless"})
        ]
        | None
    ) = None
    """Capacity factor of experts, which drop tokens above it and are padded up to it."""
    optimizer: Annotated[str, words("NAME", default="adamw")] | None = None
    """Optimizer: adamw, adamw-bf16, adamw-8bit, paged-adamw-8bit, adafactor, sgd, momentum, lion,
    muon or shampoo, or .toml file."""
    weights: Literal["mixed", "bf16", "fp32"] | None = None
    """Stored parameters: 16 bits with a 32-bit master copy, bf16 alone, or fp32 alone."""
    tuning: Annotated[str, words("T", default="full")] | None = None
    """What is trained: full, or adapters of a frozen model: lora16, lora16-attn, lora8-qv, and
    qlora64 with the model in 4 bits."""
    loss: Literal["full", "chunked", "fused"] | None = None
    """Loss: all logits at once, in chunks of the sequence, or fused with the LM head."""
    lengths: Annotated[str, words("L", default="one document per sequence")] | None = None
    """Lengths of documents: 600, 100..2000, lognormal:mean=600,sigma=0.8, or a file of lengths."""
    batching: Literal["packed", "padded", "bucketed"] | None = None
    """Documents per sequence: packed, or one padded to the sequence or to its micro-batch."""
    stack: Annotated[str, words("NAME", default="follows strategy and device")] | None = None
    """Software stack or framework: name (see `scalewise stacks`), or .toml file."""
    tokens: (
        Annotated[str, words("N", unit="tokens")] | (Annotated[float, msgspec.Meta(gt=0)]) | None
    ) = None
    """Token budget of the whole run, such as 15T."""
    goodput: Annotated[str, words("KEY=VALUE,...", default="published rates, with --tokens")] | (
        None
    ) = None
    """Failures and checkpoints of the whole run: off, or rate=3.8e-3/node-day, restart=5min,
    checkpoint=20s, interval=30min, spares=2, async, and others."""
    critical_batch: Annotated[str, words("BATCH", default="off")] | None = None
    """Critical batch of the optimizer: laws, or measured, such as 4Mtok or 0.8Mtok@300B,20%."""
    price: (
        Annotated[str, words("USD", unit="dollars_per_hour", default="the catalog's")]
        | (Annotated[float, msgspec.Meta(ge=0)])
        | None
    ) = None
    """Price of one GPU for an hour, dollars."""
    region: Annotated[str, words("REGION", default="world", aside="plan")] | None = None
    """Region of the electricity: world, us, uk, france, germany, china, india, japan and others."""
    own: Annotated[str, words("OWN", aside="plan")] | None = None
    """Ownership beside rent: on, or purchase=43000,years=4,utilization=0.8,upkeep=0.05,
    interest=0.08,kwh=0.08."""
    deadline: Annotated[str, words("T", aside="plan")] | None = None
    """Time that the run of --tokens may take, such as 21d."""
    budget: Annotated[str, words("USD", aside="plan")] | None = None
    """Dollars that the run of --tokens may cost, such as 1.5M."""
    pue: (
        Annotated[float, msgspec.Meta(ge=1, le=10, extra={"metavar": "X", "default": "catalog"})]
        | None
    ) = None
    """Power usage effectiveness of the facility, facility power over IT power."""
    power_cap: Annotated[str, words("W", unit="watts", default="TDP", key="cap")] | None = None
    """Power limit per GPU, such as 500W."""
    algorithm: Literal["auto", "ring", "tree", "pat", "hierarchical"] | None = None
    """Collective algorithm (NCCL_ALGO)."""
    protocol: Literal["auto", "ll", "ll128", "simple"] | None = None
    """Collective protocol (NCCL_PROTO)."""
    sets: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...],
        msgspec.Meta(
            max_length=MAX_SETS, extra={"metavar": "KEY=VALUE", "flag": "--set", "key": "set"}
        ),
    ] = ()
    """Override of any field, such as cluster.scale_out_bandwidth=800Gbit/s. Repeatable."""
    force: Annotated[bool, msgspec.Meta(extra={"metavar": ""})] = False
    """Overrides beyond physical bounds, such as the peak of the chip."""
    fit: (
        Annotated[float, msgspec.Meta(gt=0, lt=1, extra={"metavar": "P", "default": "0.9"})] | None
    ) = None
    """Chance to fit into memory that is demanded of a chosen strategy."""
    by: Objective = "time"
    """Objective of a chosen strategy: time, tokens, cost, energy or memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a question, as doors show it."""

    name: str
    flag: str
    """On the command line."""
    metavar: str
    help: str
    """What it is, one sentence without a full stop."""
    default: str
    """What is chosen where nothing is said; empty if nothing is."""
    unit: str
    """Kind of quantity; empty for words."""
    key: str
    """In the address of the web UI."""
    number: bool
    """Whether it is a plain number without a unit."""
    choices: tuple[str, ...]
    """Words it may be; empty for any."""
    repeated: bool
    aside: str = ""
    """The one command with this flag; empty for a part of every question."""
    switch: bool = False
    """Whether it is a flag without a value."""


@cache
def question_fields(aside: str = "") -> dict[str, Field]:
    """The fields of a question by name, in order.

    Args:
        aside: Command whose own fields are wanted, too; empty for the parts of every question.
    """
    docs, hints = field_docs(Question), get_type_hints(Question, include_extras=True)
    found = {name: _field(name, hints[name], docs[name]) for name in Question.__struct_fields__}
    return {name: field for name, field in found.items() if field.aside in ("", aside)}


def _field(name: str, hint: Any, doc: str) -> Field:
    """Read what a type and a docstring say of a field."""
    extra: dict[str, Any] = {}
    choices: tuple[str, ...] = ()
    for each in _members(hint):
        if get_origin(each) is Literal:
            choices = get_args(each)
        for meta in getattr(each, "__metadata__", ()):
            extra |= meta.extra or {}
    return Field(
        name=name,
        flag=extra.get("flag", "--" + name.replace("_", "-")),
        metavar=extra.get("metavar", "|".join(choices)),
        help=doc.rstrip("."),
        default=extra.get("default", ""),
        unit=extra.get("unit", ""),
        key=extra.get("key") or name,
        number=str not in _types(hint) and float in _types(hint),
        choices=choices,
        repeated=name == "sets",
        aside=extra.get("aside", ""),
        switch=bool in _types(hint),
    )


def _types(hint: Any) -> list[Any]:
    return [getattr(each, "__origin__", each) for each in _members(hint)]


def _members(hint: Any) -> list[Any]:
    """The members of a union, or the type itself."""
    members = get_args(hint) if get_origin(hint) not in (Literal, None) else ()
    if hasattr(hint, "__metadata__"):
        return [hint]
    return list(members) or [hint]


_SURROGATE = re.compile("[\ud800-\udfff]")


def question_from(values: Mapping[str, Any]) -> Question:
    """Read a question from plain values; None counts as not given.

    Raises:
        InputError: If a field does not exist, or a value cannot be.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name in given:
        if name not in Question.__struct_fields__:
            hint = did_you_mean(name, Question.__struct_fields__)
            raise InputError(f"a question has no field `{name}`", hint=hint, field=name)
        texts = given[name] if isinstance(given[name], list | tuple) else (given[name],)
        # A byte of a command line that is not UTF-8 arrives as half a surrogate pair.
        if any(isinstance(text, str) and _SURROGATE.search(text) for text in texts):
            raise InputError(f"{name}: {given[name]!r:.60} is not Unicode text", field=name)
    try:
        return msgspec.convert(given, Question)
    except msgspec.ValidationError as error:
        raise refused(str(error), Question.__struct_fields__) from None


def refused(message: str, known: tuple[str, ...]) -> InputError:
    """Turn what msgspec says of a value into a sentence that names the field.

    Args:
        message: Of its `ValidationError`.
        known: Fields there are, for a hint where one is unknown.
    """
    place = re.search(r"`\$\.?(.*?)`", message)
    field = place[1] if place else ""
    unknown = re.search(r"unknown field `(.*?)`", message)
    hint = None
    if unknown:
        field = f"{field}.{unknown[1]}".lstrip(".")
        hint = did_you_mean(unknown[1], known)
    text = re.sub(r" - at `.*`$", "", message)
    return InputError(f"{field}: {text}" if field else text, hint=hint, field=field or None)
