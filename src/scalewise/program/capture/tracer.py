"""Recorder of one rank's kernels, collectives, waits and live memory, under fake tensors.

    with pretend_world(2048, rank=0), Tracer() as tracer:
        model = build()
        step(model); tracer.restart(); step(model)     # the first step has one-time work
    tracer.events, tracer.groups, tracer.peak_bytes

A dispatch mode sees every operator that reaches a backend, below autograd, DTensor and FSDP2. What
it does not know as a collective is an error, because an omission would look like speed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fake_collectives import CollectiveOp, collective_ops
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from scalewise.program.capture.patches import compatible, replaced, scalar_of
from scalewise.program.capture.streams import current_stream, recorded_streams
from scalewise.program.events import Event, Group, Mesh

OPERATION = {
    "allgather_": "all_gather", "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather", "allgather_into_tensor_coalesced_": "all_gather",
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce", "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "reduce_": "all_reduce",
    "alltoall_": "all_to_all", "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast", "broadcast": "broadcast", "scatter_": "broadcast",
    "send": "send", "recv_": "recv", "recv_any_source_": "recv",
}  # fmt: skip
"""Collective of every operator of `c10d` and `_c10d_functional`."""

SILENT = {"barrier", "monitored_barrier_"}
"""Collectives without a message."""

GROUP_PLACE = {
    "c10d::allreduce_coalesced_": 1, "c10d::allgather_into_tensor_coalesced_": 2,
    "c10d::reduce_scatter_tensor_coalesced_": 2, "c10d::allgather_coalesced_": 2,
}  # fmt: skip
"""Place of the process group among the arguments, where PyTorch's own table has none."""

VIEWS = {
    f"aten::{name}"
    for name in (
        "detach", "view", "_unsafe_view", "t", "transpose", "expand", "slice", "split",
        "split_with_sizes", "as_strided", "unsqueeze", "squeeze", "alias", "select", "permute",
        "chunk", "empty", "new_empty", "empty_like", "empty_strided", "unbind", "view_as",
        "lift_fresh", "_reshape_alias", "unfold", "set_", "resize_", "is_same_size",
        "new_empty_strided", "sym_size", "is_pinned", "_local_scalar_dense", "record_stream",
        "_to_copy_view", "numpy_T", "mT", "diagonal", "real", "view_as_real", "view_as_complex",
    )
} | {"prim::device"}  # fmt: skip
"""Operators that move and compute nothing."""


SAME_FLOPS = {
    "addmm_": "addmm", "baddbmm_": "baddbmm",
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward":
        "_scaled_dot_product_flash_attention_backward",
}  # fmt: skip
"""Operators without a count of FLOPs, and those that have theirs; CPUs have one for masks alone."""


@contextmanager
def pretend_world(world: int, rank: int = 0) -> Iterator[None]:
    """Join a process group whose other ranks do not exist."""
    dist.init_process_group("fake", rank=rank, world_size=world)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _tensors(values: Any) -> list[Any]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


class _Dispatch(TorchDispatchMode):
    """Sees every operator on plain tensors."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether compilers may ignore this mode."""
        return True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self.tracer
        if not isinstance(func, torch._ops.OpOverload):
            tracer.refuse(f"operator {func} takes whole functions")
            return func(*args, **kwargs)
        disabled = torch._C._disabled_torch_dispatch_impl
        for kind in types:
            plain = kind in (torch.Tensor, torch.nn.Parameter) or issubclass(kind, FakeTensor)
            if not plain and getattr(kind, "__torch_dispatch__", None) is not disabled:
                # DTensors and tensors that wait for a collective dispatch to plain ones.
                return NotImplemented
        if tracer.rebuilding:
            seen = _tensors((args, kwargs))
            whole = kwargs.get("dtype") is torch.int32
            if whole or (seen and all(each.dtype is torch.int32 for each in seen)):
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            # Code in C++ reads numbers too, such as DDP's table of used parameters.
            return scalar_of(args[0])
        out = func(*args, **kwargs)
        tracer.follow(out)
        if not tracer.suspended:
            tracer.record(func, args, kwargs, out)
        return out


