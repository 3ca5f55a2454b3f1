"""Keys of a study file, each with meaning, unit and default.

    study = load_study("hardware-scaling-trends")     # a shipped one
    study = load_study("my-cluster.toml")
    study.experiments[0].claims

TOML on disk, frozen structs here; an unknown key is an error. Shipped studies are not in the
catalog: a change of the catalog invalidates stored points, and an edit of a study must not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.reading import MAX_TOML, parse_toml, read_text, user_path
from scalewise.study.measures import axis, metric

SHIPPED = Path(__file__).parent / "shipped"
"""Folder of the shipped studies."""

Where = dict[str, str | int | float | list[str | int | float]]
"""Axis -> the value, or the values, that points must have."""

Algorithm = Literal["auto", "ring", "tree", "pat", "hierarchical"]
Collective = Literal["all_gather", "reduce_scatter", "all_reduce"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a study file."""


class Variant(_Part, frozen=True, kw_only=True):
    """A cluster with changed fields."""

    name: str
    """Name in legends and tables."""
    set: dict[str, Any] = {}
    """Fields of the cluster and their new values, with units as text: {scale_up_domain = 72}.
    Fields of the chip and of the network begin with `accelerator.` or `fabric.`."""


class Case(_Part, frozen=True, kw_only=True):
    """The same experiment with some keys changed."""

    name: str
    """Name in legends and tables."""
    set: dict[str, Any] = {}
    """Keys of the experiment and their values: {scaling = "strong", batch = 1024}. Sizes, kind and
    figures belong to all cases."""


class Figure(_Part, frozen=True, kw_only=True):
    """How the points of an experiment are drawn."""

    y: tuple[str, ...]
    """Metrics, one panel each, such as ["mfu", "tokens_per_joule"]."""
    kind: Literal["lines", "bars", "map"] = "lines"
    """Lines over x; bars for each x; or a map of two axes with the metric written into it."""
    x: str = "accelerators"
    """Horizontal axis."""
    series: tuple[str, ...] = ()
    """Axes that distinguish lines or bars; of a map, the vertical axis. Default: axes that vary."""
    facet: str | None = None
    """Axis with one panel per value, or none."""
    where: Where = {}
    """Points that are drawn, such as {accelerators = [128, 2048]}; all by default."""
    band: Where = {}
    """One axis and the values between which a band is drawn around the line, instead of lines of
    their own: {variant = ["LL128", "Simple, latency x 1.4"]}."""
    log_y: bool = False
    """Whether the axis of the metric is logarithmic."""
    caption: str = ""
    """What to look at, one or two sentences."""


class Published(_Part, frozen=True, kw_only=True):
    """A measured and published number, drawn in the figures."""

    metric: str
    """Metric."""
    value: float
    """The number, in SI (fractions as 0.4, not 40)."""
    at: Where
    """Axes it belongs to, such as {accelerators = 2048}."""
    relative_to: Where = {}
    """If given, the value is a factor on the prediction at these axes: for published changes."""
    label: str
    """Label in the legend, short."""
    source: str
    """Authors and place of publication."""


class Claim(_Part, frozen=True, kw_only=True):
    """A published statement, and how points are compared with it."""

    statement: str
    """The claim, in one sentence."""
    source: str
    """Authors and place of publication."""
    measure: Literal["value", "change", "ratio", "crossover", "peak", "order"]
    """value: the metric at `second`. change, ratio: from `first` to `second`. crossover: the first
    value of `axis` at which `second` is ahead of `first`. peak: the value of `axis` with the
    largest metric. order: the values of `axis`, the largest metric first."""
    metric: str
    """Metric that is compared."""
    where: Where = {}
    """Axes of both selections."""
    first: Where = {}
    """Further axes of the first selection."""
    second: Where = {}
    """Further axes of the second selection."""
    axis: str = "accelerators"
    """Axis of crossover, peak and order."""
    published: float | str | list[str | int | float] | None = None
    """The published number in SI; for a peak the values that confirm it; for an order the values
    from the largest to the smallest."""
    at_least: float | None = None
    """Instead of a number: the prediction is claimed to be at least this."""
    at_most: float | None = None
    """Instead of a number: the prediction is claimed to be at most this."""
    tolerance: float = 0.1
    """The claim holds if the prediction is within this fraction of the published number."""
    why: str = ""
    """Reason of agreement or difference, one sentence, if the terms of the step do not show it."""


