"""The verbs at the top of the package, and what their results show of themselves."""

import sys

import pytest

import scalewise as sw

H100 = {"on": "dgx-h100", "gpus": 16}


@pytest.fixture(scope="module")
def results():
    return {
        "estimate": sw.estimate("llama-2-7b", **H100),
        "estimates": sw.estimate(
            "llama-2-7b", **H100, strategy=[sw.parse_strategy("fsdp16-mb1")], batch=64
        ),
        "search": sw.search("llama-2-7b", **H100, batch=64, top=3),
        "scale": sw.scale("llama-2-7b", on="dgx-h100", gpus="8,16", strategy="fsdp"),
        "sensitivity": sw.sensitivity("llama-2-7b", **H100),
        "timeline": sw.timeline("llama-2-7b", **H100, strategy="fsdp16-mb1", batch=64),
    }


def test_names_and_objects_give_the_same_digits():
    named = sw.estimate("llama-2-7b", "dgx-h100", gpus=64, strategy="fsdp64-mb2", batch=256)
    built = sw.estimate(
        sw.load_model("llama-2-7b"),
        sw.load_cluster("dgx-h100", accelerators=64),
        sw.Workload(seq_len=4096, global_batch=256),
        sw.parse_strategy("fsdp64-mb2"),
    )
    assert named.terms == built.terms
    assert named.interval == built.interval


def test_many_strategies_give_arrays():
    strategies = [sw.parse_strategy(text) for text in ("fsdp16-mb1", "fsdp8-tp2-mb1")]
    many = sw.estimate("llama-2-7b", **H100, batch=64, strategy=strategies)
    assert many.step_seconds.shape == (2,)


def test_all_that_a_workload_says_is_asked():
    work = sw.Workload(
        seq_len=4096, global_batch=64, lengths="600", batching="padded", optimizer="sgd"
    )
    e = sw.estimate("llama-2-7b", "dgx-h100", work, "fsdp8-mb1", gpus=8)
    assert e.workload == work
    assert e.to_dict()["useful_fraction"] == 600 / 4096
    words = {"seq": 4096, "batch": 64, "lengths": "600", "batching": "padded", "optimizer": "sgd"}
    same = sw.estimate("llama-2-7b", "dgx-h100", strategy="fsdp8-mb1", gpus=8, **words)
    assert same.step_seconds == e.step_seconds
    with pytest.raises(sw.InputError, match="lengths: already in the workload"):
        sw.estimate("llama-2-7b", "dgx-h100", work, "fsdp8-mb1", gpus=8, lengths="700")


def test_a_workload_and_its_words_exclude_each_other():
    work = sw.Workload(seq_len=4096, global_batch=64)
    with pytest.raises(sw.InputError, match="batch: already in the workload"):
        sw.estimate("llama-2-7b", "dgx-h100", work, batch=64)


def test_unknown_words_are_refused_with_a_hint():
    with pytest.raises(sw.InputError, match="a question has no field `gpu`"):
        sw.estimate("llama-2-7b", on="dgx-h100", gpu=64)


def test_chosen_values_are_in_the_answer(results):
    assert "--seq 4096 (usual for pre-training)" in results["estimate"].defaults


@pytest.mark.parametrize(
    ("verb", "start"),
    [
        ("estimate", "<Estimate llama-2-7b on 16x h100-sxm-80gb (dgx-h100), zero1x"),
        ("estimates", "<Estimates: 1 strategies of llama-2-7b on dgx-h100>"),
        ("search", "<Search: "),
        ("scale", "<Curves: llama-2-7b (6.74B) | dgx-h100, 8-16 GPUs | strong, "),
        ("sensitivity", "<Sensitivities: "),
        ("timeline", "<Timeline: "),
    ],
)
def test_a_prompt_shows_one_line(results, verb, start):
    text = repr(results[verb])
    assert text.startswith(start)
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize(
    ("verb", "rows", "column"),
    [
        ("estimate", 1, "step_seconds"),
        ("estimates", 1, "mfu"),
        ("search", 3, "rank"),
        ("scale", 2, "accelerators"),
        ("sensitivity", 15, "gain"),
        ("timeline", 100, "stream"),
    ],
)
def test_results_are_data_frames(results, verb, rows, column):
    polars = pytest.importorskip("polars")
    found = results[verb].to_frame()
    assert isinstance(found, polars.DataFrame)
    assert column in found.columns
    assert len(found) == rows if rows < 15 else len(found) >= rows


def test_pandas_will_do_where_there_is_no_polars(results, monkeypatch):
    pandas = pytest.importorskip("pandas")
    from scalewise.report import table

    find = table.find_spec
    monkeypatch.setattr(table, "find_spec", lambda name: None if name == "polars" else find(name))
    found = results["scale"].to_frame()
    assert isinstance(found, pandas.DataFrame)
    assert list(found["accelerators"]) == [8, 16]


@pytest.mark.parametrize("verb", ["estimate", "search", "scale", "sensitivity", "timeline"])
def test_results_draw_themselves(results, verb):
    pytest.importorskip("plotly")
    figure = results[verb].plot()
    assert len(figure.data) >= 1


@pytest.mark.parametrize(
    "verb", ["estimate", "estimates", "search", "scale", "sensitivity", "timeline"]
)
def test_notebooks_get_a_block(results, verb):
    text = results[verb]._repr_html_()
    assert "<table" in text or "<div" in text
    assert "<script" not in text


def test_validation_of_a_few_runs():
    from scalewise.evidence.runs import read_runs

    runs = [run for run in read_runs() if run.source == "llm-foundry"][:5]
    found = sw.validate(runs)
    assert len(found.rows) == 5
    assert repr(found).startswith("<Validation: ")
    assert len(found.to_frame()) == 5


def test_importing_the_package_imports_no_library():
    import subprocess

    code = "import scalewise, sys; print(sorted({'numpy', 'msgspec', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
