import pytest

from timeline_cases import line


def peak(step):
    return max(sample.value for rank in step.ranks for sample in step.memory(rank))


@pytest.mark.parametrize(
    ("spelled", "model", "batch"),
    [
        ("fsdp64-mb2", "llama-2-7b", 256),
        ("fsdp64-mb2-acfull", "llama-2-7b", 256),
        ("fsdp64-mb2-noreshard-acsel", "llama-2-7b", 256),
        ("fsdp64-mb2-ac1of4", "llama-2-7b", 256),
        ("fsdp64-mb2-acop", "llama-2-7b", 256),
        ("ddp64-mb1", "llama-2-7b", 64),
        ("zero2x8-tp8-mb1-nosp", "llama-2-7b", 64),
        ("fsdp8-tp4-cp2-mb1", "llama-2-7b", 64),
        ("tp8-pp8-zero1x16-mb1", "gpt3-175b", 512),
        ("tp8-pp8-zero1x16-mb1-acfull", "gpt3-175b", 512),
        ("tp8-pp8-zero1x16-mb1-v4", "gpt3-175b", 512),
        ("tp8-pp8-zero1x16-mb1-v2-acfull", "gpt3-175b", 512),
        ("tp8-pp16-fsdp8-mb1", "llama-3.1-405b", 512),
        ("fsdp64-ep8-mb1", "mixtral-8x7b", 128),
        ("fsdp64-ep8-etp2-mb1-acfull", "mixtral-8x7b", 128),
        ("zero1x16-tp4-ep16-mb1-acact", "qwen3-30b-a3b", 64),
        ("zero1x64-pp4-ep32-mb1-aclatent", "deepseek-v2", 1024),
        ("zero1x64-pp8-ep64-mb1-aclatent-acnorm", "deepseek-v3-mtp", 1024),
        ("zero1x32-pp4-ep32-mb1", "deepseek-v2-lite", 256),
        ("fsdp64-ep16-mb1-acop", "llama-4-scout", 64),
    ],
)
def test_the_peak_is_the_memory_of_the_estimate(spelled, model, batch):
    step = line(spelled, model, batch=batch)
    assert peak(step) == pytest.approx(step.estimate.memory_bytes, rel=1e-3)


@pytest.mark.parametrize("schedule", ["zbh1", "zbv"])
def test_zero_bubble_schedules_hold_a_little_longer(schedule):
    step = line(f"tp8-pp8-zero1x16-mb1-{schedule}", "gpt3-175b", batch=512)
    assert 1.0 <= peak(step) / step.estimate.memory_bytes < 1.1


def test_memory_starts_and_ends_with_what_always_stays():
    step = line("fsdp64-mb2", batch=256)
    samples = step.memory(0)
    assert samples[0].start == 0.0
    assert samples[-1].value == pytest.approx(samples[0].value, rel=1e-6)
    assert [s.start for s in samples] == sorted(s.start for s in samples)


def test_earlier_stages_hold_more_micro_batches():
    step = line("tp8-pp8-zero1x16-mb1", "gpt3-175b", batch=512)
    moving = [
        max(s.value for s in step.memory(rank)) - step.memory(rank)[0].value for rank in (1, 4, 6)
    ]
    assert moving[0] / moving[1] == pytest.approx(7 / 4, rel=1e-6)
    assert moving[1] / moving[2] == pytest.approx(4 / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("spelled", "model"),
    [
        ("ddp1-mb2", "llama-3.2-3b"),  # Activations and logits when forward ends.
        ("ddp1-mb1-acfull", "llama-3-8b"),  # Gradients when backward ends.
    ],
)
def test_gradients_appear_as_activations_go(spelled, model):
    step = line(spelled, model, stack="pytorch")
    assert peak(step) == pytest.approx(step.estimate.memory_bytes, rel=1e-3)
