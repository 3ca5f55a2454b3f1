"""Parts of PyTorch that fake tensors or a fake process group cannot run, replaced for a capture.

with compatible(tracer):
    ...                                       # build and train, nothing is allocated

Each function says what it replaces and why. None changes what is communicated or computed; what a
capture cannot hold is refused elsewhere (`complete`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    unset_fake_temporarily,
)


class Pausing(Protocol):
    """A recorder that can be told to look away."""

    suspended: int
    rebuilding: bool
    notes: list[str]


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes, and set them back."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def replaced_everywhere(name: str, value: Any) -> Iterator[None]:
    """Set a function of torch.distributed in every module that has it, whoever imported it when."""
    original = getattr(dist, name)
    owners = [
        module for module in list(sys.modules.values())
        if getattr(module, "__dict__", {}).get(name) is original
    ]  # fmt: skip
    with ExitStack() as stack:
        for owner in owners:
            stack.enter_context(replaced(owner, **{name: value}))
        yield


@contextmanager
def compatible(tracer: Pausing) -> Iterator[None]:
    """Apply all of them."""
    with ExitStack() as stack:
        for each in (
            real_meshes(tracer), cheap_shards(), fake_modules(), ddp(tracer), pipelines(),
            fused_attention(), lone_propagation(), readable_scalars(), eager(tracer),
        ):  # fmt: skip
            stack.enter_context(each)
        yield


@contextmanager
def real_meshes(tracer: Pausing) -> Iterator[None]:
    """Keep the rank tables of device meshes real: a fake one cannot be read."""
    from torch.distributed import device_mesh
    from torch.distributed.device_mesh import DeviceMesh

    def outside(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with unset_fake_temporarily():
                tracer.suspended += 1
                try:
                    return original(*arguments, **options)
                finally:
                    tracer.suspended -= 1

        return call

    methods = ("__init__", "__getitem__", "_flatten", "_unflatten", "get_coordinate")
    wrapped = {
        name: outside(DeviceMesh.__dict__[name]) for name in methods if name in DeviceMesh.__dict__
    }
    make = outside(device_mesh.init_device_mesh)
    with replaced(DeviceMesh, **wrapped), replaced_everywhere("init_device_mesh", make):
        yield


class _Chunks:
    """Chunks of a tensor, made when they are asked for."""

    def __init__(self, tensor: Any, count: int, dim: int) -> None:
        self.tensor, self.count, self.dim = tensor, count, dim

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        size = self.tensor.size(self.dim)
        each = -(-size // self.count)
        low, high = min(index * each, size), min((index + 1) * each, size)
        if high <= low:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, low, high - low)


@contextmanager
def cheap_shards() -> Iterator[None]:
    """Make only the shard of this rank: FSDP2 makes those of every rank, for each parameter."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    with replaced(_fsdp_param, _chunk_with_empty=_Chunks):
        yield


