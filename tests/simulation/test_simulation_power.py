import pytest

from timeline_cases import line


def mean(step, rank):
    samples = step.power(rank)
    ends = [*(sample.start for sample in samples[1:]), step.step_seconds]
    joules = sum(s.value * (end - s.start) for s, end in zip(samples, ends, strict=True))
    return joules / step.step_seconds


@pytest.mark.parametrize(
    ("spelled", "model", "batch"),
    [
        ("fsdp256-mb2", "llama-2-7b", 1024),
        ("tp8-pp8-zero1x16-mb1", "gpt3-175b", 1536),
        ("fsdp64-ep8-mb2", "mixtral-8x7b", 512),
    ],
)
def test_mean_power_is_near_that_of_the_estimate(spelled, model, batch):
    step = line(spelled, model, batch=batch)
    # Blocks draw like compute; the estimate tells memory-bound work apart.
    assert mean(step, step.critical_rank) == pytest.approx(
        step.estimate.watts_per_accelerator, rel=0.05
    )


def test_power_stays_between_idle_and_cap():
    step = line("tp8-pp8-zero1x16-mb1", "gpt3-175b", batch=512)
    cluster = step.estimate.cluster
    for rank in step.ranks:
        values = [sample.value for sample in step.power(rank)]
        assert min(values) >= cluster.idle
        assert max(values) <= cluster.power_limit
        assert max(values) > min(values)
