from dataclasses import replace

import pytest

from report_cases import CASES, priced
from scalewise import Workload, estimate, load_cluster, load_model, parse_strategy
from scalewise.report.suggestions import neighbors, suggestions
from scalewise.step.estimate import CHOSEN_FIT


def asked(model, on, spelled, seq_len, batch, gpus=None):
    strategy = parse_strategy(spelled)
    cluster = load_cluster(on, gpus or strategy.accelerators)
    work = Workload(seq_len=seq_len, global_batch=batch)
    return estimate(load_model(model), cluster, work, strategy)


def again(e, spelled):
    """The estimate of what was suggested."""
    return estimate(e.model, e.cluster, e.workload, parse_strategy(spelled), stack=e.stack)


@pytest.mark.parametrize("name", CASES)
def test_neighbors_use_the_same_gpus(name):
    e = priced(name)
    found = neighbors(e)
    assert found
    assert len(set(found.values())) == len(found)
    for why, strategy in found.items():
        assert strategy.accelerators == e.cluster.accelerators, why
        assert strategy != e.strategy


def test_the_best_change_was_estimated(fsdp):
    assert suggestions(fsdp) == (
        "hsdp32x64-mb2 (shard in groups of 64 ranks): 11,100 tok/s/GPU, +91%",
    )
    other = again(fsdp, "hsdp32x64-mb2")
    gain = other.tokens_per_second / fsdp.tokens_per_second - 1.0
    assert f"{100 * gain:+.0f}%" == "+91%"


@pytest.mark.parametrize("name", CASES)
def test_suggestions_fit_and_gain(name):
    e = priced(name)
    for text in suggestions(e):
        words = text.split()
        if words[0] == "more":
            # Nothing that one change makes fit.
            assert e.fit < 0.5
            continue
        if words[0] == "--batch":
            work = Workload(seq_len=e.workload.seq_len, global_batch=int(words[1]))
            e, words = replace(e, workload=work), words[3:]
        other = again(e, words[0])
        assert other.fit >= CHOSEN_FIT
        assert other.infeasible is None


def test_nothing_is_suggested_that_does_not_fit():
    # fsdp1-mb3 was suggested here, which needs 27.6 of 24 GiB: one rank shards nothing.
    e = asked("llama-2-1b", "rtx-4090", "ddp1-mb3-ga4", 2048, 12)
    assert e.fit < 0.5
    assert again(e, "ddp1-mb1-acfull").fit < CHOSEN_FIT
    (text,) = suggestions(e)
    assert text.startswith(
        "ddp1-mb3-offopt (optimizer state in host memory, 16.4 GiB per host) fits with a chance of"
    )
    large = asked("llama-3.1-405b", "rtx-4090", "ddp1-mb3-ga4", 2048, 12)
    (text,) = suggestions(large)
    start = "more GPUs, or several changes at once. No single change fits with a chance of 90%"
    assert text.startswith(start + "; nearest: fsdp1-mb3-offopt-offparam-offact, <1%")


def test_the_fastest_change_that_fits():
    e = asked("llama-2-7b", "dgx-h100", "fsdp256-mb8", 4096, 2048)
    assert e.fit < 0.5
    (text,) = suggestions(e)
    assert text == ("fsdp256-mb2 (micro-batch 2) fits with a chance of >99%: 9,320 tok/s/GPU")
    assert again(e, "fsdp256-mb4").fit < CHOSEN_FIT


@pytest.mark.parametrize(("batch", "count"), [(1, "1 micro-batch"), (4, "4 micro-batches")])
def test_an_empty_pipeline_is_blamed_on_the_batch(batch, count):
    e = asked("gpt3-175b", "dgx-a100", "zero1x1-tp8-pp8-mb1", 2048, batch)
    (text,) = suggestions(e)
    start = f"global batch is {batch}, {count} for 8 pipeline stages: raise --batch to 32, "
    assert text.startswith(start + "132 tok/s/GPU, +")
    assert "bubble" not in text


def test_a_small_chance_to_fit_is_raised_even_at_a_loss(fsdp):
    memory = fsdp.memory_bytes * 1.05
    chip = fsdp.cluster.accelerator.with_(memory_bytes=memory)
    e = estimate(
        fsdp.model, fsdp.cluster.with_(accelerator=chip), fsdp.workload,
        parse_strategy("hsdp16x128-mb2"), stack=fsdp.stack,
    )  # fmt: skip
    assert 0.5 < e.fit < CHOSEN_FIT
    (text,) = suggestions(e)
    assert " fits with a chance of " in text
    assert text.endswith("%")
