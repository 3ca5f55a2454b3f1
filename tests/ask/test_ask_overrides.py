import pytest

from scalewise.ask.overrides import Overrides
from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError


def asked(*sets, **words):
    return resolve(Question(sets=sets, **words))


def test_quantities_are_read_with_their_unit():
    q = asked("cluster.scale_out_bandwidth=800Gbit/s", "cluster.pue=1.3")
    assert q.cluster.scale_out_bandwidth == 100e9
    assert q.cluster.pue == 1.3
    assert q.changes == (
        "cluster.scale_out_bandwidth = 800Gbit/s (was 50.0 GB/s)",
        "cluster.pue = 1.3 (was 1.15)",
    )


def test_every_target_can_be_changed():
    q = asked(
        "model.layers=40", "accelerator.memory_bandwidth=6.7TB/s", "fabric.hop_seconds=5us",
        "workload.seq_len=8192", "strategy.tp=2", "stack.host_layer_seconds=2ms",
        "accelerator.peak_flops.bf16=2PFLOP/s",
    )  # fmt: skip
    assert q.model.layers == 40
    assert q.cluster.accelerator.memory_bandwidth == 6.7e12
    assert q.cluster.accelerator.peak("bf16") == 2e15
    assert q.cluster.fabric.hop_seconds == 5e-6
    assert q.workload.seq_len == 8192
    assert str(q.strategy).startswith("fsdp4-tp2-mb")
    assert q.stack.host_layer_seconds == 2e-3
    assert len(q.changes) == 7


def test_changes_of_one_noun_are_made_together():
    q = asked("model.heads=40", "model.kv_heads=8", "model.hidden=5120")
    assert (q.model.heads, q.model.kv_heads, q.model.head_dim) == (40, 8, 128)


def test_implied_widths_follow():
    q = asked("model.hidden=8192")
    assert (q.model.head_dim, q.model.kv_heads) == (256, 32)


def test_a_fabric_or_accelerator_can_be_exchanged_by_name():
    q = asked("cluster.fabric=roce", "cluster.accelerator=h200-sxm-141gb")
    assert q.cluster.fabric.name == "roce"
    assert q.cluster.accelerator.name == "h200-sxm-141gb"
    assert "cluster.fabric = roce (was infiniband)" in q.changes


def test_overrides_win_over_flags():
    assert asked("workload.global_batch=32", batch="8").workload.global_batch == 32
    assert asked("cluster.accelerators=16", gpus="8").cluster.accelerators == 16


def test_none_forgets_a_value():
    assert asked("cluster.usd_per_hour=none").cluster.usd_per_hour is None


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("cluser.pue=1", "there is no `cluser` to change", "did you mean `cluster`?"),
        ("cluster.scale_out_bandwith=1", "Cluster has no field `scale_out_bandwith`",
         "`scale_out_bandwidth`"),
        ("cluster.scale_out_bandwidth=5W", "`5W` is not a value in bytes per second", "400Gbit/s"),
        ("cluster.pue", "is not of the form target.field=value", "--set cluster."),
        ("cluster.pue=nan", "must be a finite number", None),
        ("cluster.host=amdd", "`amdd` is not a value it can have", "did you mean `amd`"),
        ("strategy.overlap_dp=maybe", "`maybe` is not a value it can have", "true or false"),
        ("accelerator.scale_up_bandwidth=1TB/s", "the cluster has its own",
         "--set cluster.scale_up_bandwidth"),
        ("accelerator.peak_flops=1", "is a table", "accelerator.peak_flops.bf16"),
        ("model.moe.experts=4", "nothing inside model.moe", None),
        ("workload.seq=4", "Workload has no field `seq`", "`seq_len`"),
        ("stack.contention=-1", "must be between 0 and 1e+15", None),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_said(text, sentence, hint):
    with pytest.raises(InputError) as caught:
        asked(text)
    assert sentence in str(caught.value)
    if hint is not None:
        assert hint in caught.value.hint


def test_a_key_may_be_given_once():
    with pytest.raises(InputError, match="given twice"):
        Overrides.read(["cluster.pue=1.1", "cluster.pue=1.2"])


def test_a_field_and_its_inside_cannot_both_be_set():
    with pytest.raises(InputError, match="replaces"):
        Overrides.read(["cluster.fabric=roce", "fabric.efficiency=0.9"])
    with pytest.raises(InputError, match="replaces"):
        Overrides.read(["fabric.efficiency=0.9", "cluster.fabric=roce"])
