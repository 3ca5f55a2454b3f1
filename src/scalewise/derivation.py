"""Formulas with their numbers, evaluated from these alone.

    d = Derivation(
        key="optimizer",
        label="optimizer step",
        formula="b * P / B",
        letters=(
            Letter("b", 16.0, "bytes moved per parameter"),
            Letter("P", 1e9, "parameters of one rank"),
            Letter("B", 2.8e12, "memory bandwidth", "B/s"),
        ),
    )
    d.value                     # 0.005714..., in `d.unit`

Each technique returns the derivation of its term beside the code that computes it. `--explain`, the
documentation and the web UI show this object, and a test compares `value` with the term, so that a
formula cannot differ from the computation. This file imports nothing else of scalewise.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_CALLS: dict[str, Callable[..., float]] = {
    "max": max,
    "min": min,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "ceil": math.ceil,
    "floor": math.floor,
}
_WITHOUT_VALUE = (
    ArithmeticError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter of a formula and its value."""

    name: str
    """As it stands in the formula: a Python identifier."""
    value: float
    """SI."""
    meaning: str
    """What it is, as a noun phrase."""
    unit: str = ""
    """Unit of the value: "s", "B", "B/s", "FLOP/s", "W", "$" or "" for counts and ratios."""
    because: Derivation | None = None
    """How the value itself comes about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """One number: its formula, its letters, its source."""

    key: str
    """Name of the result: a term, a part of memory, or a field of the estimate."""
    label: str
    """What it is, in words."""
    formula: str
    """Right-hand side, an expression of letters: + - * / **, max, min, log2, sqrt, exp, ceil."""
    letters: tuple[Letter, ...] = ()
    """Everything that stands in the formula."""
    unit: str = "s"
    """Unit of the result, as for letters."""
    notes: tuple[str, ...] = ()
    """What else to know, one line each."""
    source: str = ""
    """Reference of the formula and origin of its constants."""

    @property
    def value(self) -> float:
        """The result: the formula evaluated from its letters."""
        return evaluate(self.formula, {letter.name: letter.value for letter in self.letters})


def evaluate(formula: str, letters: Mapping[str, float]) -> float:
    """Return the value of an expression.

    Args:
        formula: For example "n * L * max(a, b)".
        letters: Value of every name in it.

    Raises:
        ValueError: If the formula is malformed, has a letter without a value or anything but
            arithmetic, or has no real value, such as a root of a negative number.

    >>> evaluate("2 * a + max(b, 3)", {"a": 1.5, "b": 1.0})
    6.0
    """
    try:
        known = {name: float(value) for name, value in letters.items()}
        return float(_function(formula)(known))
    except _WITHOUT_VALUE as error:
        raise ValueError(f"{formula!r} has no value: {error}") from error


_Function: TypeAlias = Callable[[Mapping[str, float]], float]
"""An expression as a function of its letters."""


@lru_cache(maxsize=4096)
def _function(formula: str) -> _Function:
    """Return an expression as a function: many derivations share a formula, which is read once."""
    return _of(ast.parse(formula, "formula", mode="eval").body)


def _of(node: ast.expr) -> _Function:
    """Walk an expression; every number in it is a float, so none grows without bound."""

    def refuse(letters: Mapping[str, float]) -> float:
        raise ValueError(f"{ast.unparse(node)!r} is no arithmetic of {sorted(letters)}")

    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            constant = float(number)
            return lambda _: constant
        case ast.Name(id=name):
            return lambda letters: letters[name] if name in letters else refuse(letters)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _of(operand)
            return lambda letters: -inner(letters)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            join, one, other = _BINARY[type(op)], _of(left), _of(right)
            return lambda letters: join(one(letters), other(letters))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            call, of_args = _CALLS[name], [_of(each) for each in args]
            return lambda letters: float(call(*[each(letters) for each in of_args]))
        case _:
            return refuse