class Tracer:
    """One capture; enter it after joining the process group and before building the model."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.groups: dict[str, Group] = {}
        self.meshes: list[Mesh] = []
        self.tick = 0
        self.suspended = 0
        self.rebuilding = False
        self.optimizing = 0
        """Depth of `Optimizer.step`."""
        self.inputs: list[tuple[int, ...]] = []
        self.vocab = 0
        self.hidden = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.refused: list[str] = []
        self.notes: list[str] = []
        self.versions: dict[str, str] = {}
        self.checkpointed = False
        self._ranges: list[str] = []
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self._module_of: dict[int, str] = {}
        self._event_of: dict[int, int] = {}
        self._work: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._stack = ExitStack()

    def restart(self) -> None:
        """Forget the events so far: one-time work of the first step is no part of a step."""
        self.events.clear()
        self.tick = 0
        self.inputs.clear()
        self.peak_bytes = self.live_bytes
        self.checkpointed = False
        self._event_of.clear()
        self._work.clear()

    def refuse(self, reason: str) -> None:
        """Note something that the capture cannot hold."""
        if not self.suspended and reason not in self.refused:
            self.refused.append(reason)

    # Context

    def __enter__(self) -> Tracer:
        stack = self._stack
        stack.enter_context(recorded_streams(self))
        stack.enter_context(compatible(self))
        stack.enter_context(self._followed_work())
        stack.enter_context(self._named_meshes())
        stack.enter_context(self._followed_optimizers())
        stack.enter_context(self._resized_storage())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter_module)
        after = torch.nn.modules.module.register_module_forward_hook(
            self._leave_module, always_call=True
        )
        stack.callback(before.remove)
        stack.callback(after.remove)
        stack.enter_context(_Dispatch(self))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @contextmanager
    def _followed_work(self) -> Iterator[None]:
        """Record waits for collectives; the waiting method is one of C++."""
        plain = FakeWork.wait

        def wait(work: Any, *arguments: Any, **options: Any) -> Any:
            known = self._work.get(work.seq_id)
            if known is not None:
                self.emit("wait", stream=current_stream().number, on=known)
            return plain(work, *arguments, **options)

        with replaced(FakeWork, wait=wait):
            yield

    @contextmanager
    def _named_meshes(self) -> Iterator[None]:
        """Learn the dimensions of every mesh that is built."""
        from torch.distributed.device_mesh import DeviceMesh

        plain = DeviceMesh.__init__

        def init(mesh: Any, *arguments: Any, **options: Any) -> None:
            plain(mesh, *arguments, **options)
            self._learn(mesh)

        with replaced(DeviceMesh, __init__=init):
            yield

    def _learn(self, mesh: Any) -> None:
        names = tuple(mesh.mesh_dim_names or ())
        with unset_fake_temporarily():
            shape = tuple(int(each) for each in mesh.mesh.shape)
        if not names:
            return
        found = Mesh(names=names, shape=shape)
        if found not in self.meshes:
            self.meshes.append(found)

    @contextmanager
    def _followed_optimizers(self) -> Iterator[None]:
        """Know when an optimizer updates."""
        from torch.optim import Optimizer
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def begin(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self.optimizing += 1

        def end(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self.optimizing -= 1

        hooks = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def _resized_storage(self) -> Iterator[None]:
        """Follow storage that FSDP frees and takes again."""
        plain = torch.UntypedStorage.resize_

        def resize(storage: Any, size: int) -> Any:
            out = plain(storage, size)
            if storage._cdata in self._live:
                self.live_bytes += int(size) - self._live[storage._cdata]
                self._live[storage._cdata] = int(size)
                self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            return out

        with replaced(torch.UntypedStorage, resize_=resize):
            yield

    # Modules and phases

    def _enter_module(self, module: Any, inputs: Any) -> None:
        if not self._modules and id(module) not in self._names:
            for name, each in module.named_modules():
                self._names.setdefault(id(each), name or type(each).__name__)
        self._modules.append(self._names.get(id(module), type(module).__name__))
        if isinstance(module, torch.nn.Embedding) and torch.is_grad_enabled():
            self._read(module, inputs)

    def _read(self, module: Any, inputs: Any) -> None:
        """Note what the embedding of tokens reads: that with the most rows."""
        if torch._C._current_graph_task_id() != -1:
            return
        if module.num_embeddings > self.vocab:
            self.vocab, self.hidden = module.num_embeddings, module.embedding_dim
            self.inputs.clear()
        if module.num_embeddings == self.vocab:
            self.inputs += [tuple(map(int, each.shape)) for each in _tensors(inputs)]

    def _leave_module(self, module: Any, inputs: Any, out: Any) -> None:
        if self._modules:
            self._modules.pop()

    def _place(self) -> str:
        """Return the module of an operator; in backward, that of the forward operator."""
        backward = torch._C._current_graph_task_id() != -1
        if backward and not torch.is_grad_enabled():
            node = torch._C._current_autograd_node()
            return self._module_of.get(node._sequence_nr(), "") if node is not None else ""
        module = self._modules[-1] if self._modules else ""
        if module:
            self._module_of[torch.autograd._get_sequence_nr() - 1] = module
        return module

    def _phase(self) -> str:
        if self.optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() == -1:
            return "forward"
        if torch.is_grad_enabled():
            self.checkpointed = True
            return "recompute"
        return "backward"

    # Events

    def emit(self, kind: str, **fields: Any) -> int:
        """Write an event; return its tick."""
        if self.suspended:
            return self.tick
        self.tick += 1
        label = self._ranges[-1] if self._ranges else ""
        self.events.append(
            Event(tick=self.tick, kind=kind, label=label, phase=self._phase(), **fields)  # type: ignore[arg-type]
        )
        return self.tick

    def follow(self, out: Any) -> None:
        """Count the storage of new tensors until it is freed."""
        for tensor in _tensors(out):
            if type(tensor) not in (torch.Tensor, FakeTensor, torch.nn.Parameter):
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._live:
                continue
            size = storage.nbytes()
            self._live[key] = size
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.live_bytes -= self._live.pop(key, 0)

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Write what one operator is."""
        name = func._schema.name
        if name.startswith("profiler::_record_function"):
            if "enter" in name:
                self._ranges.append(str(args[0]))
            elif self._ranges:
                self._ranges.pop()
        elif name.startswith(("c10d::", "_c10d_functional", "_dtensor::", "symm_mem::")):
            self._collective(func, name, args, out)
        elif name not in VIEWS:
            self._kernel(func, name, args, kwargs, out)

    def _kernel(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        short = name.removeprefix("aten::")
        same = SAME_FLOPS.get(short)
        count = flop_registry.get(getattr(torch.ops.aten, same) if same else func._overloadpacket)
        flops = float(count(*args, **kwargs, out_val=out)) if count is not None else 0.0
        if flops and _causal(func, args, kwargs):
            flops *= 0.5
        given = {key: value for key, value in kwargs.items() if key != "out"}
        inputs, outputs = _tensors((args, given)), _tensors(out)
        shapes = tuple(tuple(map(int, each.shape)) for each in inputs[:3]) if flops else ()
        self.emit(
            "kernel",
            name=short,
            stream=current_stream().number,
            module=self._place(),
            flops=flops,
            read=float(sum(map(_size, inputs))),
            written=float(sum(map(_size, outputs))),
            shapes=shapes,
            dtype=str(inputs[0].dtype).removeprefix("torch.") if inputs else "",
        )

    def _collective(self, func: Any, name: str, args: Any, out: Any) -> None:
        short = name.split("::")[1]
        stream = current_stream().number
        if short == "wait_tensor":
            known = self._event_of.get(args[0].untyped_storage()._cdata)
            if known is not None:
                self.emit("wait", stream=stream, on=known)
            return
        if short.startswith(("_wrap_tensor", "_allow_inflight")) or short in SILENT:
            return
        operation = OPERATION.get(short)
        if operation is None:
            self.refuse(f"collective {name} is not known")
            return
        functional = not name.startswith("c10d::")
        inputs, outputs = _tensors(args), _tensors(out)
        message = _message(short, functional, args, inputs, outputs)
        largest = max(inputs + (outputs if functional else []), key=_size, default=None)
        group = self._group(func, name, args)
        size = len(self.groups[group].ranks) if group else 1
        if size == 1:
            return
        waits = functional or operation in ("send", "recv") or _asynchronous(func, args)
        named = short in ("send", "recv_")
        tick = self.emit(
            "collective",
            name=operation,
            stream=stream,
            module=self._place(),
            bytes=float(message),
            dtype="" if largest is None else str(largest.dtype).removeprefix("torch."),
            group=group,
            peer=int(args[2]) if named else -1,
            functional=functional,
            asynchronous=waits,
        )
        for tensor in outputs:
            self._event_of[tensor.untyped_storage()._cdata] = tick
        if not functional:
            self._remember(func, out, tick)

    def _remember(self, func: Any, out: Any, tick: int) -> None:
        """Know the work object of a collective, to recognize the wait for it."""
        if func in collective_ops:
            self._work[CollectiveOp.get_work(func, out).seq_id] = tick
            return
        for each in tree_leaves(out):
            if isinstance(each, torch.ScriptObject):
                self._work[dist.Work.unbox(each).seq_id] = tick

    def _group(self, func: Any, name: str, args: Any) -> str:
        if name in GROUP_PLACE:
            group = dist.ProcessGroup.unbox(args[GROUP_PLACE[name]])
        elif func in collective_ops:
            group = CollectiveOp.get_process_group(func, args)
        else:
            self.refuse(f"process group of {name} is not known")
            return ""
        key = str(group.group_name)
        if key not in self.groups:
            ranks = tuple(sorted(dist.get_process_group_ranks(group)))
            named = _dimension(str(group.group_desc or ""))
            if named == "world":
                # A mesh of one dimension uses the group of all ranks.
                named = next((m.names[0] for m in self.meshes if m.shape == (len(ranks),)), named)
            self.groups[key] = Group(name=key, dimension=named, ranks=ranks)
        return key


def _dimension(description: str) -> str:
    """Return the mesh dimension that a group's description names.

    >>> _dimension("mesh_dp_shard"), _dimension("default_pg")
    ('dp_shard', 'world')
    """
    if description == "default_pg":
        return "world"
    return description.removeprefix("mesh_") or "unnamed"


def _message(short: str, functional: bool, args: Any, inputs: Any, outputs: Any) -> int:  # noqa: FBT001
    """Return the bytes of a whole message: gathered, not yet scattered, or sent."""
    if "coalesced" in short or short in ("allreduce_", "broadcast_", "send", "recv_"):
        place = 0
        if short == "reduce_scatter_tensor_coalesced_":
            place = 1
        return sum(map(_size, _tensors(args[place])))
    if "alltoall" in short or "all_to_all" in short:
        return sum(map(_size, inputs[:1] if functional else _tensors(args[1])))
    if short in ("allgather_", "reduce_scatter_"):
        return sum(map(_size, _tensors(args[0 if short == "allgather_" else 1])))
    return max(map(_size, inputs + (outputs if functional else [])), default=0)


def _causal(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an attention kernel computes half of its square."""
    named = zip(func._schema.arguments, args, strict=False)
    given = {spec.name: value for spec, value in named} | kwargs
    return bool(given.get("is_causal", False))


def _asynchronous(func: Any, args: Any) -> bool:
    """Whether the program asked for a handle to wait for."""
    named = zip(args, func._schema.arguments, strict=False)
    return any(bool(each) for each, spec in named if spec.name in ("async_op", "asyncOp"))
