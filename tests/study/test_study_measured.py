import math

import msgspec
import pytest
from measured_cases import claim, study_with, write_records

from machine_records import WHERE, record
from scalewise.errors import InputError
from scalewise.measure.idle import LaunchNote, journal_of, note_launch
from scalewise.records.files import append
from scalewise.study.files import read_study
from scalewise.study.judging import judge_measured, measured_answer, noises
from scalewise.study.measured import measured_rows

# Tokens/s: 128 tokens per rank and step. DDP: 1,280 on one rank, 2,133 on two; FSDP on two: 1,600.
SECONDS = {
    ("ddp-mb1", 1): (0.100, 0.102, 0.098),
    ("ddp-mb1", 2): (0.120, 0.122, 0.118),
    ("fsdp-mb1", 1): (0.110, 0.111, 0.109),
    ("fsdp-mb1", 2): (0.160, 0.163, 0.157),
}
TIED = SECONDS | {("fsdp-mb1", 2): (0.121, 0.119, 0.122)}


def judged(folder, seconds, text, **given):
    study = study_with(text)
    write_records(folder, seconds, study=study, **given)
    (verdict,) = measured_answer(study, str(folder)).verdicts
    return verdict


def sides(first, second, bound):
    return f"first = {first}\nsecond = {second}\n{bound}"


DDP_OVER_FSDP = sides(
    '{accelerators = 2, strategy = "fsdp-mb1"}', '{accelerators = 2, strategy = "ddp-mb1"}',
    "at_least = 1.0",
)  # fmt: skip


def test_rows_have_the_medians_of_the_repeats(tmp_path):
    write_records(tmp_path, SECONDS)
    found = measured_rows(study_with(), tmp_path)
    assert (len(found.rows), found.missing) == (4, 0)
    row = found.rows[1]
    assert row.axes["strategy"] == "ddp-mb1"
    assert row.metrics["tokens_per_second"] == pytest.approx(256 / 0.120)
    assert row.samples["tokens_per_second"] == pytest.approx((256 / 0.12, 256 / 0.122, 256 / 0.118))
    assert row.metrics["scaling_efficiency"] == pytest.approx(0.100 / 0.120, rel=1e-2)
    assert row.metrics["speedup"] == pytest.approx(2 * 0.100 / 0.120, rel=1e-2)
    assert row.metrics["comm_fraction"] is None
    assert row.interval == pytest.approx((128 / 0.122, 128 / 0.118))
    assert "Paper CPU (2 cores), gloo, PyTorch 2.13.0" in found.machine


def test_points_relative_to_themselves_do_not_make_others_look_calm(tmp_path):
    write_records(tmp_path, SECONDS)
    rows = measured_rows(study_with(), tmp_path).rows
    assert [row.samples["speedup"] for row in rows if row.axes["accelerators"] == 1] == [
        (1.0, 1.0, 1.0), (1.0, 1.0, 1.0),
    ]  # fmt: skip
    assert (noises(rows)["speedup"].freedom, noises(rows)["tokens_per_second"].freedom) == (4, 8)


def test_points_without_records_have_no_row(tmp_path):
    write_records(tmp_path, {("ddp-mb1", 1): (0.1,), ("ddp-mb1", 2): (0.1,)})
    found = measured_rows(study_with(), tmp_path)
    assert [row.axes["strategy"] for row in found.rows] == ["ddp-mb1", "ddp-mb1"]
    assert found.missing == 2


def test_records_of_another_machine_are_left_out_with_a_note(tmp_path):
    write_records(tmp_path, SECONDS)
    other = msgspec.structs.replace(WHERE, host="elsewhere")
    append(tmp_path / "train.jsonl", record("collective", {}, {"rows": []}, where=other))
    assert (
        "1 of 13 records are of another machine" in measured_rows(study_with(), tmp_path).notes[0]
    )


def test_a_folder_without_records_is_an_error(tmp_path):
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(InputError, match="no record of training or collectives"):
        measured_rows(study_with(), tmp_path)


def test_a_difference_beyond_the_repeats_holds(tmp_path):
    verdict = judged(tmp_path, SECONDS, claim(more=DDP_OVER_FSDP))
    assert verdict.verdict == "holds"
    assert verdict.ours == "1.33 x"
    assert verdict.why == "95% interval of the repeats: 1.29 x to 1.38 x."


def test_the_opposite_difference_does_not_hold(tmp_path):
    swapped = SECONDS | {
        ("ddp-mb1", 2): SECONDS["fsdp-mb1", 2], ("fsdp-mb1", 2): SECONDS["ddp-mb1", 2],
    }  # fmt: skip
    verdict = judged(tmp_path, swapped, claim(more=DDP_OVER_FSDP))
    assert (verdict.verdict, verdict.ours) == ("does not hold", "0.75 x")


def test_a_difference_within_the_repeats_is_not_told_apart(tmp_path):
    assert judged(tmp_path, TIED, claim(more=DDP_OVER_FSDP)).verdict == "not told apart"


def test_one_repeat_decides_nothing(tmp_path):
    once = {at: times[:1] for at, times in SECONDS.items()}
    verdict = judged(tmp_path, once, claim(more=DDP_OVER_FSDP))
    assert verdict.verdict == "not told apart"
    assert verdict.why == "No point has two repeats: their spread is unknown."


