"""Formulas that are evaluated: arithmetic, and nothing else."""

import pytest

from scalewise.derivation import Derivation, Letter, evaluate


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("1", 1.0),
        ("0", 0.0),
        ("1e6", 1e6),
        ("0.06", 0.06),
        ("a", 3.0),
        ("a + b", 5.0),
        ("a - b - 1", 0.0),
        ("a * b", 6.0),
        ("a / b", 1.5),
        ("a ** b", 9.0),
        ("-a", -3.0),
        ("-a ** 2", -9.0),
        ("2 * a + b / 4", 6.5),
        ("2 * (a + b) / 4", 2.5),
        ("a / b / 2", 0.75),
    ],
)
def test_arithmetic(formula, expected):
    value = evaluate(formula, {"a": 3.0, "b": 2.0})
    assert value == expected
    assert isinstance(value, float)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("max(a, b)", 3.5),
        ("max(a, b, 7)", 7.0),
        ("min(a, b)", 2.0),
        ("log2(8 * b)", 4.0),
        ("sqrt(b + 7)", 3.0),
        ("exp(b - 2)", 1.0),
        ("ceil(a)", 4.0),
        ("floor(a)", 3.0),
        ("ceil(a / b) * b", 4.0),
        ("max(a - 4, min(b, 0) + 1)", 1.0),
    ],
)
def test_calls(formula, expected):
    value = evaluate(formula, {"a": 3.5, "b": 2.0})
    assert value == expected
    assert isinstance(value, float)


def test_letters_may_be_longer_than_one():
    assert evaluate("Ag + 2 * t0", {"Ag": 1.0, "t0": 0.5}) == 2.0


@pytest.mark.parametrize("formula", ["c", "a * c", "max(a, c)", "A"])
def test_a_letter_without_a_value_is_refused(formula):
    with pytest.raises(ValueError, match="no arithmetic of"):
        evaluate(formula, {"a": 1.0})


@pytest.mark.parametrize(
    "formula",
    [
        "a.real",
        "a.__class__",
        "a < 1",
        "a == a",
        "a and 1",
        "not a",
        "a if a else 1",
        "[a]",
        "(a, a)",
        "{a}",
        "a[0]",
        "'a'",
        "True",
        "a + False",
        "True.real",
        "None",
        "1j",
        "lambda: a",
        "(b := a)",
        "a // 2",
        "a % 2",
        "a @ a",
        "a | 1",
        "~a",
        "abs(a)",
        "a(1)",
        "max(*a)",
        "max(a, a, key=a)",
        "__import__('os')",
        "a.max(1)",
    ],
)
def test_anything_but_arithmetic_is_refused(formula):
    with pytest.raises(ValueError, match="no arithmetic of"):
        evaluate(formula, {"a": 1.0})


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "a +",
        "(a",
        "a b",
        "a\nb",
        "a\0",
        "lambda",
        "max()",
        "min()",
        "sqrt()",
        "log2(a, a)",
        "a / 0",
        "log2(0)",
        "sqrt(-a)",
        "(-a) ** 0.5",
        "0 ** -a",
        "10 ** 400",
        "9 ** 9 ** 9 ** 9",
        "1" + "0" * 400,
        "ceil(1e999)",
        "(" * 500 + "a" + ")" * 500,
        "-" * 5000 + "a",
    ],
)
def test_what_has_no_value_is_refused(formula):
    with pytest.raises(ValueError, match="has no value: ") as raised:
        evaluate(formula, {"a": 1.0})
    assert repr(formula) in str(raised.value)


def test_a_derivation_evaluates_its_formula():
    inner = Derivation(
        key="P",
        label="parameters of one rank",
        formula="N / s",
        letters=(Letter("N", 8e9, "parameters"), Letter("s", 8.0, "shards")),
        unit="",
    )
    outer = Derivation(
        key="optimizer",
        label="optimizer",
        formula="b * P / B",
        letters=(
            Letter("b", 16.0, "bytes moved per parameter"),
            Letter("P", inner.value, inner.label, "", inner),
            Letter("B", 2e12, "memory bandwidth", "B/s"),
        ),
    )
    assert inner.value == 1e9
    assert outer.value == pytest.approx(0.008, rel=1e-15)
    assert outer.unit == "s"
