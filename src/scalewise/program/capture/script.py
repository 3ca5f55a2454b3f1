"""Capture of a plain PyTorch script: FSDP2, HSDP, DDP, TP, PP and CP as PyTorch has them.

run_script(["train.py", "--steps", "3"], world=2048, rank=0, ...)
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from scalewise.errors import InputError
from scalewise.program.capture.habits import habits
from scalewise.program.capture.pretend import pretended
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.capture.steps import IN_A_THREAD, Captured, Steps
from scalewise.program.capture.tracer import Tracer
from scalewise.program.run import CaptureError

Prepare = Callable[[Tracer], AbstractContextManager[None]]
"""Stand-ins that a framework needs, around its run."""


def run_script(
    spec: CaptureSpec, prepared: Prepare = lambda tracer: nullcontext()
) -> tuple[Tracer, Steps]:
    """Run a script, or a module with `-m`, until its second step is done.

    Args:
        spec: The program and its place.
        prepared: Stand-ins of an adapter.

    Raises:
        InputError: If the script is not there, or ended before two steps.
    """
    arguments = list(spec.arguments)
    as_module = arguments[:1] == ["-m"]
    if as_module:
        arguments = arguments[1:]
    if not arguments:
        raise InputError("the program is missing", hint="scalewise program --world 64 -- train.py")
    target = arguments[0]
    if not as_module and not Path(target).is_file():
        raise InputError(f"{target}: there is no such script", hint="give the path of a .py file")
    tracer = Tracer()
    steps = Steps(tracer)
    before = sys.argv
    sys.argv = arguments
    try:
        with (
            tracer,
            pretended(
                world=spec.world, rank=spec.rank, per_node=spec.per_node,
                memory_bytes=spec.memory_bytes,
            ),
            habits(spec.rank % spec.per_node),
            prepared(tracer),
            steps.counted(),
        ):  # fmt: skip
            _run(target, as_module=as_module)
    except Captured:
        pass
    except SystemExit as error:
        if not (steps.complete or tracer.refused or steps.in_a_thread):
            raise CaptureError(
                f"{target} ended with exit code {error.code} before its second step",
                hint="its output is above",
            ) from None
    finally:
        sys.argv = before
    if steps.in_a_thread and not steps.complete:
        tracer.refuse(IN_A_THREAD)
    if tracer.refused:
        return tracer, steps
    if not steps.complete:
        raise InputError(
            f"{target} took {counted(steps.done + steps.updated)}; two are needed",
            hint="let it train for at least 2 steps, with an optimizer of torch.optim",
        )
    return tracer, steps


def counted(steps: int) -> str:
    """Return a number of steps in words.

    >>> counted(1)
    '1 optimizer step'
    """
    return f"{steps} optimizer step" + ("" if steps == 1 else "s")


def _run(target: str, *, as_module: bool) -> None:
    if as_module:
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(target).resolve().parent))
    runpy.run_path(target, run_name="__main__")


def parameters_of(modules: list[Any]) -> tuple[float, float]:
    """Return parameters of modules in all, and those that this rank keeps.

    Args:
        modules: Outermost modules; a parameter that two of them share counts once.
    """
    from torch.distributed.tensor import DTensor

    seen: dict[int, Any] = {id(p): p for module in modules for p in module.parameters()}
    whole = sum(float(each.numel()) for each in seen.values())
    kept = sum(
        float((each.to_local() if isinstance(each, DTensor) else each).numel())
        for each in seen.values()
    )
    return whole, kept


def multiplied_of(modules: list[Any]) -> float:
    """Return the parameters of matrices that GEMMs take; a tied table is one, a table is not.

    Args:
        modules: Outermost modules.
    """
    from torch import nn

    found: dict[int, float] = {}
    for module in modules:
        for each in module.modules():
            if not isinstance(each, nn.Embedding):
                own = (p for p in each.parameters(recurse=False) if p.dim() == 2)
                found |= {id(p): float(p.numel()) for p in own}
    return sum(found.values())


def layers_of(modules: list[Any]) -> int:
    """Return the length of the longest list of modules of one class: the layers of a decoder."""
    from torch import nn

    longest = 0
    for module in modules:
        for each in module.modules():
            if isinstance(each, nn.ModuleList | nn.ModuleDict | nn.Sequential):
                members = list(each.values()) if isinstance(each, nn.ModuleDict) else list(each)
                if len({type(member) for member in members}) == 1:
                    longest = max(longest, len(members))
    return longest
