"""The verbs of scalewise, on names or objects: what `import scalewise as sw` offers.

    sw.estimate("llama-3-70b", on="dgx-h100", gpus=256)
    sw.search("llama-3-70b", on="dgx-h100", gpus=256, batch="4Mtok").best
    sw.scale("llama-2-7b", on="dgx-h100", gpus="8..2048", strategy="best,fsdp").plot()
    sw.scale("llama-2-7b", on="dgx-h100", gpus=256, over="network=25..800Gbit/s").to_frame()

Every verb takes the fields of `scalewise.ask.question.Question` as keywords: the words of the
command line, with the same defaults and the same digits. A model, cluster, workload, strategy or
stack may also be an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

from scalewise.ask.question import Question, question_from
from scalewise.ask.resolve import Objects, inputs, resolve
from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.model import Model
from scalewise.stack import Stack
from scalewise.step.estimate import STATED_FIT
from scalewise.step.estimate import estimate as estimate_step
from scalewise.strategies import Strategies
from scalewise.strategy import Strategy
from scalewise.workload import Workload

if TYPE_CHECKING:
    from scalewise.diagnosis.result import Diagnosis
    from scalewise.evidence.runs import Run
    from scalewise.evidence.validate import Validation
    from scalewise.explore.axis import Sweep
    from scalewise.explore.plan import Plan
    from scalewise.explore.points import Curves
    from scalewise.explore.queue import Queue
    from scalewise.explore.search import Search
    from scalewise.explore.sensitivity import Sensitivities
    from scalewise.explore.space import Limits
    from scalewise.frameworks.export import Export
    from scalewise.model import Convention
    from scalewise.simulation.simulate import Timeline
    from scalewise.step.estimate import Estimates
    from scalewise.step.result import Estimate
    from scalewise.trace.summary import TraceSummary


_USUAL = {
    each.name: each.default
    for each in msgspec.structs.fields(Workload)
    if each.name in Question.__struct_fields__ and each.name not in ("precision", "tokens")
}
"""Fields of a workload that are those of a question by the same name, unless they say nothing."""


def _question(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None,
    strategy: Strategy | str | None,
    words: dict[str, Any],
) -> tuple[Question, Objects]:
    """Sort names from objects."""
    given, objects = _words(model, on, workload, strategy, words)
    return question_from(given), objects


def _words(
    model: Model | str | None,
    on: Cluster | str | None,
    workload: Workload | None,
    strategy: Strategy | str | None,
    words: dict[str, Any],
) -> tuple[dict[str, Any], Objects]:
    """Sort names from objects; model and cluster may be left to a source."""
    if workload is not None:
        more = {
            name: value
            for name, usual in _USUAL.items()
            if (value := getattr(workload, name)) != usual
        }
        twice = ({"seq", "batch", "precision", "tokens"} | more.keys()) & words.keys()
        if twice:
            raise InputError(
                f"{', '.join(sorted(twice))}: already in the workload", hint="give one of the two"
            )
        words = words | more
        words |= {
            "seq": workload.seq_len,
            "batch": workload.global_batch,
            "precision": workload.precision,
            "tokens": workload.tokens,
        }
    stack = words.pop("stack", None)
    objects = Objects(
        model=model if isinstance(model, Model) else None,
        cluster=on if isinstance(on, Cluster) else None,
        stack=stack if isinstance(stack, Stack) else None,
        strategy=strategy if isinstance(strategy, Strategy) else None,
    )
    given = words | {
        "model": model.name if isinstance(model, Model) else model,
        "on": on.name if isinstance(on, Cluster) else on,
        "strategy": None if strategy is None else str(strategy),
        "stack": stack.name if isinstance(stack, Stack) else stack,
        "sets": tuple(words.get("sets", ())),
    }
    return {name: str(value) if name in ("model", "on") else value
            for name, value in given.items() if value not in (None, ())}, objects  # fmt: skip


@overload
def estimate(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = ...,
    strategy: Strategy | str | None = ...,
    *,
    convention: Convention = ...,
    **words: Any,
) -> Estimate: ...


@overload
def estimate(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = ...,
    strategy: Sequence[Strategy] | Strategies = ...,
    *,
    convention: Convention = ...,
    **words: Any,
) -> Estimates: ...


def estimate(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = None,
    strategy: Strategy | str | Sequence[Strategy] | Strategies | None = None,
    *,
    convention: Convention = "causal",
    **words: Any,
) -> Estimate | Estimates:
    """Predict throughput, memory, power and cost of one training step.

    Args:
        model: Name, file or object.
        on: Cluster or accelerator.
        workload: Sequence length, batch, precision, tokens; or `seq`, `batch`, ... as keywords.
        strategy: One, spelled or as an object; a template without sizes; None for the best of the
            usual ones; or several, which give `Estimates`: one array per number.
        convention: How FLOPs are counted: "causal", "palm", "megatron" or "6n".
        **words: Further fields of `Question`: gpus, stack, price, power_cap, sets, fit, ...

    Raises:
        InputError: If a word is not understood, or the inputs do not suit each other.

    >>> estimate("llama-2-7b", on="dgx-h100", gpus=256, strategy="fsdp").strategy.dp_shard
    256
    """
    if strategy is None or isinstance(strategy, str | Strategy):
        return resolve(*_question(model, on, workload, strategy, words)).estimate(convention)
    found = inputs(*_question(model, on, workload, None, words))
    fit = words.get("fit") or STATED_FIT
    return estimate_step(
        found.model, found.cluster, found.workload, strategy, stack=found.stack,
        convention=convention, fit=fit,
    )  # fmt: skip


def search(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = None,
    *,
    limits: Limits | None = None,
    top: int = 10,
    pareto: Sequence[str] = (),
    convention: Convention = "causal",
    **words: Any,
) -> Search:
    """Estimate every strategy and rank what fits; arguments as of `estimate` and `explore.search`.

    Args:
        model: Name, file or object.
        on: Cluster or accelerator.
        workload: Sequence length, batch, precision, tokens.
        limits: What strategies may be tried.
        top: How many to keep.
        pareto: Objectives of a Pareto front.
        convention: How FLOPs are counted.
        **words: Further fields of `Question`, such as `gpus`, `by` and `fit`.

    Raises:
        InputError: If a word is not understood.
    """
    found = inputs(*_question(model, on, workload, None, words))
    return found.search(limits=limits, top=top, pareto=pareto, convention=convention)


@overload
def scale(
    model: Model | str,
    on: Cluster | str,
    gpus: str | int | Sequence[int] | None = ...,
    strategy: str | Sequence[str] | None = ...,
    *,
    over: None = ...,
    weak: bool | None = ...,
    batch_per_gpu: float | None = ...,
    exhaustive: bool = ...,
    convention: Convention = ...,
    **words: Any,
) -> Curves: ...


@overload
def scale(
    model: Model | str,
    on: Cluster | str,
    gpus: str | int | Sequence[int] | None = ...,
    strategy: str | Sequence[str] | None = ...,
    *,
    over: str | Sequence[str],
    weak: bool | None = ...,
    batch_per_gpu: float | None = ...,
    exhaustive: bool = ...,
    convention: Convention = ...,
    **words: Any,
) -> Sweep: ...


def scale(
    model: Model | str,
    on: Cluster | str,
    gpus: str | int | Sequence[int] | None = None,
    strategy: str | Sequence[str] | None = None,
    *,
    over: str | Sequence[str] | None = None,
    weak: bool | None = None,
    batch_per_gpu: float | None = None,
    exhaustive: bool = False,
    convention: Convention = "causal",
    **words: Any,
) -> Curves | Sweep:
    """Estimate strategies over numbers of GPUs or any quantity: gains, knees, crossovers, causes.

    Args:
        model: Name, file or object; names may be joined by commas.
        on: Cluster or accelerator; likewise.
        gpus: Sizes: "8..2048" doubles (the default), "8,64,512" lists; one number with `over`.
        strategy: Strategies without sizes, such as "fsdp,hsdp64"; None for the best at each size.
        over: Another quantity on the axis, such as "network=25..800Gbit/s" or "seq=4096..65536";
            two of them give a map.
        weak: Whether the batch grows with the cluster.
        batch_per_gpu: Sequences per GPU, in weak scaling.
        exhaustive: Whether `best` is the best of all strategies, and not of the usual ones.
        convention: How FLOPs are counted.
        **words: Further fields of `Question`.

    Raises:
        InputError: If a word is not understood.
    """
    plans = strategy if strategy is None or isinstance(strategy, str) else ",".join(strategy)
    if over is not None:
        from scalewise.ask.over import over as sweep_over

        if weak is not None or batch_per_gpu is not None:
            raise InputError(
                "weak and batch_per_gpu belong to ranges of gpus, not to over",
                hint='over=["gpus=8..256", "batch=..."], or leave them out',
            )
        one = gpus if gpus is None or isinstance(gpus, str | int) else ",".join(map(str, gpus))
        sized = words if one is None else words | {"gpus": one}
        question, objects = _question(model, on, None, plans, sized)
        texts = [over] if isinstance(over, str) else list(over)
        return sweep_over(
            question, texts, convention=convention, exhaustive=exhaustive, objects=objects
        ).sweep
    from scalewise.ask.scaling import scaling

    if gpus is None:
        gpus = "8..2048"
    several = [gpus] if isinstance(gpus, int) else gpus
    sizes = several if isinstance(several, str) else ",".join(str(size) for size in several)
    question, objects = _question(model, on, None, plans, words | {"gpus": sizes})
    asked = scaling(question, weak=weak, batch_per_gpu=batch_per_gpu, objects=objects)
    return asked.curves(convention=convention, exhaustive=exhaustive)


def plan(
    model: Model | str | Sequence[str],
    on: Cluster | str | Sequence[str],
    gpus: str | int | Sequence[int] | None = None,
    *,
    by: str | None = None,
    far_end: bool = True,
    **words: Any,
) -> Plan:
    """Plan whole runs: layout, days, dollars, MWh and tonnes of CO2 against deadline and budget.

    Args:
        model: Name, file or object; names may be several.
        on: Cluster or accelerator; likewise.
        gpus: Sizes: "64..1024" doubles (the default), "8,64,512" lists.
        by: Order: "time", "tokens", "cost", "energy", "carbon" or "memory"; None for time, or with
            a limit for cost.
        far_end: Whether limits are met by the far end of the 80% interval, or by the prediction.
        **words: Further fields of `Question`: tokens, deadline, budget, price, region, own, ...

    Raises:
        InputError: If a word is not understood.
    """
    from scalewise.ask.planning import planning

    models = model if isinstance(model, Model | str) else ",".join(model)
    clusters = on if isinstance(on, Cluster | str) else ",".join(on)
    sized = words if gpus is None else words | {
        "gpus": gpus if isinstance(gpus, str | int) else ",".join(map(str, gpus))
    }  # fmt: skip
    question, objects = _question(models, clusters, None, None, sized)
    return planning(question, by=by, far_end=far_end, objects=objects)


def queue(path: str | Path, **words: Any) -> Queue:
    """Place the runs of a queue file in a calendar of one cluster.

    Args:
        path: TOML file of runs in order of priority.
        **words: Fields of `Question` that stand before those of the file: gpus, on, price, ...

    Raises:
        InputError: If the file or a run in it is wrong.
    """
    from scalewise.ask.queueing import read_queue

    return read_queue(path, words)


def sensitivity(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = None,
    strategy: Strategy | str | None = None,
    *,
    factor: float = 2.0,
    reoptimize: bool = False,
    **words: Any,
) -> Sensitivities:
    """Estimate what each upgrade of hardware, network or software gains.

    Args:
        model: Name, file or object.
        on: Cluster or accelerator.
        workload: Sequence length, batch, precision, tokens.
        strategy: As for `estimate`.
        factor: Size of the finite upgrades.
        reoptimize: Whether the best strategy is found again after every change.
        **words: Further fields of `Question`.

    Raises:
        InputError: If a word is not understood.
    """
    asked = resolve(*_question(model, on, workload, strategy, words))
    return asked.sensitivity(factor=factor, reoptimize=reoptimize)


def diagnose(
    model: Model | str | None = None,
    on: Cluster | str | None = None,
    workload: Workload | None = None,
    strategy: Strategy | str | None = None,
    *,
    measured: str | Sequence[str] | Mapping[str | int, str | float] = (),
    source: str | Path | TraceSummary | Sequence[str | Path] = (),
    profile: str | None = None,
    nccl: str | float | None = None,
    software_differs: bool = False,
    convention: Convention = "causal",
    **words: Any,
) -> Diagnosis:
    """Rank what may explain a measured throughput, and name the measurement that tells most.

    Args:
        model: Name, file or object; None where a source states it.
        on: Cluster or accelerator; None where a source states it.
        workload: Sequence length, batch, precision, tokens.
        strategy: As for `estimate`.
        measured: "1,786 tok/s", "41% MFU", "0.86 s/step", or several by GPUs or strategy:
            "8=7000,32=1786", or {8: 7000, 32: 1786}. By default that of the source.
        source: Logs, exports of metrics, configurations, tables, records or traces of the run, as
            `--from` takes them; or what `trace` read.
        profile: Fractions of a step: "compute=0.62,exposed=0.30,idle=0.08".
        nccl: Bus bandwidth of nccl-tests between two nodes, per node: "3.2GB/s".
        software_differs: Whether every run has software of its own.
        convention: How FLOPs of a measured MFU or TFLOP/s are counted.
        **words: Further fields of `Question`.

    Raises:
        InputError: If a word is not understood, or a run cannot be.
    """
    from scalewise.diagnosis.answer import diagnose as answer
    from scalewise.diagnosis.described import complete
    from scalewise.diagnosis.evidence import Evidence, parse_node_rate, parse_profile
    from scalewise.diagnosis.measured import parse_measured
    from scalewise.diagnosis.sources import diagnose_found, from_sources

    if isinstance(measured, Mapping):
        texts: Sequence[str] = [f"{key}={value}" for key, value in measured.items()]
    else:
        texts = [measured] if isinstance(measured, str) else measured
    evidence = Evidence(
        profile=None if profile is None else parse_profile(profile),
        node_rate=None if nccl is None else parse_node_rate(nccl),
    )
    given, objects = _words(model, on, workload, strategy, words)
    if source == ():
        return answer(
            complete(given), parse_measured(texts), evidence=evidence, convention=convention,
            objects=objects, apart=software_differs,
        )  # fmt: skip
    files: Sequence[str | Path] = ()
    trace = None
    if isinstance(source, (str, Path)):
        files = (source,)
    elif isinstance(source, Sequence):
        files = source
    else:
        trace = source
    found = from_sources(
        [str(file) for file in files], given, parse_measured(texts) if texts else (),
        convention=convention, objects=objects, trace=trace,
    )  # fmt: skip
    return diagnose_found(found, evidence, apart=software_differs)


def timeline(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None = None,
    strategy: Strategy | str | None = None,
    *,
    ranks: str = "stages",
    jitter: float = 0.0,
    seed: int = 0,
    **words: Any,
) -> Timeline:
    """Simulate one step event by event.

    Args:
        model: Name, file or object.
        on: Cluster or accelerator.
        workload: Sequence length, batch, precision, tokens.
        strategy: As for `estimate`.
        ranks: Which ranks to show: "stages", "one" or "distinct".
        jitter: Relative spread of kernel times.
        seed: Random seed for the jitter.
        **words: Further fields of `Question`.

    Raises:
        InputError: If a word is not understood.
    """
    asked = resolve(*_question(model, on, workload, strategy, words))
    return asked.timeline(ranks=ranks, jitter=jitter, seed=seed)


def export(
    model: Model | str,
    on: Cluster | str,
    to: str,
    workload: Workload | None = None,
    strategy: Strategy | str | None = None,
    **words: Any,
) -> Export:
    """Write a plan as configuration and Slurm script of a training framework.

    Args:
        model: Name, file or object.
        on: Cluster or accelerator.
        to: Framework: megatron, torchtitan, torchtitan-0.2, deepspeed, accelerate, maxtext or
            megatron-bridge.
        workload: Sequence length, batch, precision, tokens; or `seq`, `batch`, ... as keywords.
        strategy: One, spelled or as an object; a template without sizes; None for the best of the
            usual ones.
        **words: Further fields of `Question`.

    Returns:
        Files by name, and what they do not say; no files where the framework cannot run the plan.

    Raises:
        InputError: If a word is not understood.

    >>> sorted(export("llama-3-8b", "dgx-h100", "megatron", gpus=64, strategy="zero1-tp2").files)
    ['launch.sbatch']
    """
    from scalewise.frameworks.export import export as export_plan

    return export_plan(resolve(*_question(model, on, workload, strategy, words)), to)


def validate(runs: str | Path | Iterable[Run] | None = None) -> Validation:
    """Compare predictions with measured runs.

    Args:
        runs: Rows, or a table or records of them; None for the published runs that are shipped.

    Raises:
        InputError: If the file cannot be read.
    """
    from scalewise.diagnosis.table import read_user_runs
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as judge

    if runs is None or isinstance(runs, str | Path):
        runs = read_runs() if runs is None else read_user_runs(str(runs))
    return judge(runs)
