"""Capture of torchtitan's Trainer: `-m torchtitan.train --module llama3 --config llama3_8b ...`.

    run_torchtitan(CaptureSpec(adapter="torchtitan", world=64, arguments=arguments))

The configuration and the Trainer are torchtitan's own. Around them, text becomes zeros, kernels
that are compiled for a mask become causal attention of whole sequences, and files are not written.
What such stand-ins would falsify is refused by name.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from scalewise.program.capture.patches import replaced
from scalewise.program.capture.script import run_script
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.capture.steps import Captured, Steps
from scalewise.program.capture.tracer import Tracer
from scalewise.program.capture.versions import check_framework

SPMD = "spmd_types"
"""Default backend of torchtitan 0.3, which PyTorch 2.13 cannot shard: its `fully_shard` asks for
DTensors on the mesh of all dimensions."""

UNUSED = ("datasets", "tokenizers", "torch.utils.tensorboard")
"""Packages of the parts that are replaced or off."""

ATTENTION = "attention is causal over whole sequences: torchtitan's masks by document are left out"
DATA = "tokens are zeros; checkpoints, validation, profiles and CUDA graphs are off"


def run_torchtitan(spec: CaptureSpec) -> tuple[Tracer, Steps]:
    """Run torchtitan's own entry point until its second step is done."""
    return run_script(spec, prepared)


@contextmanager
def prepared(tracer: Tracer) -> Iterator[None]:
    """Put the stand-ins in; the accelerator is pretended already, because torchtitan looks for one.

    Args:
        tracer: Refuses what the stand-ins would falsify.
    """
    with ExitStack() as stack:
        for package in UNUSED:
            stack.enter_context(stand_in(package))
        for package in ("triton", "torchdata"):
            if importlib.util.find_spec(package) is None:
                stack.enter_context(stand_in(package))
        tracer.versions["torchtitan"] = check_framework("torchtitan")
        # Here, because loading it asks for the accelerator.
        utils = import_module("torchtitan.distributed.utils")
        attention = import_module("torchtitan.models.common.attention")
        decoder = import_module("torchtitan.models.common.decoder")
        Trainer = import_module("torchtitan.trainer").Trainer
        build = Trainer.__init__

        def built(self: Any, config: Any) -> None:
            for reason in refusals(config):
                tracer.refuse(reason)
            if tracer.refused:
                raise Captured
            build(self, quiet(config))
            # Tensors are on the CPU, whose only device has no number.
            self.device = torch.device("cpu")

        tracer.notes += [DATA, ATTENTION]
        for owner in (attention.FlexAttention, attention.VarlenAttention):
            stack.enter_context(replaced(owner, forward=causal))
        stack.enter_context(replaced(decoder.Decoder, get_attention_masks=lambda *a, **k: None))
        stack.enter_context(replaced(Trainer, __init__=built))
        # It calls a function of newer PyTorch, after the first step; nothing waits here.
        stack.enter_context(replaced(utils, set_pg_timeouts=lambda **k: None))
        yield


def refusals(config: Any) -> list[str]:
    """Return what a configuration asks for that a capture would lose, a sentence each.

    Args:
        config: torchtitan's `Trainer.Config`.

    >>> from types import SimpleNamespace as Of
    >>> refusals(Of(parallelism=Of(context_parallel_degree=2, pipeline_parallel_degree=1,
    ...     spmd_backend="full_dtensor")))[0][:56]
    'context parallelism (--parallelism.context_parallel_degr'
    """
    asked, found = config.parallelism, []
    if asked.context_parallel_degree > 1:
        found.append(
            "context parallelism (--parallelism.context_parallel_degree): it exchanges keys and "
            "values inside of attention kernels that a capture replaces"
        )
    if asked.pipeline_parallel_degree > 1:
        found.append(
            "pipelines (--parallelism.pipeline_parallel_degree): torchtitan 0.3 gives schedules "
            "lists of micro-batches, which PyTorch 2.13 does not take"
        )
    if asked.spmd_backend == SPMD:
        found.append(
            "its default backend spmd_types, whose parameters PyTorch 2.13 cannot shard: add "
            "--parallelism.spmd_backend partial_dtensor"
        )
    return found


def quiet(config: Any) -> Any:
    """Return a configuration that trains on zeros and writes no file."""
    config.checkpoint.enable = False
    config.validator.enable = False
    config.profiler.enable_profiling = False
    config.metrics.enable_tensorboard = False
    config.training.disable_cuda_graphs = True
    vocab = config.model_spec.model.vocab_size
    for name, value in (
        ("tokenizer", SimpleNamespace(get_vocab_size=lambda: vocab, eos_id=0)), ("dataloader", None)
    ):  # fmt: skip
        setattr(config, name, _Built(value, getattr(config, name)))
    return config


class _Built:
    """Configuration of a part that is not built: a tokenizer needs files, a loader text."""

    def __init__(self, value: Any, plain: Any) -> None:
        self.value, self.plain = value, plain

    def build(self, *, seq_len: int = 0, local_batch_size: int = 0, **options: Any) -> Any:
        return self.value if self.value is not None else Zeros(local_batch_size, seq_len)

    def to_dict(self) -> Any:
        """Return the configuration in its place, for the log."""
        return self.plain.to_dict()


class Zeros:
    """Batches of zeros, in the form of torchtitan's loaders."""

    def __init__(self, rows: int, seq_len: int) -> None:
        """Make a loader.

        Args:
            rows: Sequences of a batch.
            seq_len: Tokens of each.
        """
        self.rows, self.seq_len = rows, seq_len

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        while True:
            tokens = torch.zeros(self.rows, self.seq_len, dtype=torch.long)
            places = torch.arange(self.seq_len).expand(self.rows, -1).contiguous()
            yield {"input": tokens, "positions": places}, tokens.clone()

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load no state."""


def causal(
    self: Any, q_BLNH: Any, k_BLNH: Any, v_BLNH: Any, *, scale: float | None = None,
    enable_gqa: bool = False, out_transform: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Stand in for attention whose mask is compiled; TP finds the tensors by these names."""
    if out_transform is not None:
        raise NotImplementedError("attention that returns its normalizer cannot be captured")
    heads = (each.transpose(1, 2) for each in (q_BLNH, k_BLNH, v_BLNH))
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(*heads, is_causal=True, scale=scale, enable_gqa=enable_gqa).transpose(1, 2)


class _Nothing:
    """What a stand-in has under every name: function, decorator, type and namespace."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        lone = len(arguments) == 1 and callable(arguments[0]) and not options
        return arguments[0] if lone else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, item: Any) -> Any:
        return self

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()


class _Absent(types.ModuleType):
    __version__ = "3.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one package, and everything in it."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == self.package or name.startswith(f"{self.package}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Absent(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@contextmanager
def stand_in(package: str) -> Iterator[None]:
    """Let a package be imported that only kernels, data or logs need.

    Args:
        package: Its name.
    """
    # PyTorch asks for triton when these load, and must not find it.
    import torch._inductor.select_algorithm
    import torch.utils.flop_counter  # noqa: F401

    finder = _Finder(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
