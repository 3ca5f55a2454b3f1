import pytest

from report_cases import CASES, priced
from scalewise.cli.common import drawn
from scalewise.report.explain import print_explained, shown
from scalewise.step.explain import explain

REL = 1e-12


@pytest.fixture(scope="module", params=CASES)
def explained(request):
    e = priced(request.param)
    return e, explain(e)


def test_every_derivation_has_its_result_in_the_terminal(explained):
    e, derivations = explained
    text = drawn(lambda out: print_explained(e, out))
    for place, each in enumerate(derivations, start=1):
        assert f"{place}. {each.label}" in text
        assert f"= {shown(each.value, each.unit)}" in text
    assert "nan" not in text.lower().split()


def test_every_cost_that_is_not_zero_is_explained(explained):
    e, derivations = explained
    keys = [each.key for each in derivations]
    for table in (e.terms, e.memory):
        assert all(name in keys for name, value in table.items() if value)


def test_terms_are_those_of_the_estimate(explained):
    e, derivations = explained
    terms = [each for each in derivations if each.key in e.terms and each.unit == "s"]
    for each in terms:
        assert each.value == pytest.approx(e.terms[each.key], rel=1e-9), each.key


def test_numbers_anybody_can_check():
    answer = {(each.key, each.unit): each for each in explain(priced("fsdp"))}
    assert answer["parameters", ""].value == 6738415616
    # 3 x (2 x 6,607,077,376 + 2 x 32 x 8,192 x 2,048)
    assert answer["training_flops", "FLOP"].value == 42863689728
    assert answer["parameters", "B"].value == 4 * 6738411520 / 2048


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4096.0, "", "4,096"),
        (0.7, "", "0.7000"),
        (12345.6, "", "12,346"),
        (0.0123, "s", "12.3 ms"),
        (2.0**30, "B", "1.00 GiB"),
        (42.9e9, "FLOP", "42.9 GFLOP"),
        (0.411, "%", "41.1%"),
        (9490.0, "tok/s", "9,490 tok/s"),
    ],
)
def test_values_have_their_unit(value, unit, text):
    assert shown(value, unit) == text