@contextmanager
def fake_modules() -> Iterator[None]:
    """Let `Module.to()` and `to_empty()` move fake parameters: swapping refuses weak references.

    Parameters change in place where types allow it, and are new ones where not, such as those that
    leave the meta device: as PyTorch does without swapping.
    """

    def apply(self: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with torch.no_grad():
                moved = fn(parameter)
            if moved is parameter:
                continue
            try:
                with torch.no_grad():
                    parameter.data = moved
                    if isinstance(parameter, FakeTensor):
                        parameter.fake_device = moved.fake_device
            except RuntimeError:
                self._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    with replaced(torch.nn.Module, _apply=apply):
        yield


@contextmanager
def ddp(tracer: Pausing) -> Iterator[None]:
    """Let DistributedDataParallel run: it reads shapes and buckets, and futures hold no tensor.

    The checks of the start are left out, bucket tables stay real, and a hook that all-reduces as
    the default does takes the place of futures. Buckets are rebuilt as always.
    """
    from torch.nn.parallel import distributed

    rebuild, init = dist.Reducer._rebuild_buckets, distributed.DistributedDataParallel.__init__

    def rebuilt(reducer: Any) -> Any:
        tracer.rebuilding = True
        try:
            return rebuild(reducer)
        finally:
            tracer.rebuilding = False

    def initialized(self: Any, *arguments: Any, **options: Any) -> None:
        # Modules are on the CPU, whatever device the program asked for.
        options |= {"device_ids": None, "output_device": None}
        init(self, *arguments[:1], **options)
        group = self.process_group

        def reduce(state: Any, bucket: Any) -> Any:
            tensor = bucket.buffer()
            tensor.div_(group.size())
            dist.all_reduce(tensor, group=group, async_op=True)
            future: Any = torch.futures.Future()
            future.set_result(tensor)
            return future

        # DDP refuses annotations that are texts.
        reduce.__annotations__ = {}
        self.register_comm_hook(None, reduce)

    with (
        replaced(
            distributed,
            _verify_param_shape_across_processes=lambda *a, **k: None,
            _sync_module_states=lambda *a, **k: None,
        ),
        replaced(dist.Reducer, _rebuild_buckets=rebuilt),
        replaced(distributed.DistributedDataParallel, __init__=initialized),
    ):
        yield


@contextmanager
def pipelines() -> Iterator[None]:
    """Let pipeline schedules start without asking their neighbors for shapes, which sends data."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining.stage import InferenceMode

    def declared(self: Any, stages: Any, has_backward: Any, done: Any) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    with replaced(schedules._PipelineSchedule, _warmup_p2p=declared):
        yield


@contextmanager
def fused_attention() -> Iterator[None]:
    """Call the fused attention of accelerators, which has a count of FLOPs; the CPU's has none."""
    from torch.nn import functional

    plain = functional.scaled_dot_product_attention

    def fused(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,  # noqa: FBT001
    ) -> Any:  # fmt: skip
        if attn_mask is not None:
            return plain(
                query, key, value, attn_mask, dropout_p, is_causal,
                scale=scale, enable_gqa=enable_gqa,
            )  # fmt: skip
        if enable_gqa and query.shape[-3] != key.shape[-3]:
            shared = query.shape[-3] // key.shape[-3]
            key, value = (each.repeat_interleave(shared, -3) for each in (key, value))
        attention = torch.ops.aten._scaled_dot_product_flash_attention
        return attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]

    # Context parallelism finds the function by this name.
    fused.__name__ = "scaled_dot_product_attention"
    with replaced(functional, scaled_dot_product_attention=fused):
        yield


@contextmanager
def lone_propagation() -> Iterator[None]:
    """Keep DTensor's dry runs of every operator on whole shapes out of the capture."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._python_dispatch import _disable_current_modes

    def alone(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with _disable_current_modes():
                return original(*arguments, **options)

        return call

    names = ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached")
    with replaced(ShardingPropagator, **{n: alone(getattr(ShardingPropagator, n)) for n in names}):
        yield


def scalar_of(tensor: Any) -> float | int:
    """Return what a fake number is read as: a false condition ends loops that wait for it."""
    if tensor.dtype is torch.bool:
        return False
    return 1.0 if tensor.is_floating_point() else 1


@contextmanager
def readable_scalars() -> Iterator[None]:
    """Let programs read fake numbers: 1, and false, so that loops that wait for true do end."""
    item = torch.Tensor.item

    def read(tensor: Any) -> Any:
        try:
            return item(tensor)
        except DataDependentOutputException:
            return scalar_of(tensor)

    def truth(tensor: Any) -> bool:
        try:
            return bool(item(tensor))
        except DataDependentOutputException:
            return False

    with replaced(
        torch.Tensor,
        item=read,
        tolist=_fake_list(torch.Tensor.tolist),
        __int__=lambda tensor: int(read(tensor)),
        __float__=lambda tensor: float(read(tensor)),
        __bool__=truth,
    ):
        yield


def _fake_list(original: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return `tolist` that gives ones for fake tensors."""

    def read(tensor: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return original(tensor)

        def ones(shape: tuple[int, ...]) -> Any:
            one: Any = 1.0 if tensor.is_floating_point() else 1
            return one if not shape else [ones(shape[1:]) for _ in range(shape[0])]

        return ones(tuple(tensor.shape))

    return read


COMPILED = "the program compiles its model with torch.compile: it was captured in eager mode"


@contextmanager
def eager(tracer: Pausing) -> Iterator[None]:
    """Leave modules as they are where a program compiles them, and note it."""
    plain = torch.compile

    def compiled(model: Any = None, **options: Any) -> Any:
        if not isinstance(model, torch.nn.Module):
            return plain(model, **options)
        note(model)
        return model

    def note(model: Any, *arguments: Any, **options: Any) -> None:
        if COMPILED not in tracer.notes:
            tracer.notes.append(COMPILED)

    with replaced(torch, compile=compiled), replaced(torch.nn.Module, compile=note):
        yield
