"""Plans and queues of the web UI: no files, bounded, texts pasted; digits are in test_ask_doors."""

import msgspec
import pytest

from scalewise.ask.question import Question
from scalewise.ask.state import from_query, to_toml

RUN = {"name": "a", "question": {"model": "llama-3-8b", "tokens": "100B"}}


def test_rows_have_the_texts_of_the_terminal(ask):
    answer = ask("plan", question={"model": "llama-2-7b", "gpus": "64,128", "tokens": "1T",
                                   "deadline": "20d"})  # fmt: skip
    rows = answer["plan"]["rows"]
    marked = [row for row, shown in zip(rows, answer["shown"], strict=True) if shown["answer"]]
    assert marked == [answer["plan"]["answers"][0]["answer"]]
    assert answer["words"]["Goodput"][0].startswith(answer["shown"][0]["size"])
    first = answer["shown"][0]
    assert first["met"]
    assert first["limits"] == ["meets", ""]
    assert first["price"] == "2.95 market"
    assert answer["next"].startswith("-o plan.toml, then scalewise export plan.toml --to ")
    assert "[[" not in answer["copy"]["toml"]
    # Sizes that were tried besides are there, but not among the first.
    assert any(not shown["listed"] for shown in answer["shown"])
    # The answer as a run of the queue.
    asked = from_query(answer["copy"]["query"])
    assert (asked.gpus, asked.strategy) == (str(rows[0]["accelerators"]), rows[0]["strategy"])


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("plan", {"question": {"model": "llama-2-7b,a.toml"}}, "'a.toml' is not a name"),
        ("plan", {"question": {"on": "dgx-h100,../x"}}, "'../x' is not a name"),
        ("plan", {"question": {"on": ",".join(["dgx-h100"] * 13)}}, "13 pairs of models and"),
        ("plan", {"question": {"deadline": "21"}}, "21: has no unit"),
        ("plan", {"by": "speed"}, "Invalid enum value 'speed'"),
        ("queue", {}, "has no [[run]]"),
        ("queue", {"runs": [RUN] * 41}, "length <= 40"),
        ("queue", {"question": {"gpus": "64"}, "runs": [RUN, RUN]}, "run a is there twice"),
        ("queue", {"text": "["}, "the text"),
        ("queue", {"text": "gpus = 8"}, "the text has no model and no [[run]]"),
        ("queue", {"text": '[[run]]\nplan = "/etc/passwd"'}, "plan names a file"),
        ("queue", {"text": '[[run]]\nmodel = "/tmp/m.json"'}, "'/tmp/m.json' is not a name"),
        ("queue", {"text": 'on = "/x.toml"\n[[run]]\nmodel = "gpt2"'}, "'/x.toml' is not a name"),
        ("queue", {"text": 'model = "gpt2"\ngoodput = "/x.toml"'}, "'/x.toml' names a file"),
    ],
)
def test_what_is_refused(client, path, body, said):
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == 400
    assert said in response.json()["error"]


def test_a_pasted_plan_joins_the_runs(ask):
    plan = Question(model="llama-3-8b", gpus=64, strategy="fsdp64-mb1", batch=128, tokens="50B")
    question = {"on": "dgx-h100", "gpus": "128"}
    answer = ask("queue", question=question, runs=[RUN], text=to_toml(plan), start="2027-01-04")
    runs = answer["queue"]["runs"]
    assert [(run["name"], run["accelerators"]) for run in runs] == [
        ("a", 128),
        ("llama-3-8b-2", 64),
    ]
    assert runs[1]["strategy"] == "fsdp64-mb1"
    # What the page keeps in its address is the same question.
    kept = from_query(answer["queries"][1]["query"])
    assert msgspec.structs.replace(kept, gpus=64, batch=128, on="dgx-h100") == plan
    assert [trace["name"] for trace in answer["figure"]["data"]] == [
        "predicted", "to the far end of the 80% interval",
    ]  # fmt: skip
    assert answer["cells"][1][0] == "64"
