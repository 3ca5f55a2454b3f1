"""Requests of the web UI as structs: unknown keys, sizes and ranges are refused.

    question = decode(body, Question)
    question.model, question.gpus            # "llama-2-7b", "256"

A question is the `ask.question.Question` of every other door. Names are looked up in the catalog
and never opened as files: whoever reaches the server must not read the disk through it.
"""

from __future__ import annotations

import threading
from typing import Annotated, Literal, TypeVar

import msgspec

from scalewise.ask.question import Objective, Question, refused
from scalewise.errors import InputError
from scalewise.fields import field_docs
from scalewise.lengths import is_lengths_file
from scalewise.reliability import file_of

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
Strategy = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]

FIRST = Question(model="llama-2-7b", on="dgx-h100", gpus=256)
"""What is asked where nothing is said."""

T = TypeVar("T", bound=msgspec.Struct)


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Curves over sizes."""

    question: Question = FIRST
    """Model, cluster, sequence, batch: its size is marked on the curve."""
    sizes: Annotated[str, msgspec.Meta(min_length=1, max_length=80)] = "8..2048"
    """Accelerators: a doubling range, or a list."""
    kind: Literal["strong", "weak"] = "strong"
    """Strong: the batch stays. Weak: it grows with the cluster."""
    batch_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=65536)] | None = None
    """Sequences of one accelerator in weak scaling; left out, what the question has."""
    templates: Annotated[tuple[Strategy, ...], msgspec.Meta(min_length=1, max_length=6)] = (
        "best", "fsdp",
    )  # fmt: skip
    """Strategies without sizes; `best` is chosen at each size anew."""
    also: Annotated[tuple[Word, ...], msgspec.Meta(max_length=3)] = ()
    """Other clusters to compare with."""
    knee: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Marginal efficiency below which growing has a knee."""
    every: bool = False
    """Whether `best` is the best of all strategies, and not of the usual ones."""


class OverRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A curve over one quantity, or a map over two."""

    question: Question = FIRST
    """What is asked besides; the quantities replace its own values."""
    over: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...],
        msgspec.Meta(min_length=1, max_length=2),
    ] = ("network=100..3200Gbit/s",)
    """One or two quantities with their values, as `scale --over` takes them."""
    templates: Annotated[tuple[Strategy, ...], msgspec.Meta(min_length=1, max_length=6)] = (
        "best", "fsdp",
    )  # fmt: skip
    """Strategies without sizes; `best` is chosen at each value anew."""
    knee: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Fraction of the largest gain per doubling below which a gain is past the knee."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All strategies of one size."""

    question: Question = FIRST
    """What is asked; its strategy is compared with the winner."""
    by: Objective = "time"
    """What to make small."""
    top: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    """How many to list."""
    every: bool = False
    """Whether switching overlap off is tried as well, which never helps."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models, clusters and sizes as whole runs."""

    question: Question = FIRST
    """Models and clusters with commas between them, and sizes in `gpus`."""
    by: Literal["time", "tokens", "cost", "energy", "carbon", "memory"] | None = None
    """Order of the rows; left out, time, or with a limit cost."""
    meet: Literal["far-end", "prediction"] = "far-end"
    """What has to meet deadline and budget."""


class QueuedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of a queue."""

    name: Word
    """Unlike that of all others."""
    question: Question
    """The run; without `gpus` it takes the whole cluster."""
    after: Word | None = None
    """Run that it waits for."""
    earliest: Word | None = None
    """First day on which it may start, such as 2027-01-04."""


class QueueRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several runs on one cluster."""

    question: Question = FIRST
    """Cluster and its size, price, region and goodput."""
    runs: Annotated[tuple[QueuedRun, ...], msgspec.Meta(max_length=40)] = ()
    """In order of priority."""
    start: Word | None = None
    """First day; left out, today."""
    text: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    """Content of a plan file or of a queue file, whose runs come last."""


class StudyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the shipped studies."""

    name: Word
    """Which."""
    quick: bool = True
    """Only the ends of every axis: a first look."""


def decode(body: bytes, type_: type[T]) -> T:
    """Read a request.

    Raises:
        InputError: Naming the field, with a hint; `field` is set on the error.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=type_)
    except msgspec.ValidationError as error:
        raise refused(str(error), tuple(fields_of(type_))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the request is not JSON: {error}", hint="send a JSON object") from None


def fields_of(type_: type[msgspec.Struct]) -> list[str]:
    """The fields of a request and of the question inside it."""
    inner: tuple[str, ...] = ()
    if "question" in type_.__struct_fields__:
        inner = Question.__struct_fields__
    return [*type_.__struct_fields__, *inner]


_parsing = threading.Lock()


def docs_of(type_: type) -> dict[str, str]:
    """The strings under the fields of a class; `ast`, which reads them, is not for two threads."""
    with _parsing:
        return field_docs(type_)


def no_files(question: Question) -> None:
    """Refuse whatever the loaders of the command line would open as a file.

    Raises:
        InputError: Naming the field.
    """
    # A plan has models and clusters with commas between them.
    words: list[tuple[str, str]] = [
        (name, word)
        for name in ("model", "on", "stack", "optimizer")
        for word in (getattr(question, name) or "").split(",")
    ]
    for name, word in words:
        if _is_path(word) or "/" in word or "\\" in word:
            raise InputError(
                f"{name}: {word[:40]!r} is not a name of the catalog",
                hint="things of your own go into the folder $SCALEWISE_CATALOG",
            )
    if question.lengths is not None and is_lengths_file(question.lengths):
        raise InputError(
            f"lengths: {question.lengths[:40]!r} names a file",
            hint="for example 600, 100..2000 or lognormal:mean=600,sigma=0.8",
        )
    if (named := file_of(question.goodput)) is not None:
        raise InputError(
            f"goodput: {named[:40]!r} names a file",
            hint="for example rate=3.8e-3/node-day, or a name in $SCALEWISE_CATALOG",
        )
    for text in question.sets:
        key, _, value = text.partition("=")
        if key.strip() == "workload.goodput" and file_of(value) is not None:
            raise InputError(f"sets: {text[:60]!r} names a file", hint="give a catalog name")
        loads = key.strip() in ("cluster.accelerator", "cluster.fabric", "workload.lengths")
        if _is_path(value) or (loads and "/" in value):
            raise InputError(f"sets: {text[:60]!r} names a file", hint="give a catalog name")


def _is_path(word: str) -> bool:
    return word.strip().lower().endswith((".toml", ".json", ".csv", ".txt", ".tsv"))
