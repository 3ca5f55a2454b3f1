"""Examples in the docstrings of formulas: they run, and say what is true."""

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

from scalewise import physics

MODULES = [
    *(f"{physics.__name__}.{module.name}" for module in pkgutil.iter_modules(physics.__path__)),
    "scalewise.derivation",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    failed, attempted = doctest.testmod(import_module(name))
    assert failed == 0
    assert attempted > 0


@pytest.mark.parametrize("name", MODULES)
def test_every_formula_has_an_example(name):
    module = import_module(name)
    public = [
        each
        for each, value in inspect.getmembers(module, inspect.isfunction)
        if value.__module__ == name and not each.startswith("_")
    ]
    assert public
    assert [each for each in public if ">>> " not in inspect.getdoc(getattr(module, each))] == []
