from dataclasses import replace

import pytest
from measured_cases import STUDY, TWO_CORES, study_with

from scalewise.errors import InputError
from scalewise.records.links import ShapedLinks
from scalewise.study.files import load_study, read_study
from scalewise.study.jobs import Machine, distinct, points_to_measure, reasons


def changed(old, new):
    assert old in STUDY
    return read_study(STUDY.replace(old, new))


def test_points_have_the_axes_of_predictions_and_a_job():
    points = points_to_measure(study_with(), TWO_CORES)
    assert [(p.axes["strategy"], p.ranks, str(p.job.strategy), p.job.global_batch)
            for p in points] == [
        ("ddp-mb1", 1, "ddp1-mb1", 1), ("ddp-mb1", 2, "ddp2-mb1", 2),
        ("fsdp-mb1", 1, "fsdp1-mb1", 1), ("fsdp-mb1", 2, "fsdp2-mb1", 2),
    ]  # fmt: skip
    assert points[0].axes == {
        "model": "tiny", "cluster": "this-machine", "variant": "as it is", "algorithm": "auto",
        "precision": "fp32", "seq_len": 128, "strategy": "ddp-mb1", "tp": 1, "pp": 1, "cp": 1,
        "accelerators": 1, "nodes": 1,
    }  # fmt: skip
    assert (points[0].job.steps, points[0].job.warmup, points[0].job.trace_steps) == (4, 1, 0)


def test_communication_is_profiled_where_a_metric_needs_it():
    study = changed('"scaling_efficiency"]', '"comm_fraction"]')
    assert {p.job.trace_steps for p in points_to_measure(study, TWO_CORES)} == {3}


@pytest.mark.parametrize(
    ("old", "new", "count", "reason"),
    [
        ("sizes = [1, 2]", "sizes = [4, 8]", 2,
         "8 ranks do not fit: there are 2 cores, at most 2 ranks on each"),
        ('"fsdp-mb1"]', '"best"]', 2, "strategy best is searched: only a named one is measured"),
        ('"fsdp-mb1"]', '"fsdp-cp2-mb1"]', 2, "cp = 2 cannot be measured on CPUs"),
        ('"this-machine"', '"dgx-h100"', 4,
         "the study asks about h100-sxm-80gb, this machine is a cpu without a name (--on)"),
        ('"tiny"', '"llama-2-7b"', 4,
         "memory: at least 101 GiB for 1 rank, this machine has 7.45 GiB"),
        ("batch = 1", "batch = 1\nalgorithms = [\"ring\"]", 4,
         "algorithm ring: only the library's own choice is measured"),
    ],
)  # fmt: skip
def test_what_does_not_fit_has_a_reason(old, new, count, reason):
    found = reasons(points_to_measure(changed(old, new), TWO_CORES))
    assert sum(found.values()) == count
    assert any(text.startswith(reason) for text in found), found


def test_fields_of_the_question_are_measured_or_named():
    study = changed("batch = 1", 'batch = 1\nquestion = {tuning = "lora8", optimizer = "sgd"}')
    jobs = [point.job for point in points_to_measure(study, TWO_CORES)]
    assert {(job.tuning, job.optimizer) for job in jobs} == {("lora8", "sgd")}
    other = changed("batch = 1", 'batch = 1\nquestion = {loss = "fused"}')
    assert reasons(points_to_measure(other, TWO_CORES)) == {"question.loss cannot be measured": 4}
    lion = changed("batch = 1", 'batch = 1\nquestion = {optimizer = "lion"}')
    (why,) = reasons(points_to_measure(lion, TWO_CORES))
    assert why.startswith("optimizer lion cannot be measured")


def test_a_cluster_is_measured_on_its_own_accelerator():
    study = changed('"this-machine"', '"dgx-h100"')
    here = Machine(device="cuda", devices=8, accelerator="h100-sxm-80gb")
    assert reasons(points_to_measure(study, here)) == {}


