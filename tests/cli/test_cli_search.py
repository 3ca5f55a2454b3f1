"""`scalewise search` as a user sees it."""

import json

FEW = ("--tp", "1,2", "--pp", "1,2", "--cp", "1", "--micro-batch", "1,2")


def ask(run, *words):
    return run("search", "llama-2-7b", "--on", "dgx-h100", "--gpus", "16", "--batch", "32", *words)


def test_a_table_and_what_became_of_the_rest(run):
    result = ask(run, *FEW)
    assert result.exit_code == 0
    assert "strategies tried" in result.stdout
    assert "To launch:" in result.stdout
    assert "tokens/s/acc." in result.stdout


def test_json(run):
    result = ask(run, *FEW, "--json", "--top", "3", "--pareto", "time,energy")
    data = json.loads(result.stdout)
    assert data["examined"] == data["feasible"] + sum(data["infeasible"].values())
    assert len(data["strategies"]) == 3
    assert data["best"] == data["strategies"][0]
    assert data["best"]["terms"]["gemm"] > 0
    assert data["pareto"]


def test_nothing_fits_is_an_answer_with_code_1(run):
    result = run(
        "search", "llama-3.1-405b", "--on", "dgx-h100", "--gpus", "8", "--batch", "8", "--pp", "1"
    )
    assert result.exit_code == 1
    assert "No strategy fits" in result.stdout
    assert "Nearest:" in result.stdout


def test_wrong_words(run):
    for words in (("--tp", "a"), ("--by", "speed"), ("--sharding", "zero9"), ("--batch", "0")):
        result = ask(run, *words)
        assert result.exit_code == 2, words
        assert "Traceback" not in result.stderr
