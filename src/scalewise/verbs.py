"""The verbs of scalewise, on names or objects: what `import scalewise as sw` offers.

    sw.estimate("llama-3-70b", on="dgx-h100", gpus=256)
    sw.search("llama-3-70b", on="dgx-h100", gpus=256, batch="4Mtok").best
    sw.scale("llama-2-7b", on="dgx-h100", gpus="8..2048", strategy="best,fsdp").plot()

Every verb takes the fields of `scalewise.ask.question.Question` as keywords: the words of the
command line, with the same defaults and the same digits. A model, cluster, workload, strategy or
stack may also be an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

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
    from scalewise.evidence.runs import Run
    from scalewise.evidence.validate import Validation
    from scalewise.explore.points import Curves
    from scalewise.explore.search import Search
    from scalewise.explore.sensitivity import Sensitivities
    from scalewise.explore.space import Limits
    from scalewise.model import Convention
    from scalewise.simulation.simulate import Timeline
    from scalewise.step.estimate import Estimates
    from scalewise.step.result import Estimate


def _question(
    model: Model | str,
    on: Cluster | str,
    workload: Workload | None,
    strategy: Strategy | str | None,
    words: dict[str, Any],
) -> tuple[Question, Objects]:
    """Sort names from objects."""
    if workload is not None:
        twice = {"seq", "batch", "precision", "tokens"} & words.keys()
        if twice:
            raise InputError(
                f"{', '.join(sorted(twice))}: already in the workload", hint="give one of the two"
            )
        words = words | {
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
    question = question_from(
        words
        | {
            "model": model.name if isinstance(model, Model) else str(model),
            "on": on.name if isinstance(on, Cluster) else str(on),
            "strategy": None if strategy is None else str(strategy),
            "stack": stack.name if isinstance(stack, Stack) else stack,
            "sets": tuple(words.get("sets", ())),
        }
    )
    return question, objects


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


def scale(
    model: Model | str,
    on: Cluster | str,
    gpus: str | Sequence[int] = "8..2048",
    strategy: str | Sequence[str] | None = None,
    *,
    weak: bool | None = None,
    batch_per_gpu: float | None = None,
    exhaustive: bool = False,
    convention: Convention = "causal",
    **words: Any,
) -> Curves:
    """Estimate strategies over numbers of GPUs: efficiency, knees, crossovers and causes.

    Args:
        model: Name, file or object; names may be joined by commas.
        on: Cluster or accelerator; likewise.
        gpus: Sizes: "8..2048" doubles, "8,64,512" lists.
        strategy: Strategies without sizes, such as "fsdp,hsdp64"; None for the best at each size.
        weak: Whether the batch grows with the cluster.
        batch_per_gpu: Sequences per GPU, in weak scaling.
        exhaustive: Whether `best` is the best of all strategies, and not of the usual ones.
        convention: How FLOPs are counted.
        **words: Further fields of `Question`.

    Raises:
        InputError: If a word is not understood.
    """
    from scalewise.ask.scaling import scaling

    sizes = gpus if isinstance(gpus, str) else ",".join(str(size) for size in gpus)
    plans = strategy if strategy is None or isinstance(strategy, str) else ",".join(strategy)
    question, objects = _question(model, on, None, plans, words | {"gpus": sizes})
    asked = scaling(question, weak=weak, batch_per_gpu=batch_per_gpu, objects=objects)
    return asked.curves(convention=convention, exhaustive=exhaustive)


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


def validate(runs: str | Path | Iterable[Run] | None = None) -> Validation:
    """Compare predictions with measured runs.

    Args:
        runs: Rows, or a CSV file of them; None for the published runs that are shipped.

    Raises:
        InputError: If the file cannot be read.
    """
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as judge

    if runs is None or isinstance(runs, str | Path):
        runs = read_runs() if runs is None else read_runs(Path(runs))
    return judge(runs)
