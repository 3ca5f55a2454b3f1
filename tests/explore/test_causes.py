import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.explore.causes import find_cause, gather_parts
from scalewise.explore.points import Point
from scalewise.explore.sizes import Rule
from scalewise.model import load_model
from scalewise.step.estimate import estimate
from scalewise.strategy import parse_strategy

WEAK = Rule(kind="weak", batch=2, seq_len=4096)


def point(rate, term, seconds, strategy="fsdp8-mb1", gather=None):
    """1000 tokens per step and accelerator, `seconds` of them spent on one term."""
    whole, latency = gather or (None, None)
    total = 1000.0 / rate
    return Point(
        accelerators=8, strategy=strategy, global_batch=8, num_microbatches=1, step_seconds=total,
        terms={"gemm": total - seconds, term: seconds}, tokens_per_second=8 * rate,
        tokens_per_second_per_accelerator=rate, low=rate, high=rate, mfu=0.4,
        exposed_fraction=0.0, contention_share=0.0, memory_bytes=1e9, all_gather_seconds=whole,
        all_gather_latency=latency,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("term", "strategy", "gathers", "name"),
    [
        ("dp_all_gather", "fsdp8-mb1", ((3.0, 1.0), (5.0, 2.5)),
         "exposed all-gather (ring latency)"),
        ("dp_all_gather", "fsdp8-mb1", ((3.0, 1.0), (5.0, 1.5)),
         "exposed all-gather (network bandwidth)"),
        ("dp_grad_reduce", "fsdp8-mb1", ((3.0, 1.0), (5.0, 2.5)),
         "exposed reduce-scatter (ring latency)"),
        ("dp_grad_reduce", "hsdp2x4-mb1", ((3.0, 1.0), (3.0, 1.0)),
         "exposed reduce-scatter and all-reduce between replicas"),
        ("dp_grad_reduce", "ddp8-mb1", (None, None), "exposed gradient all-reduce"),
        ("dp_grad_reduce", "zero1x8-mb1", (None, None),
         "exposed reduce-scatter and all-gather"),
        ("dp_grad_reduce", "zero2x8-mb1", (None, None), "exposed reduce-scatter"),
        ("contention", "fsdp8-mb1", ((3.0, 1.0), (5.0, 2.5)),
         "contention with all-gathers (ring latency)"),
        ("contention", "hsdp2x4-mb1", ((3.0, 1.0), (3.0, 1.0)),
         "contention with the all-reduce between replicas"),
        ("bubble", "fsdp4-pp2-mb1", (None, None), "pipeline bubble"),
        ("host", "fsdp8-mb1", (None, None), "kernel launches: kernels too short for the host"),
        ("straggler", "fsdp8-mb1", (None, None), "stragglers: waiting for the slowest domain"),
        # The best strategy sharded nothing at the smaller size.
        ("dp_all_gather", "fsdp8-mb1", (None, (5.0, 3.0)),
         "exposed all-gather (ring latency)"),
    ],
)  # fmt: skip
def test_causes_have_names(term, strategy, gathers, name):
    before = point(100.0, term, 1.0, strategy, gathers[0])
    after = point(80.0, term, 3.5, strategy, gathers[1])
    cause = find_cause(before, after)
    assert (cause.term, cause.name) == (term, name)
    assert (cause.share, cause.loss) == (pytest.approx(1.0), pytest.approx(0.2))


@pytest.mark.parametrize(
    ("term", "name"),
    [
        ("contention", "contention with all-gathers (fewer tokens per all-gather)"),
        ("dp_all_gather", "exposed all-gather (fewer tokens per all-gather)"),
        ("dp_grad_reduce", "exposed reduce-scatter (fewer tokens per all-gather)"),
    ],
)
def test_smaller_micro_batches_gather_for_fewer_tokens(term, name):
    # Strong scaling: half of the tokens per accelerator in one micro-batch, as long a gather.
    before = point(100.0, term, 1.0, gather=(3.0, 1.0))
    half = point(80.0, term, 3.5, gather=(3.2, 1.2))
    half = msgspec.structs.replace(
        half, step_seconds=half.step_seconds / 2, terms={k: v / 2 for k, v in half.terms.items()}
    )
    assert find_cause(before, half).name == name
    # As many tokens in two micro-batches as before in one: the same.
    twice = msgspec.structs.replace(point(80.0, term, 3.5, gather=(3.2, 1.2)), num_microbatches=2)
    assert find_cause(before, twice).name == name


def test_no_loss_has_no_cause():
    assert find_cause(point(100.0, "host", 1.0), point(100.0, "host", 2.0)) is None
    assert find_cause(point(100.0, "host", 1.0), point(120.0, "host", 2.0)) is None


def parts(strategy, size, **changes):
    cluster = load_cluster("dgx-h100", size).with_(**changes)
    many = estimate(load_model("llama-2-7b"), cluster, WEAK.at(cluster), [parse_strategy(strategy)])
    return gather_parts(many, 0)


def test_latency_of_a_ring_grows_with_ranks_and_its_transfer_hardly():
    small, large = parts("fsdp128-mb2", 128), parts("fsdp2048-mb2", 2048)
    assert large[1] / small[1] > 8
    assert 1.0 < (large[0] - large[1]) / (small[0] - small[1]) < 1.5
    assert 0.0 < small[1] < small[0]


def test_more_bandwidth_shortens_the_transfer_only():
    slow = parts("fsdp256-mb2", 256, protocol="simple")
    fast = parts("fsdp256-mb2", 256, protocol="simple", scale_out_bandwidth=400e9,
                 scale_up_bandwidth=3600e9)  # fmt: skip
    assert fast[1] == pytest.approx(slow[1], rel=1e-6)
    assert fast[0] - fast[1] == pytest.approx((slow[0] - slow[1]) / 8, rel=1e-6)


def test_only_rings_of_sharded_parameters_have_parts():
    assert parts("ddp8-mb2", 8) is None
    assert parts("zero1x8-mb2", 8) is None
    assert parts("fsdp1-tp8-mb2", 8) is None
    assert parts("fsdp8-mb2", 8, algorithm="pat") is None


def test_parts_are_those_of_the_row():
    cluster = load_cluster("dgx-h100", 64)
    rows = [parse_strategy(text) for text in ("fsdp64-mb2", "hsdp8x8-mb1", "fsdp32-tp2-mb4")]
    many = estimate(load_model("llama-2-7b"), cluster, WEAK.at(cluster), rows)
    assert [gather_parts(many, row) for row in range(3)] == [
        parts("fsdp64-mb2", 64), parts("hsdp8x8-mb1", 64), parts("fsdp32-tp2-mb4", 64)
    ]  # fmt: skip
