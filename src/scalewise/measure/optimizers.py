"""Optimizers of a job, as PyTorch has them, and the state that they keep.

    optimizer = optimizer_of(job, modules)
    state_bytes(optimizer)                   # of this rank, without step counters

Frozen parameters have no state. Muon updates the matrices of layers, AdamW everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scalewise.errors import InputError
from scalewise.records.job import TrainJob

MOMENTUM = 0.9
"""Of SGD with momentum: the usual value; speed does not depend on it."""


class Together:
    """Several optimizers that step as one."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def step(self) -> None:
        """Update all parameters."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for part in self.parts:
            part.zero_grad()


def optimizer_of(job: TrainJob, modules: Iterable[nn.Module]) -> Any:
    """Return the optimizer of the trained parameters; sharded over the ranks for ZeRO-1.

    Args:
        job: The job.
        modules: What this rank holds, split and sharded.

    Raises:
        InputError: If this PyTorch lacks it.
    """
    named = [(n, p) for module in modules for n, p in module.named_parameters() if p.requires_grad]
    kind, options = _kind_of(job.optimizer, named[0][1])
    options["lr"] = job.learning_rate
    if job.strategy.sharding == "zero1" and job.strategy.data_parallel > 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer([p for _, p in named], optimizer_class=kind, **options)
    if job.optimizer != "muon":
        return kind(_groups(p for _, p in named), **options)
    matrices = [p for name, p in named if _is_layer_matrix(name, p)]
    rest = [p for name, p in named if not _is_layer_matrix(name, p)]
    parts = [kind(_groups(matrices), **options)]
    if rest:
        other, more = _kind_of("adamw", rest[0])
        parts.append(other(_groups(rest), lr=job.learning_rate, **more))
    return Together(parts)


def _is_layer_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.dim() == 2 and "layers." in name


def _kind_of(name: str, example: Tensor) -> tuple[Any, dict[str, Any]]:
    """Return the class of an optimizer, and its options."""
    optim: Any = torch.optim
    if name == "adamw":
        # DTensors have fused kernels of AdamW alone.
        return optim.AdamW, {"fused": True} if example.is_cuda else {}
    if name in ("sgd", "momentum"):
        return optim.SGD, {"momentum": MOMENTUM} if name == "momentum" else {}
    kind = getattr(optim, name.capitalize(), None)
    if kind is None:
        raise InputError(
            f"PyTorch {torch.__version__} has no {name}", hint="use PyTorch 2.9 or newer, or adamw"
        )
    return kind, {}


def _groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Return parameters in groups by mesh, because fused kernels take no mixture."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for p in parameters:
        groups.setdefault(p.device_mesh if isinstance(p, DTensor) else None, []).append(p)
    return [{"params": group} for group in groups.values()]


def state_bytes(optimizer: Any) -> int:
    """Return the bytes that an optimizer keeps on this rank after a step, without counters."""
    return sum(
        local.nbytes
        for one in getattr(optimizer, "parts", [optimizer])
        for local in _tensors(getattr(one, "optim", one))
        if local.dim() > 0
    )


def _tensors(optimizer: Any) -> Iterator[Tensor]:
    """Yield the tensors of a state as this rank holds them."""
    for kept in optimizer.state.values():
        for value in kept.values():
            if isinstance(value, Tensor):
                yield value.to_local() if isinstance(value, DTensor) else value
