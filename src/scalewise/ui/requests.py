"""What may the page ask? Every request as a struct: unknown keys, sizes and ranges are refused.

    question = decode(body, Question)
    question.model, question.gpus            # "llama-2-7b", "256"

Values are the words of the command line ("4k", "800Gbit/s"), so that one parser reads both. Names
are looked up in the catalog and never opened as files: whoever reaches the page must not be able
to read the disk through it.
"""

from __future__ import annotations

import re
import threading
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.fields import field_docs

MOST_SETS = 64
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Number = (
    Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    | Annotated[int, msgspec.Meta(ge=1, le=2**53)]
)
Strategy = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
Objective = Literal["time", "tokens", "cost", "energy", "memory"]

T = TypeVar("T", bound=msgspec.Struct)


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step: a model, a cluster, a batch, and how the work is split."""

    model: Word = "llama-2-7b"
    """A model of the catalog, spelled as people do."""
    on: Word = "dgx-h100"
    """A cluster or an accelerator of the catalog."""
    gpus: Number = "256"
    """Accelerators."""
    strategy: Strategy | None = None
    """How to split; left out, a good one is chosen."""
    seq: Number | None = None
    """Tokens per sequence."""
    batch: Number | None = None
    """Sequences per step over all accelerators; nothing changes it."""
    precision: Word | None = None
    """bf16, fp16, fp8, mxfp8 or nvfp4."""
    stack: Word | None = None
    """Software, by name."""
    tokens: Number | None = None
    """Token budget of the whole run."""
    power_cap: Word | None = None
    """Watts per accelerator."""
    algorithm: Word | None = None
    """Of collectives."""
    protocol: Word | None = None
    """Of collectives."""
    sets: Annotated[tuple[Short, ...], msgspec.Meta(max_length=MOST_SETS)] = ()
    """Changed assumptions, "cluster.pue=1.3"."""
    by: Objective = "time"
    """What a chosen strategy makes small."""


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Curves over sizes."""

    question: Question = Question()
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
    """Share of the first return that is still enough."""
    every: bool = False
    """Whether `best` tries every strategy there is, instead of the few thousand usual ones."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All strategies of one size."""

    question: Question = Question()
    """What is asked; its strategy is compared with the winner."""
    by: Objective = "time"
    """What to make small."""
    top: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    """How many to list."""
    every: bool = False
    """Whether switching overlap off is tried as well, which never helps."""


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
        raise refused(str(error), type_) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the request is not JSON: {error}", hint="send a JSON object") from None


def refused(message: str, type_: type[msgspec.Struct]) -> InputError:
    """Turn msgspec's sentence into ours: the field without its dollar sign, and a hint."""
    place = re.search(r"`\$\.?(.*?)`", message)
    field = place[1] if place else ""
    unknown = re.search(r"unknown field `(.*?)`", message)
    hint = None
    if unknown:
        field = f"{field}.{unknown[1]}".lstrip(".")
        hint = did_you_mean(unknown[1], fields_of(type_))
    text = re.sub(r" - at `.*`$", "", message)
    error = InputError(f"{field}: {text}" if field else text, hint=hint)
    error.field = field or None  # type: ignore[attr-defined]
    return error


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
    words: dict[str, Any] = {
        name: getattr(question, name) for name in ("model", "on", "stack") if name != ""
    }
    for name, word in words.items():
        if word is not None and (_is_path(word) or "/" in word or "\\" in word):
            raise InputError(
                f"{name}: {word[:40]!r} is not a name of the catalog",
                hint="things of your own go into the folder $SCALEWISE_CATALOG",
            )
    for text in question.sets:
        key, _, value = text.partition("=")
        loads = key.strip() in ("cluster.accelerator", "cluster.fabric")
        if _is_path(value) or (loads and "/" in value):
            raise InputError(f"sets: {text[:60]!r} names a file", hint="give a catalog name")


def _is_path(word: str) -> bool:
    return word.strip().lower().endswith((".toml", ".json", ".csv"))
