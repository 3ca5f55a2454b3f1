"""Stand-ins for packages that only kernels, data and logs need: configurations load on a CPU.

Workers run in the environment of the frameworks, without scalewise and without pytest.
"""

import importlib.abc
import importlib.machinery
import sys
import types
import typing

ABSENT = (
    "triton", "datasets", "torchdata", "tokenizers", "torchao", "torch.utils.tensorboard", "PIL",
    "wandb", "torchvision", "flashinfer",
)  # fmt: skip
"""Packages that are replaced, with all that is in them."""


class Anything:
    """What a stand-in has under every name: function, decorator, type and namespace."""

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, item):
        return self

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __instancecheck__(self, instance):
        return False

    def __mro_entries__(self, bases):
        # As a base class it is nothing.
        return ()


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = _Module(spec.name)
        module.__path__ = []
        module.__version__ = "3.0.0"
        return module

    def exec_module(self, module):
        pass


def install():
    """Put the stand-ins in; PyTorch looks for triton first, and must not find it."""
    import torch
    import torch._inductor.select_algorithm
    import torch.utils.flop_counter  # noqa: F401
    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override
    sys.meta_path.insert(0, _Finder())
