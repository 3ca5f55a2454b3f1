"""The surroundings that a distributed program finds: environment, process group, accelerator.

with pretended(world=2048, rank=0):
    runpy.run_path("train.py", run_name="__main__")

Whatever backend and device a program asks for, it gets the fake process group and fake CPU tensors;
its own calls are not changed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from scalewise.program.capture.patches import replaced, replaced_everywhere
from scalewise.program.capture.streams import Event, Stream, StreamContext, current_stream

ACCELERATORS = ("cuda", "xpu", "hpu", "npu")
"""Types of devices that become fake CPU tensors."""


@contextmanager
def pretended(*, world: int, rank: int, per_node: int, memory_bytes: float) -> Iterator[None]:
    """Give a program its place among ranks that do not exist.

    Args:
        world: Number of ranks.
        rank: The rank that the program is.
        per_node: Ranks of a node.
        memory_bytes: Memory that a device claims to have.
    """
    environment = {
        "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % per_node,
        "LOCAL_WORLD_SIZE": min(per_node, world), "GROUP_RANK": rank // per_node,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHDYNAMO_DISABLE": "1",
        "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update({name: str(value) for name, value in environment.items()})
    try:
        with ExitStack() as stack:
            stack.enter_context(_fake_groups(world, rank))
            stack.enter_context(_fake_accelerator(per_node, memory_bytes))
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _fake_groups(world: int, rank: int) -> Iterator[None]:
    """Make every process group a fake one."""
    init, make = dist.init_process_group, dist.new_group

    def fake_init(*arguments: Any, **options: Any) -> None:
        if not dist.is_initialized():
            init("fake", rank=rank, world_size=world)

    def fake_group(*arguments: Any, **options: Any) -> Any:
        options.pop("backend", None)
        options.pop("device_id", None)
        return make(*arguments[:1], **{k: v for k, v in options.items() if k != "pg_options"})

    with (
        replaced_everywhere("init_process_group", fake_init),
        replaced_everywhere("new_group", fake_group),
        replaced_everywhere("init_device_mesh", _on_cpu(dist.init_device_mesh)),
    ):
        yield


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `init_device_mesh` that makes meshes of CPUs."""

    def made(device_type: str, *arguments: Any, **options: Any) -> Any:
        if not dist.is_initialized():
            dist.init_process_group()
        return make("cpu", *arguments, **options)

    return made


class _OnCpu(TorchFunctionMode):
    """Puts on the CPU what a program puts on an accelerator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in ACCELERATORS and args:
            return args[0]
        if func is torch.device:
            # The index goes with the type.
            return cpu_for(func(*args, **kwargs))
        if "device" in kwargs:
            kwargs["device"] = cpu_for(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*(cpu_for(each) for each in args), **kwargs)


def cpu_for(value: Any) -> Any:
    """Return the CPU for an accelerator, and anything else as it is."""
    if isinstance(value, torch.device) and value.type in ACCELERATORS:
        return torch.device("cpu")
    if isinstance(value, str) and value.split(":")[0] in ACCELERATORS:
        return "cpu"
    return value


@contextmanager
def _fake_accelerator(count: int, memory_bytes: float) -> Iterator[None]:
    """Let `torch.cuda` answer as if there were GPUs; nothing reaches a driver."""

    def nothing(*arguments: Any, **options: Any) -> None:
        return None

    memory = int(memory_bytes)
    shown = SimpleNamespace(
        name="pretended", total_memory=memory, major=9, minor=0, multi_processor_count=132,
        uuid=None,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: count, "set_device": nothing,
        "current_device": lambda: 0, "synchronize": nothing, "empty_cache": nothing,
        "reset_peak_memory_stats": nothing, "manual_seed": nothing, "manual_seed_all": nothing,
        "memory_stats": lambda *a: defaultdict(int), "mem_get_info": lambda *a: (memory, memory),
        "memory_allocated": lambda *a: 0, "max_memory_allocated": lambda *a: 0,
        "memory_reserved": lambda *a: 0, "max_memory_reserved": lambda *a: 0,
        "get_device_name": lambda *a: "pretended", "get_device_properties": lambda *a: shown,
        "get_device_capability": lambda *a: (9, 0), "is_bf16_supported": lambda *a, **k: True,
        "Stream": Stream, "Event": Event, "current_stream": current_stream,
        "default_stream": current_stream, "stream": StreamContext,
        "is_initialized": lambda: False, "init": nothing, "ipc_collect": nothing,
        "get_rng_state": lambda *a: torch.get_rng_state(), "set_rng_state": nothing,
    }  # fmt: skip
    known = {name: value for name, value in answers.items() if hasattr(torch.cuda, name)}
    device = torch.device("cuda")
    whichever: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: count, "synchronize": nothing,
        "current_accelerator": lambda *a, **k: device, "set_device_index": nothing,
        "current_device_index": lambda: 0, "device_index": lambda index: nullcontext(),
        "empty_cache": nothing, "current_stream": current_stream,
    }  # fmt: skip
    named = {name: value for name, value in whichever.items() if hasattr(torch.accelerator, name)}
    with (
        replaced(torch.cuda, **known),
        replaced(torch.accelerator, **named),
        replaced(torch.Tensor, pin_memory=lambda tensor, *a, **k: tensor),
        _OnCpu(),
    ):
        yield
