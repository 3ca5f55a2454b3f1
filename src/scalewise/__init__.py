"""Throughput, memory, power and cost of training large language models on any number of GPUs.

    import scalewise as sw

    sw.estimate("llama-3-70b", on="dgx-h100", gpus=256).mfu
    sw.search("llama-3-70b", on="dgx-h100", gpus=256).best
    sw.scale("llama-2-7b", on="dgx-h100", gpus="8..2048", strategy="best,fsdp")

Names are resolved when they are first used: `import scalewise` loads no library at all, so that
a command line or a notebook pays only for what it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise._version import __version__

if TYPE_CHECKING:
    from scalewise.catalog import load_accelerator, load_cluster
    from scalewise.cluster import Accelerator, Cluster, Fabric
    from scalewise.errors import InputError, ScalewiseError
    from scalewise.model import Model, load_model
    from scalewise.stack import Stack, load_stack
    from scalewise.step.estimate import Estimates
    from scalewise.step.result import Estimate
    from scalewise.strategies import Strategies
    from scalewise.strategy import Strategy, parse_strategy
    from scalewise.trace.read import read_trace
    from scalewise.verbs import (
        diagnose,
        estimate,
        export,
        scale,
        search,
        sensitivity,
        timeline,
        validate,
    )
    from scalewise.workload import Workload

_HOME = {
    "Accelerator": "scalewise.cluster",
    "Cluster": "scalewise.cluster",
    "Estimate": "scalewise.step.result",
    "Estimates": "scalewise.step.estimate",
    "Fabric": "scalewise.cluster",
    "InputError": "scalewise.errors",
    "Model": "scalewise.model",
    "ScalewiseError": "scalewise.errors",
    "Stack": "scalewise.stack",
    "Strategies": "scalewise.strategies",
    "Strategy": "scalewise.strategy",
    "Workload": "scalewise.workload",
    "diagnose": "scalewise.verbs",
    "estimate": "scalewise.verbs",
    "export": "scalewise.verbs",
    "load_accelerator": "scalewise.catalog",
    "load_cluster": "scalewise.catalog",
    "load_model": "scalewise.model",
    "load_stack": "scalewise.stack",
    "parse_strategy": "scalewise.strategy",
    "read_trace": "scalewise.trace.read",
    "scale": "scalewise.verbs",
    "search": "scalewise.verbs",
    "sensitivity": "scalewise.verbs",
    "timeline": "scalewise.verbs",
    "validate": "scalewise.verbs",
}

__all__ = [
    "Accelerator",
    "Cluster",
    "Estimate",
    "Estimates",
    "Fabric",
    "InputError",
    "Model",
    "ScalewiseError",
    "Stack",
    "Strategies",
    "Strategy",
    "Workload",
    "__version__",
    "diagnose",
    "estimate",
    "export",
    "load_accelerator",
    "load_cluster",
    "load_model",
    "load_stack",
    "parse_strategy",
    "read_trace",
    "scale",
    "search",
    "sensitivity",
    "timeline",
    "validate",
]


def __getattr__(name: str) -> object:
    """Import the module of a public name, and cache the result."""
    if name not in _HOME:
        raise AttributeError(f"module 'scalewise' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
