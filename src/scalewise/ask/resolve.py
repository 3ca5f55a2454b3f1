"""From words to inputs: what was asked, what was changed, what was chosen.

    asked = resolve(Question(model="llama 2 7b", on="dgx-h100", gpus=2048))
    asked.strategy, asked.workload.global_batch, asked.defaults

The only way from a `Question` to an estimate, for the command line, the web UI, plan files and
Python alike: the same words give the same digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.bounds import check_stack
from scalewise.ask.defaults import (
    Default,
    batch_of,
    default_batch,
    default_goodput,
    default_imbalance,
    default_precision,
    default_seq_len,
)
from scalewise.ask.names import find_name, is_file
from scalewise.ask.network import parse_network, said
from scalewise.ask.overrides import Overrides
from scalewise.ask.question import Question, question_fields
from scalewise.catalog import knows, load_cluster
from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.sizes import MAX_GPUS
from scalewise.explore.templates import BEST, Template, choices, filled_batch, parse_template
from scalewise.model import Model, load_model
from scalewise.precision import RECIPES
from scalewise.software import Software, choose_stack
from scalewise.stack import Stack
from scalewise.step.estimate import CHOSEN_FIT, STATED_FIT, estimate
from scalewise.step.finite import NotFiniteError
from scalewise.step.statistical_efficiency import critical_batches
from scalewise.strategy import Strategy
from scalewise.units import parse
from scalewise.workload import WORK, Workload

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.explore.sensitivity import Sensitivities
    from scalewise.model import Convention
    from scalewise.simulation.simulate import Timeline
    from scalewise.step.result import Estimate

MAX_SEQ_LEN, MAX_BATCH = 2**24, 2**26
"""Largest numbers of a question: beyond any run, and what a strategy can spell."""

WORDS = tuple(name for name in WORK if name != "tokens")
"""Fields of a question that are those of the workload, by the same names, without a unit."""

WIDE = tuple(word for word, recipe in RECIPES.items() if recipe.wide)
"""Precisions with 32 bits everywhere."""

SWITCHES = {"power_cap": "power_cap_watts", "price": "usd_per_hour", "pue": "pue"}
"""Fields of a question that are quantities of the cluster, and their names there."""

_TOKENS = re.compile(r"(?P<number>.*?)\s*tok(?:ens?)?", flags=re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Objects:
    """What is at hand as objects, and needs no name."""

    model: Model | None = None
    cluster: Cluster | None = None
    stack: Stack | None = None
    strategy: Strategy | None = None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is trained on what, and how that came about; the strategy is still open."""

    question: Question
    """With every name and number filled in."""
    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack | None
    """Software that was named; None for what is usual for a strategy."""
    fit: float
    """Chance to fit into memory that is demanded of a strategy."""
    defaults: tuple[Default, ...]
    """What was chosen for the user."""
    changes: tuple[str, ...]
    """What overrides and switches changed, one phrase each."""
    notes: tuple[str, ...]
    """What looks odd about the question, one sentence each."""

    def search(self, **options: Any) -> Search:
        """Return the search of the question; options as of `explore.search`."""
        from scalewise.explore.search import search

        asked = {"by": self.question.by, "stack": self.stack, "fit": self.fit}
        return search(self.model, self.cluster, self.workload, **asked | options)


@dataclass(frozen=True, kw_only=True)
class Asked(Inputs):
    """A question as inputs of an estimate."""

    strategy: Strategy
    software: Software
    """What runs it, and why."""
    stated: bool
    """Whether the strategy was named, and not chosen."""
    evaluated: int
    """Strategies that were estimated to choose one; 0 where it was named."""

    def estimate(self, convention: Convention = "causal") -> Estimate:
        """Return the estimate of the question.

        Raises:
            InputError: If the strategy does not suit the model, the size or the batch.
        """
        try:
            e = estimate(
                self.model,
                self.cluster,
                self.workload,
                self.strategy,
                stack=self.software,
                convention=convention,
                fit=self.fit,
            )
        except NotFiniteError as error:
            if not self.changes:
                raise
            changes = "; ".join(self.changes)
            raise InputError(f"with {changes}: {error}", hint="undo the last change") from None
        return replace(e, defaults=tuple(str(each) for each in self.defaults))

    def sensitivity(self, **options: Any) -> Sensitivities:
        """Return the gains of upgrades; options as of `explore.sensitivity`."""
        from scalewise.explore.sensitivity import sensitivity

        of = (self.model, self.cluster, self.workload, self.strategy)
        return sensitivity(*of, stack=self.stack, **options)

    def timeline(self, **options: Any) -> Timeline:
        """Return the simulated step; options as of `simulation.simulate.timeline`."""
        from scalewise.simulation.simulate import timeline

        of = (self.model, self.cluster, self.workload, self.strategy)
        return timeline(*of, stack=self.stack, **options)