class Experiment(_Part, frozen=True, kw_only=True):
    """One experiment: axes, whose values are combined in every way, and figures and claims."""

    id: str
    """Short name, for file names and columns: "weak-scaling"."""
    title: str
    """Title, a few words."""
    about: str = ""
    """Question and reason, one or two sentences."""
    kind: Literal["scale", "collectives", "sensitivity"] = "scale"
    """scale: training steps. collectives: one collective alone. sensitivity: the gain of each
    change of the cluster."""
    models: tuple[str, ...] = ()
    """Names of the catalog, or paths of config.json or .toml files."""
    clusters: tuple[str, ...] = ()
    """Clusters or accelerators of the catalog, or paths of .toml files."""
    variants: tuple[Variant, ...] = ()
    """Changed clusters to compare; by default the unchanged cluster."""
    cases: tuple[Case, ...] = ()
    """Versions of this experiment to compare, such as weak and strong scaling; by default one."""
    sizes: str | list[int] = "8..2048"
    """Numbers of GPUs: "8..2048" doubles, commas join, or a list."""
    strategies: tuple[str, ...] = ("fsdp",)
    """Without sizes: fsdp, hsdp64, ddp, zero1, or best, which is searched at every size."""
    tp: tuple[int, ...] = ()
    """Tensor-parallel degrees, each combined with every strategy; by default none is added."""
    pp: tuple[int, ...] = ()
    """Pipeline stages, likewise."""
    cp: tuple[int, ...] = ()
    """Context-parallel degrees, likewise."""
    best_over: tuple[str, ...] = ()
    """Axes of which the fastest value is taken at every size: ["strategy"], or ["strategy", "tp",
    "pp"] for one curve of all strategies."""
    sequences: tuple[int, ...] = (4096,)
    """Tokens per sequence."""
    scaling: Literal["weak", "strong"] = "weak"
    """Whether the batch grows with the cluster (weak) or stays (strong)."""
    batch: float = 2.0
    """Sequences per step: per GPU if weak, in total if strong."""
    batch_tokens: float | None = None
    """Instead of `batch`: tokens per step, per GPU if weak, in total if strong."""
    question: dict[str, Any] = {}
    """Other fields of a question, of every point: {optimizer = "adamw-8bit", power_cap = "500W"}.
    See `scalewise estimate --help`; `sets` is the list of --set."""
    precisions: tuple[str, ...] = ()
    """Precision of GEMMs: bf16, fp16, fp8, fp8row, fp8block, mxfp8, nvfp4, tf32, fp32.
    Default: bf16, or fp16 before it."""
    algorithms: tuple[Algorithm, ...] = ("auto",)
    """Collective algorithms; auto is the library's own choice."""
    stacks: tuple[str, ...] = ()
    """Software stack, see `scalewise stacks`; where it does not run on a device, and by default,
    the best validated one for the device."""
    by: Literal["time", "cost", "energy"] = "time"
    """Objective of `best`, minimized."""
    convention: Literal["causal", "palm", "megatron", "6n"] = "causal"
    """FLOP convention of MFU."""
    collectives: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_reduce")
    """Kind collectives: the collective."""
    messages: tuple[str, ...] = ("1MiB", "64MiB", "1GiB")
    """Kind collectives: sizes of the whole buffer."""
    factor: float = 2.0
    """Kind sensitivity: factor by which a quantity improves."""
    reoptimize: bool = False
    """Kind sensitivity: whether the best strategy is searched again after every change."""
    metrics: tuple[str, ...] = ()
    """Columns of the table; by default those of the figures and claims."""
    figures: tuple[Figure, ...] = ()
    """Figures."""
    published: tuple[Published, ...] = ()
    """Published numbers to draw in the figures."""
    steps: int = 20
    """`study measure`: optimizer steps of a launch; the first quarter is warm-up."""
    measured: bool = False
    """Whether shipped measurements of runs and collectives are drawn in the figures where model,
    chip, size and sequence or message match."""
    claims: tuple[Claim, ...] = ()
    """Published claims to evaluate."""
    assumptions: tuple[str, ...] = ()
    """Assumptions where a source does not say, one sentence each."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the metrics of its table: the given ones, else those of figures and claims."""
        if self.metrics:
            return self.metrics
        used = [name for figure in self.figures for name in figure.y]
        used += [each.metric for each in self.published] + [each.metric for each in self.claims]
        return tuple(dict.fromkeys(used))


CHANGEABLE = (
    "models", "clusters", "variants", "strategies", "tp", "pp", "cp", "best_over", "sequences",
    "scaling", "batch", "batch_tokens", "question", "precisions", "algorithms", "stacks", "by",
)  # fmt: skip
"""Keys of an experiment that a case may change."""