def test_slurm_nodes_are_filled():
    study = changed("sizes = [1, 2]", "sizes = [2, 8, 12, 32]")
    nodes = Machine(device="cpu", devices=8, ranks=16, ranks_per_node=8)
    points = points_to_measure(study, nodes)
    assert reasons(points) == {
        "12 ranks do not fill nodes of 8 ranks": 2, "32 ranks do not fit: there are 16 ranks of "
        "Slurm": 2,
    }  # fmt: skip
    assert [p.axes["nodes"] for p in points[:2]] == [1, 1]


def test_an_unknown_model_is_named_with_its_experiment():
    with pytest.raises(InputError, match="experiment weak: unknown model tinny"):
        points_to_measure(changed('"tiny"', '"tinny"'), TWO_CORES)


def test_the_same_launch_is_measured_once_with_the_profile_that_any_point_needs():
    second = STUDY.partition("[[experiment]]")[2].replace('"weak"', '"again"')
    second = second.replace('"scaling_efficiency"]', '"comm_fraction"]')
    study = read_study(STUDY + "[[experiment]]" + second)
    points = points_to_measure(study, TWO_CORES)
    once = distinct(points)
    assert (len(points), len(once)) == (8, 4)
    assert {p.job.trace_steps for p in once} == {3}


def test_ids_follow_from_point_repeat_and_machine():
    first, second, *_ = points_to_measure(study_with(), TWO_CORES)
    again, *_ = points_to_measure(study_with(), TWO_CORES)
    assert first.id(1, "here") == again.id(1, "here")
    ids = {first.id(1, "here"), first.id(2, "here"), first.id(1, "there"), second.id(1, "here")}
    assert len(ids) == 4


def linked(sizes, fields):
    """Return the study with a changed cluster."""
    variant = f'[[experiment.variants]]\nname = "slow"\nset = {{{fields}}}\n'
    text = STUDY.replace("sizes = [1, 2]", f"sizes = {sizes}")
    return read_study(text.replace("[[experiment.figures]]", f"{variant}[[experiment.figures]]"))


def test_limited_links_are_measured_between_pretend_nodes():
    study = linked([2, 4], 'scale_up_domain = 2, scale_out_bandwidth = "100Mbit/s"')
    assert reasons(points_to_measure(study, TWO_CORES)) == {
        "limited links need Linux, root, ip and tc, on CPUs of one machine": 2
    }
    root = replace(TWO_CORES, shapes=True)
    one, two, *_ = points_to_measure(study, root)
    assert (one.axes["nodes"], one.links) == (1, None)
    assert two.axes["nodes"] == 2
    assert two.links == ShapedLinks(ranks_per_node=2, bandwidth=12.5e6)
    plain = points_to_measure(changed("sizes = [1, 2]", "sizes = [2, 4]"), root)
    assert one.key == plain[0].key
    assert two.key not in {each.key for each in plain}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("scale_up_domain = 4", "a changed cluster cannot be measured, except for its links"),
        ('scale_up_domain = 3, scale_out_bandwidth = "1Gbit/s"',
         "4 ranks do not fill nodes of 3 ranks"),
    ],
)  # fmt: skip
def test_other_changes_cannot_be_measured(fields, reason):
    study = linked([4], fields)
    root = replace(TWO_CORES, shapes=True)
    assert list(reasons(points_to_measure(study, root))) == [reason]


def test_the_shipped_study_fits_on_two_cores():
    study = load_study("scaling-on-this-machine")
    points = points_to_measure(study, replace(TWO_CORES, shapes=True))
    assert reasons(points) == {}
    once = distinct(points)
    assert (len(points), len(once)) == (55, 34)
    assert len(distinct(points_to_measure(study, TWO_CORES))) == 24
    used = {p.job.strategy.sharding for p in once if p.job is not None}
    assert used == {"ddp", "zero1", "zero3"}
    assert max(p.job.strategy.tp for p in once if p.job) == 2
    assert max(p.job.strategy.pp for p in once if p.job) == 2
    assert sum(len(each.claims) for each in study.experiments) == 21
    sweep = next(each.sweep for each in once if each.sweep is not None)
    assert sweep.sizes == [65536, 1048576, 16777216]
