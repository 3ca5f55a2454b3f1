"""Habits of training scripts that pretended tensors and ranks need to see differently.

    with habits(local_rank=0):
        runpy.run_path("train.py", run_name="__main__")

Workers of data loaders, processes that a script starts for its GPUs, and mixed precision: each is
what a script does around its model, and none is part of what a rank computes or sends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.multiprocessing
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler

from scalewise.program.capture.patches import replaced
from scalewise.program.capture.pretend import cpu_for


@contextmanager
def habits(local_rank: int) -> Iterator[None]:
    """Apply all of them.

    Args:
        local_rank: The rank's place in its node.
    """
    with ExitStack() as stack:
        for each in (loaders(), spawned(local_rank), mixed_precision()):
            stack.enter_context(each)
        yield


@contextmanager
def loaders() -> Iterator[None]:
    """Load data in this process: fake tensors do not pass from one to another."""
    from torch.utils.data import DataLoader

    plain = DataLoader.__init__
    known = inspect.signature(plain)
    alone = {
        "num_workers": 0, "prefetch_factor": None, "persistent_workers": False,
        "multiprocessing_context": None, "timeout": 0, "pin_memory": False,
    }  # fmt: skip

    def init(*arguments: Any, **options: Any) -> None:
        given = known.bind(*arguments, **options)
        given.arguments.update(alone)
        plain(*given.args, **given.kwargs)

    with replaced(DataLoader, __init__=init):
        yield


@contextmanager
def spawned(local_rank: int) -> Iterator[None]:
    """Be the one process of those that a script starts for its GPUs.

    Args:
        local_rank: Its number among them.
    """

    def spawn(run: Callable[..., Any], args: Any = (), *rest: Any, **options: Any) -> None:
        run(local_rank, *args)

    with replaced(torch.multiprocessing, spawn=spawn):
        yield


@contextmanager
def mixed_precision() -> Iterator[None]:
    """Let autocast of accelerators act on CPU tensors, and a scaler of gradients always step.

    A scaler reads whether a gradient has overflowed, which fake ones do not know.
    """
    init = autocast.__init__

    def on_cpu(context: Any, device_type: str, *arguments: Any, **options: Any) -> None:
        kind = cpu_for(device_type)
        if kind != device_type and not arguments and options.get("dtype") is None:
            # What a GPU computes in by default.
            options["dtype"] = torch.get_autocast_dtype("cuda")
        init(context, kind, *arguments, **options)

    def step(scaler: Any, optimizer: Any, state: Any, *arguments: Any, **options: Any) -> Any:
        return optimizer.step(*arguments, **options)

    with replaced(autocast, __init__=on_cpu), replaced(GradScaler, _maybe_opt_step=step):
        yield