def inputs(question: Question, objects: Objects | None = None) -> Inputs:
    """Load what is named, apply overrides, choose what is missing but for the strategy.

    Args:
        question: What is asked.
        objects: What is at hand instead of a name; the size of a cluster counts where the question
            has none.

    Raises:
        InputError: If a word is not understood.
    """
    resolver = _Resolver(question, objects or Objects())
    found = resolver.inputs()
    if found.stack is None and resolver.overrides.touches("stack"):
        # Whatever the strategy will be, the fields of one software are changed.
        found = resolver.with_software(found, choose_stack(None, found.cluster))
    resolver.overrides.check_used()
    return found


def resolve(question: Question, objects: Objects | None = None) -> Asked:
    """Resolve a question in full, strategy and software included.

    Args:
        question: What is asked.
        objects: As for `inputs`.

    Raises:
        InputError: If a word is not understood, or nothing suits size and batch.
    """
    return _Resolver(question, objects or Objects()).resolve()


class _Resolver:
    """One question on its way: what was chosen and changed so far."""

    def __init__(self, question: Question, objects: Objects) -> None:
        for name, field in question_fields().items():
            value = getattr(question, name)
            if isinstance(value, str) and not value.strip():
                raise InputError(
                    f"{field.flag} is empty",
                    hint=f"give {field.flag} a value, or leave it out",
                    field=name,
                )
        self.question, self.objects = question, objects
        self.overrides = Overrides.read(question.sets)
        self.defaults: list[Default] = []
        self.changes: list[str] = []
        self.template = self._template()

    def inputs(self) -> Inputs:
        """Everything but the strategy."""
        q, overrides = self.question, self.overrides
        model = overrides.apply("model", self.objects.model or self._model())
        cluster = self._cluster(self._gpus())
        workload = self._workload(model, cluster)
        stack = self._stack(cluster)
        if stack is not None and not q.force:
            check_stack(stack, cluster, workload.precision)
        chosen = self.template is None or self.template.limits is not None
        fit = q.fit or (CHOSEN_FIT if chosen else STATED_FIT)
        return Inputs(
            question=msgspec.structs.replace(
                q,
                model=q.model if is_file(q.model) or "/" in q.model else model.name,
                on=q.on if is_file(q.on) else cluster.name,
                gpus=cluster.accelerators,
                seq=workload.seq_len,
                batch=workload.global_batch,
                precision=workload.precision,
                stack=q.stack if stack is None or overrides.touches("stack") else stack.name,
            ),
            model=model,
            cluster=cluster,
            workload=workload,
            stack=stack,
            fit=fit,
            defaults=tuple(self.defaults),
            changes=(*self.changes, *overrides.changed),
            notes=_notes(model, cluster, workload),
        )

    def resolve(self) -> Asked:
        """The inputs with a strategy, named or chosen."""
        found = self.inputs()
        template, evaluated = self.template, 0
        if template is None or template.limits is not None:
            strategy, software, evaluated = self._choose(found, template)
        else:
            strategy, software = self._fill(found, template)
        if found.stack is None and self.overrides.touches("stack"):
            found = self.with_software(found, software)
            assert found.stack is not None
            software = Software(stack=found.stack, reason=None)
        elif software.reason is not None:
            why = software.reason
            self.defaults.append(Default(flag="--stack", value=software.stack.name, why=why))
        self.overrides.check_used()
        values = {name: getattr(found, name) for name in Inputs.__dataclass_fields__}
        values["question"] = msgspec.structs.replace(found.question, strategy=str(strategy))
        values["defaults"] = tuple(self.defaults)
        return Asked(
            **values,
            strategy=strategy,
            software=software,
            stated=template is not None and template.limits is None,
            evaluated=evaluated,
        )

    def with_software(self, found: Inputs, software: Software) -> Inputs:
        """The inputs with fields of the usual software changed: it counts as named then."""
        stack = self.overrides.apply("stack", software.stack)
        if not self.question.force:
            check_stack(stack, found.cluster, found.workload.precision)
        why = software.reason or "named"
        self.defaults.append(Default(flag="--stack", value=stack.name, why=why))
        changes = (*self.changes, *self.overrides.changed)
        return replace(found, stack=stack, changes=changes, defaults=tuple(self.defaults))

    def _model(self) -> Model:
        text = self.question.model
        if is_file(text) or "/" in text:
            return load_model(text)
        return load_model(find_name("models", text, field="model"))

    def _template(self) -> Template | None:
        """The strategy as it was named, sizes or not; None leaves the choice open."""
        text, given = self.question.strategy, self.objects.strategy
        if given is not None:
            template = Template(label=str(given), base=given, fixed=True, has_micro_batch=True)
        elif text is not None and text.strip().lower() not in (BEST, "auto"):
            template = parse_template(text)
        elif self.overrides.touches("strategy"):
            template = Template(label="fsdp", base=Strategy())
        else:
            return None
        base = self.overrides.apply("strategy", template.base)
        fixed = template.fixed or self.overrides.touches("strategy", "dp_shard", "dp_replicate")
        micro = template.has_micro_batch or self.overrides.touches("strategy", "micro_batch")
        return msgspec.structs.replace(template, base=base, fixed=fixed, has_micro_batch=micro)

    def _number(self, name: str, value: str | float) -> float:
        """Read a quantity, and name the flag where it is wrong."""
        field = question_fields()[name]
        if field.number:
            return self._plain(name, value)
        try:
            return parse(value, field.unit)
        except InputError as error:
            raise InputError(f"{field.flag}: {error}", hint=error.hint, field=name) from error

    def _plain(self, name: str, value: str | float) -> float:
        """Read a number without a unit."""
        try:
            return float(value)
        except ValueError:
            message = f"{name} = {str(value)[:40]}: not a number"
            raise InputError(message, hint="for example 1.5", field=name) from None

    def _whole(self, name: str, value: str | float, maximum: int) -> int:
        count = int(self._number(name, value))
        if not 1 <= count <= maximum:
            flag = question_fields()[name].flag
            raise InputError(
                f"{flag} {str(value)[:40]}: must be between 1 and {maximum:,}", field=name
            )
        return count

    def _gpus(self) -> int | None:
        """How many GPUs: stated, the strategy's product, or the cluster's own size."""
        stated = self.overrides.take("cluster", "accelerators") or self.question.gpus
        if stated is not None:
            return self._whole("gpus", stated, MAX_GPUS)
        if self.objects.cluster is not None:
            return None
        template = self.template
        if template is None or not template.fixed:
            return None
        count = template.base.accelerators
        self.defaults.append(
            Default(flag="--gpus", value=str(count), why="product of the strategy")
        )
        return count

    def _cluster(self, gpus: int | None) -> Cluster:
        """Load the cluster at its size, with switches and overrides."""
        q, found = self.question, self.objects.cluster
        if found is None:
            name = q.on
            if not is_file(name):
                name = find_name("clusters", name, also="accelerators", field="on")
            cluster = load_cluster(name, accelerators=gpus, **self._nodes(name))
            if gpus is None:
                size, why = str(cluster.accelerators), f"size of {cluster.name}"
                self.defaults.append(Default(flag="--gpus", value=size, why=why))
        else:
            sized = {} if gpus in (None, found.accelerators) else {"accelerators": gpus}
            changed = self._nodes(found) | sized
            cluster = found.with_(**changed) if changed else found
        if q.network is not None:
            self.changes.append(said(q.network, cluster))
        switches: dict[str, Any] = {}
        for name, target in SWITCHES.items():
            value = getattr(q, name)
            if value is not None:
                switches[target] = self._number(name, value)
                self.changes.append(f"{question_fields()[name].flag} {value}")
        for name in ("algorithm", "protocol"):
            if getattr(q, name) is not None:
                switches[name] = getattr(q, name)
                self.changes.append(f"--{name} {getattr(q, name)}")
        if switches:
            cluster = cluster.with_(**switches)
        return self.overrides.apply("cluster", cluster)

    def _nodes(self, of: Cluster | str) -> dict[str, Any]:
        """What `--node` and `--network` change of a cluster."""
        q, given = self.question, dict[str, Any]()
        if q.node is None and q.network is None:
            return given
        cluster = load_cluster(of) if isinstance(of, str) else of
        if q.node is not None:
            node = self._whole("node", q.node, MAX_GPUS)
            self.changes.append(f"--node {q.node} (was {cluster.scale_up_domain:,})")
            given["scale_up_domain"] = node
            cluster = cluster.with_(scale_up_domain=node)
        if q.network is not None:
            given |= parse_network(q.network).changes(cluster)
        return given

    def _workload(self, model: Model, cluster: Cluster) -> Workload:
        """Read sequence, precision, budget and batch, and choose what is missing."""
        q = self.question
        given = self.overrides.workload(
            {
                "seq_len": q.seq,
                "global_batch": q.batch,
                "precision": q.precision,
                "tokens": q.tokens,
                **{name: getattr(q, name) for name in WORDS},
            }
        )
        if given["seq_len"] is not None:
            seq_len = self._whole("seq", given["seq_len"], MAX_SEQ_LEN)
        else:
            seq_len, chosen = default_seq_len(model)
            self.defaults.append(chosen)
        multiple, exact = self._multiple(cluster.accelerators)
        if given["global_batch"] is not None:
            batch = self._batch(given["global_batch"], seq_len, multiple, exact=exact)
        elif self.template is not None and self.template.base.num_microbatches is not None:
            batch, why = multiple, "micro-batch x data-parallel ranks x gradient accumulation steps"
            self.defaults.append(Default(flag="--batch", value=str(batch), why=why))
        else:
            batch, chosen = default_batch(model, seq_len, multiple, exact=exact)
            self.defaults.append(chosen)
        of_strategy = None if self.template is None else self.template.base.precision
        if given["precision"] is not None:
            precision: Any = str(given["precision"]).lower()
        elif of_strategy is not None:
            precision = of_strategy
        else:
            precision, chosen = default_precision(cluster)
            self.defaults.append(chosen)
        tokens = None if given["tokens"] is None else self._number("tokens", given["tokens"])
        words: dict[str, Any] = {}
        for name in WORDS:
            if (value := given[name]) is not None:
                number = question_fields()[name].number
                words[name] = self._plain(name, value) if number else str(value)
        if tokens is not None and "goodput" not in words:
            self.defaults.append(default_goodput())
        if model.moe is not None and not {"imbalance", "capacity"} & set(words):
            self.defaults.append(default_imbalance())
        if "critical_batch" in words:
            critical_batches(words["critical_batch"], float(model.active_parameters), tokens)
        if "optimizer" in words and not is_file(words["optimizer"]):
            words["optimizer"] = find_name("optimizers", words["optimizer"], field="optimizer")
        self.changes += [f"{question_fields()[name].flag} {value}" for name, value in words.items()]
        if "weights" not in words and precision in WIDE:
            words["weights"] = "fp32"
            why = f"GEMMs in {precision} read 32-bit weights"
            self.defaults.append(Default(flag="--weights", value="fp32", why=why))
        return Workload(
            seq_len=seq_len, global_batch=batch, precision=precision, tokens=tokens, **words
        )

    def _batch(self, given: str | float, seq_len: int, multiple: int, *, exact: bool) -> int:
        """The batch in sequences; a batch in tokens carries its unit, and is met as near as is."""
        match = _TOKENS.fullmatch(str(given).strip())
        if match is None:
            return self._whole("batch", given, MAX_BATCH)
        batch = batch_of(self._number("tokens", match["number"]), seq_len, multiple, exact=exact)
        why = f"{batch * seq_len / 1e6:.3g}M tokens per step"
        self.defaults.append(Default(flag="--batch", value=str(batch), why=why))
        return batch

    def _multiple(self, gpus: int) -> tuple[int, bool]:
        """Sequences that the batch should be a multiple of, and whether it must be."""
        template = self.template
        if template is None or template.limits is not None:
            return gpus, False
        base = template.base
        ranks = base.data_parallel if template.fixed else gpus // (base.tp * base.cp * base.pp)
        return filled_batch(base, max(ranks, 1)), True

    def _stack(self, cluster: Cluster) -> Stack | None:
        """The software that was named."""
        given = self.objects.stack or self.question.stack
        if given is None:
            return None
        template, sharded = self.template, False
        if template is not None and template.limits is None:
            ranks = template.base.dp_shard if template.fixed else cluster.accelerators
            degrees = 1 if template.fixed else template.base.accelerators
            sharded = template.base.sharding == "zero3" and ranks > degrees
        compiled = None if template is None else template.base.compiled
        software = choose_stack(given, cluster, fully_sharded=sharded, compiled=compiled)
        if software.reason is not None:
            value, why = software.stack.name, software.reason
            self.defaults.append(Default(flag="--stack", value=value, why=why))
        return self.overrides.apply("stack", software.stack)

    def _software(self, found: Inputs, strategy: Strategy) -> Software:
        """What runs a strategy: as named, or as usual."""
        if found.stack is not None:
            return Software(stack=found.stack, reason=None)
        return choose_stack(
            None,
            found.cluster,
            fully_sharded=strategy.fully_sharded,
            frozen=found.workload.tuned.frozen,
            compiled=strategy.compiled,
        )

    def _choose(self, found: Inputs, template: Template | None) -> tuple[Strategy, Software, int]:
        """The best of the usual strategies, or of all that a template allows."""
        from scalewise.explore.usual import usual

        of = (found.model, found.cluster, found.workload)
        if template is None or template.label == BEST:
            choice = usual(*of, found.stack, by=self.question.by, fit=found.fit)
            best, fits, count = choice.strategy, choice.feasible, choice.evaluated
        else:
            searched = found.search(limits=template.limits, top=1).whole()
            nearest = searched.best or searched.nearest
            if nearest is None:
                raise InputError(
                    f"--strategy {template.label}: no such strategy divides "
                    f"{found.cluster.accelerators:,} GPUs and a batch of "
                    f"{found.workload.global_batch:,}",
                    field="strategy",
                )
            best, fits, count = nearest.strategy, nearest.feasible, searched.evaluated
        if fits:
            why = f"best of {count:,} that fit with {found.fit:.0%} chance"
        else:
            why = f"nearest to fitting of {count:,}"
        self.defaults.append(Default(flag="--strategy", value=str(best), why=why))
        return best, self._software(found, best), count

    def _fill(self, found: Inputs, template: Template) -> tuple[Strategy, Software]:
        """The strategy that was named, with its size and, if that is open, its micro-batch."""
        if template.fixed and template.has_micro_batch:
            return template.base, self._software(found, template.base)
        cluster, workload = found.cluster, found.workload
        if template.fixed:
            template.base.check_mesh(cluster.accelerators)
        offered = choices(template, cluster.accelerators, workload.global_batch)
        software = self._software(found, offered[0])
        strategy = offered[0]
        if not template.has_micro_batch:
            fit = self.question.fit or CHOSEN_FIT
            many = estimate(found.model, cluster, workload, offered, stack=software.stack, fit=fit)
            fits = [place for place, good in enumerate(many.feasible.ravel()) if good]
            strategy = offered[fits[-1]] if fits else offered[0]
            why = f"largest micro-batch that fits with {fit:.0%} chance"
            if not fits:
                why = "smallest micro-batch, none fits"
        else:
            why = f"{template.label} on {cluster.accelerators:,} GPUs"
        self.defaults.append(Default(flag="--strategy", value=str(strategy), why=why))
        return strategy, software


def _notes(model: Model, cluster: Cluster, workload: Workload) -> tuple[str, ...]:
    """Return what looks odd about the question, one sentence each."""
    notes: list[str] = []
    chip = cluster.accelerator.name
    if knows("accelerators", f"{chip}-gcd"):
        notes.append(f"one {chip} is two devices to the software: {chip}-gcd counts those")
    if model.positions == "learned" and workload.seq_len > model.max_positions:
        notes.append(
            f"sequence {workload.seq_len:,} is longer than the {model.max_positions:,} learned "
            f"positions of {model.name}"
        )
    if (useful := workload.useful_fraction) < 1.0:
        notes.append(
            f"throughput, cost and days count tokens of documents, {useful:.1%} of full sequences"
        )
    return tuple(notes)