class Study(_Part, frozen=True, kw_only=True):
    """A question over many points."""

    title: str
    """Title of the report."""
    question: str = ""
    """Question, one or two sentences."""
    source: str = ""
    """The publication whose claims are evaluated, if any."""
    experiment: tuple[Experiment, ...]
    """The experiments, in order."""
    assumptions: tuple[str, ...] = ()
    """Assumptions of all experiments, one sentence each."""
    name: str = ""
    """By default the name of the file."""
    text: str = ""
    """The text of the file, for the report."""

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The experiments, in order."""
        return self.experiment


def shipped() -> list[str]:
    """Return names of the shipped studies and of those in $SCALEWISE_CATALOG/studies."""
    return sorted({path.stem for folder in _folders() for path in folder.glob("*.toml")})


def find_study(name: str) -> Path:
    """Return the file of a study.

    Args:
        name: A shipped name, or a path that ends in `.toml`.

    Raises:
        InputError: If there is none.
    """
    if name.endswith(".toml"):
        path = user_path(name)
        if not path.is_file():
            raise InputError(f"there is no file {path}", hint="`scalewise study new` writes one")
        return path
    for folder in _folders():
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    raise InputError(f"there is no study `{name}`", hint=did_you_mean(name, shipped()))


def load_study(name: str) -> Study:
    """Return a study by name or path.

    Raises:
        InputError: If there is none, or its file is invalid; the message names the key.
    """
    path = find_study(name)
    text = read_text(path, what="study", most=MAX_TOML)
    return read_study(text, name=path.stem, where=str(path))


def read_study(text: str, *, name: str = "study", where: str = "study") -> Study:
    """Return a study from its text.

    Args:
        text: TOML.
        name: Name of the study, if the text has none.
        where: Name of the file in messages.

    Raises:
        InputError: Naming the invalid key.
    """
    table = parse_toml(text, where)
    defaults = table.pop("defaults", {})
    if not isinstance(defaults, dict):
        raise InputError(f"{where}: `defaults` is a table", hint="write [defaults] above its keys")
    _check_keys(defaults, Experiment, f"{where}: defaults")
    given = table.get("experiment")
    if isinstance(given, list):
        table["experiment"] = [
            {**defaults, **each} if isinstance(each, dict) else each for each in given
        ]
    _check_keys(table, Study, where)
    table.setdefault("name", name)
    table["text"] = text
    try:
        study = msgspec.convert(table, Study)
    except msgspec.ValidationError as error:
        sentence = re.sub(r"`[$][.]?(.*?)`", r"`\1`", str(error))
        raise InputError(f"{where}: {sentence}", hint="see `scalewise study new`") from error
    _check(study, where)
    return study


def _folders() -> list[Path]:
    own = os.environ.get("SCALEWISE_CATALOG")
    return [*([user_path(own) / "studies"] if own else []), SHIPPED]


def _check_keys(table: dict[str, Any], type_: type[msgspec.Struct], where: str) -> None:
    """Reject unknown keys at any depth, with their place and a suggestion."""
    hints = get_type_hints(type_)
    known = type_.__struct_fields__
    for key, value in table.items():
        if key not in known or (type_ is Study and key == "text"):
            raise InputError(f"{where}: unknown key `{key}`", hint=did_you_mean(key, known))
        inner = _part_of(hints[key])
        if inner is not None and isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, dict):
                    name = each.get("id") or each.get("name") or place + 1
                    _check_keys(each, inner, f"{where}: {key} {name}")


def _part_of(hint: Any) -> type[msgspec.Struct] | None:
    """Return the struct of a list of tables."""
    if get_origin(hint) is tuple:
        first = get_args(hint)[0]
        if isinstance(first, type) and issubclass(first, _Part):
            return first
    return None


def _check(study: Study, where: str) -> None:
    """Reject what types cannot: repeated names, unknown axes and metrics, empty axes."""
    if not study.experiment:
        raise InputError(f"{where} has no experiment", hint="add a table [[experiment]]")
    seen: set[str] = set()
    for each in study.experiment:
        place = f"{where}: experiment {each.id}"
        if each.id in seen or not re.fullmatch("[a-z0-9][a-z0-9-]*", each.id):
            raise InputError(
                f"{place}: the id must be its own, of small letters, digits and dashes",
                hint="for example weak-scaling",
            )
        seen.add(each.id)
        needed = ("clusters",) if each.kind == "collectives" else ("models", "clusters")
        for name in needed:
            if not getattr(each, name):
                raise InputError(f"{place}: `{name}` is missing", hint="name at least one")
        try:
            _check_words(each)
        except InputError as error:
            raise InputError(f"{place}: {error}", hint=error.hint) from error


def _check_words(each: Experiment) -> None:
    """Reject words that are neither axis nor metric."""
    places: list[Where] = []
    for case in each.cases:
        for key in case.set:
            if key not in CHANGEABLE:
                raise InputError(
                    f"case {case.name}: `{key}` cannot be changed",
                    hint=did_you_mean(key, CHANGEABLE),
                )
    for name in each.best_over:
        if name not in ("strategy", "tp", "pp", "cp"):
            raise InputError(
                f"best_over: {name} is not part of a strategy", hint="use strategy, tp, pp or cp"
            )
    for figure in each.figures:
        places += [figure.where, figure.band]
        if len(figure.band) > 1:
            raise InputError("a band has one axis", hint='for example {variant = ["a", "b"]}')
        if figure.kind == "map" and len(figure.series) != 1:
            raise InputError(
                "a figure of kind map needs one axis upwards", hint='for example series = ["pp"]'
            )
        for name in (figure.x, *figure.series, *([figure.facet] if figure.facet else [])):
            axis(name)
    for point in each.published:
        places += [point.at, point.relative_to]
    for claim in each.claims:
        places += [claim.where, claim.first, claim.second]
        axis(claim.axis)
        bounds = (claim.published, claim.at_least, claim.at_most)
        if sum(bound is not None for bound in bounds) != 1:
            raise InputError(
                f"claim {claim.statement[:60]!r} needs one of published, at_least and at_most",
                hint="keep one of the three",
            )
    for where in places:
        for name in where:
            axis(name)
    for name in each.shown:
        metric(name)
