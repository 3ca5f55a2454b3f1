import pytest

from report_cases import CASES, priced
from scalewise.cli.common import drawn
from scalewise.report.explain import explain, print_explained

REL = 1e-12


@pytest.fixture(scope="module", params=CASES)
def told(request):
    e = priced(request.param)
    return e, explain(e)


def test_every_explained_number_is_the_estimates_own(told):
    e, explained = told
    own = e.to_dict()
    expected = {
        "parameters": e.model.parameters,
        "training_flops": e.model.training_flops(e.workload.sequence, e.convention),
    }
    for each in explained:
        table = {"term": e.terms, "memory": e.memory}.get(each.kind, {**own, **expected})
        if each.key == "rate":
            continue
        assert each.result == pytest.approx(table[each.key], rel=REL, abs=0), each.key


def test_every_cost_that_is_not_zero_is_explained_and_no_other(told):
    e, explained = told
    for kind, table in (("term", e.terms), ("memory", e.memory)):
        keys = [each.key for each in explained if each.kind == kind]
        assert keys == [name for name, value in table.items() if value]


def test_explanations_are_complete(told):
    _, explained = told
    for each in explained:
        assert each.title
        assert "=" in each.formula
        assert each.source or each.key in ("step_seconds", "joules_per_token")
        for letter in each.letters:
            assert letter.value
            assert letter.meaning


def test_text_is_printed_for_every_case(told):
    e, explained = told
    text = drawn(lambda out: print_explained(e, out))
    for place, each in enumerate(explained, start=1):
        assert f"{place}. {each.title}" in text
    assert "nan" not in text.lower().split()


def test_the_cases_cover_every_term():
    seen = {name for case in CASES for name, value in priced(case).terms.items() if value}
    assert seen == set(priced("fsdp").terms)


def test_numbers_anybody_can_check():
    told = {(each.kind, each.key): each for each in explain(priced("fsdp"))}
    assert told["result", "parameters"].result == 6738415616
    # 3 x (2 x 6,607,077,376 + 2 x 32 x 8,192 x 2,048)
    assert told["result", "training_flops"].result == 42863689728
    assert told["memory", "parameters"].result == 4 * 6738411520 / 2048
    gather = told["term", "data_parallel_gather"]
    assert any(letter.value == "386 MiB" for letter in gather.letters)
    assert gather.working[0].startswith("ring over 2,048 ranks, 8 per domain, 256 domains")
    assert sum("<- used" in line for line in gather.working) == 1


def test_a_forced_protocol_is_the_one_used():
    from scalewise import estimate

    e = priced("fsdp")
    cluster = e.cluster.with_(protocol="ll")
    forced = estimate(e.model, cluster, e.workload, e.strategy)
    gather = next(each for each in explain(forced) if each.key == "data_parallel_gather")
    assert [line.split(":")[0] for line in gather.working if "<- used" in line] == ["LL"]
    assert gather.result == pytest.approx(forced.terms["data_parallel_gather"], rel=REL)