def test_other_load_around_a_launch_widens_until_nothing_is_told_apart(tmp_path):
    study = study_with(claim(more=DDP_OVER_FSDP))
    write_records(tmp_path, SECONDS, study=study)
    rows = measured_rows(study, tmp_path).rows
    for row in rows:
        for id in row.records:
            slow = 0.015 if row.axes["accelerators"] == 2 else 0.010
            note_launch(journal_of(tmp_path), id, LaunchNote(seconds=8.0, before=0.01, after=slow))
    answer = measured_answer(study, str(tmp_path))
    assert answer.found.rows[1].disturbed == pytest.approx(math.log(1.5))
    assert answer.verdicts[0].verdict == "not told apart"
    assert answer.verdicts[0].why.endswith("Widened: other load was on the machine.")


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ("published = -0.17", "holds"),
        ("published = -0.30", "holds with a difference"),
        ("published = 0.30", "does not hold"),
        ("at_most = -0.1", "holds"),
        ("at_most = -0.165", "not told apart"),
        ("at_most = -0.5", "does not hold"),
    ],
)
def test_changes_follow_the_rules_of_predictions(bound, verdict, tmp_path):
    more = sides("{accelerators = 1}", "{accelerators = 2}", bound)
    text = claim(
        "change", "tokens_per_second_per_accelerator", f'where = {{strategy = "ddp-mb1"}}\n{more}'
    )
    found = judged(tmp_path, SECONDS, text)
    assert found.value == pytest.approx(0.100 / 0.120 - 1.0)
    assert found.verdict == verdict


def test_communication_is_compared_where_steps_were_profiled(tmp_path):
    more = sides(
        '{accelerators = 2, strategy = "ddp-mb1"}', '{accelerators = 2, strategy = "fsdp-mb1"}',
        "at_least = 1.5",
    )  # fmt: skip
    traces = {("ddp-mb1", 1): 0.001, ("fsdp-mb1", 1): 0.001, ("ddp-mb1", 2): 0.02,
              ("fsdp-mb1", 2): 0.06}  # fmt: skip
    verdict = judged(tmp_path, SECONDS, claim(metric="comm_fraction", more=more), traces=traces)
    assert (verdict.verdict, verdict.ours) == ("holds", "2.25 x")


def test_without_a_profile_communication_is_not_judged(tmp_path):
    more = 'second = {accelerators = 2, strategy = "ddp-mb1"}\nat_least = 0.1'
    verdict = judged(tmp_path, SECONDS, claim("value", "comm_fraction", more))
    assert (verdict.verdict, verdict.why) == ("not judged", "comm_fraction was not measured.")


def test_an_order_holds_only_where_neighbors_are_told_apart(tmp_path):
    more = 'where = {accelerators = 2}\naxis = "strategy"\npublished = ["ddp-mb1", "fsdp-mb1"]'
    text = claim("order", "tokens_per_second", more)
    assert judged(tmp_path / "a", SECONDS, text).verdict == "holds"
    assert judged(tmp_path / "b", TIED, text).verdict == "not told apart"
    peak = claim("peak", "tokens_per_second", more.replace('"ddp-mb1", ', ""))
    assert judged(tmp_path / "c", SECONDS, peak).verdict == "does not hold"
    assert judged(tmp_path / "d", TIED, peak).verdict == "not told apart"


CROSSING = claim(
    "crossover", "tokens_per_second",
    'first = {strategy = "ddp-mb1"}\nsecond = {strategy = "fsdp-mb1"}\npublished = 2.0',
)  # fmt: skip


@pytest.mark.parametrize(
    ("fsdp", "verdict", "ours"),
    [
        ((0.100, 0.101, 0.099), "holds", "2 GPUs"),
        ((0.121, 0.119, 0.122), "not told apart", "-"),
        ((0.160, 0.163, 0.157), "not judged", "-"),
    ],
)
def test_a_crossover_is_where_the_second_leads_beyond_the_repeats(fsdp, verdict, ours, tmp_path):
    found = judged(tmp_path, SECONDS | {("fsdp-mb1", 2): fsdp}, CROSSING)
    assert (found.verdict, found.ours) == (verdict, ours)


def test_collectives_are_rows_by_message(tmp_path):
    study = read_study("""
title = "Rings"
[[experiment]]
id = "rings"
title = "1. Rings"
kind = "collectives"
clusters = ["this-machine"]
sizes = [2]
collectives = ["all_reduce"]
messages = ["1KiB", "1MiB"]
[[experiment.claims]]
statement = "Time grows with bytes"
source = "a test"
measure = "ratio"
metric = "collective_seconds"
first = {message_bytes = 1024}
second = {message_bytes = 1048576}
at_least = 10.0
""")
    for number, factor in enumerate((1.0, 1.02), start=1):
        rows = [
            {"op": "all_reduce", "accelerators": 2, "placement": "packed", "message_bytes": size,
             "time_us": time * factor}
            for size, time in ((1024, 100.0), (1048576, 2000.0))
        ]  # fmt: skip
        append(tmp_path / "collective.jsonl",
               record("collective", {}, {"rows": rows}, number=number))  # fmt: skip
    answer = measured_answer(study, str(tmp_path))
    assert [row.axes["message_bytes"] for row in answer.found.rows] == [1024, 1048576]
    # Bus bandwidth of an all-reduce on 2 ranks: bytes over time.
    assert answer.found.rows[1].metrics["bus_bandwidth"] == pytest.approx(
        1048576 / 2.02e-3, rel=1e-3
    )
    assert [(each.verdict, each.ours) for each in answer.verdicts] == [("holds", "20.00 x")]


def test_judging_needs_a_point(tmp_path):
    study = study_with(claim(more=DDP_OVER_FSDP))
    write_records(tmp_path, {("ddp-mb1", 2): (0.1, 0.1)}, study=study)
    rows = measured_rows(study, tmp_path).rows
    (experiment,) = study.experiments
    found = judge_measured(experiment.claims[0], experiment, rows, noises(rows))
    assert (found.verdict, found.why) == (
        "not judged", "the claim is about no point of this run, not about one.",
    )  # fmt: skip
