import os
import re
import signal
import sqlite3
import subprocess
import sys

import msgspec
import pytest
from studies import CASES, SMALL

from scalewise.errors import InputError
from scalewise.study.files import Experiment, Variant, load_study, read_study, shipped
from scalewise.study.plan import changed, plan, reduced, sizes_of, templates_of
from scalewise.study.rows import select, values_of, varying
from scalewise.study.run import run_study
from scalewise.study.tasks import evaluate_step
from scalewise.sweep.run import run
from scalewise.sweep.store import Store
from waiting import until


@pytest.fixture(scope="module")
def answer():
    return run_study(read_study(SMALL, name="small"))


class Counting:
    """A runner with a store that counts what was computed and not read."""

    def __init__(self, store):
        self.store, self.computed, self.lines = store, 0, []

    def __call__(self, tasks, function, result_type):
        with Store(self.store, say=self.lines.append) as store:
            before = len(store)
            yield from run(tasks, function, result_type=result_type, store=store)
            self.computed += len(store) - before


def test_strategies_with_degrees():
    each = Experiment(id="x", title="x", strategies=("fsdp", "best"), tp=(1, 2), pp=(1, 4))
    labels = [template.label for template in templates_of(each)]
    assert labels == ["fsdp", "fsdp-pp4", "fsdp-tp2", "fsdp-tp2-pp4", "best"]


def test_sizes_as_text_and_as_a_list():
    assert sizes_of(Experiment(id="x", title="x", sizes="8..64,48")) == (8, 16, 32, 48, 64)
    assert sizes_of(Experiment(id="x", title="x", sizes=[64, 8])) == (8, 64)


def test_variants_change_cluster_chip_and_fabric():
    from scalewise.catalog import load_cluster

    cluster = load_cluster("dgx-h100", 64)
    new = changed(cluster, Variant(name="v", set={
        "scale_out_bandwidth": "800Gbit/s", "accelerator.memory_bytes": "160GB",
        "fabric.efficiency": 0.5,
    }))  # fmt: skip
    assert new.scale_out_bandwidth == 100e9
    assert new.accelerator.memory_bytes == 160e9
    assert new.fabric.efficiency == 0.5
    for wrong in ("scale_out", "fabric.eficiency", "fabrics.efficiency"):
        with pytest.raises(InputError):
            changed(cluster, Variant(name="v", set={wrong: 1.0}))


def test_a_stack_that_does_not_run_on_a_device_gives_way():
    each = Experiment(id="x", title="x", models=("llama-2-7b",), stacks=("llm-foundry",),
                      clusters=("dgx-h100", "gcp-tpu-v5p"), sizes=[64])  # fmt: skip
    assert [item.axes["stack"] for item in plan(each)] == ["llm-foundry", "maxtext-tpu"]


def test_unknown_names_name_the_experiment():
    each = Experiment(id="mine", title="x", models=("lama-2-7b",), clusters=("dgx-h100",))
    with pytest.raises(InputError, match=r"experiment mine: .*lama-2-7b"):
        plan(each)


def test_tokens_instead_of_sequences():
    each = Experiment(id="x", title="x", models=("llama-2-7b",), clusters=("dgx-h100",),
                      sizes=[64], sequences=(4096, 16384), batch_tokens=8192)  # fmt: skip
    assert [item.task.rule.batch for item in plan(each)] == [2.0, 0.5]


def test_fields_of_a_question_reach_every_point():
    words = {
        "optimizer": "adamw-8bit", "imbalance": 1.45, "power_cap": "500W", "price": 1.5,
        "network": "100GbE", "sets": ["fabric.congestion=0", "stack.gemm=0.5"], "fit": 0.6,
    }  # fmt: skip
    each = Experiment(id="x", title="x", models=("llama-2-7b",), clusters=("dgx-h100",),
                      sizes=[8], question=words)  # fmt: skip
    (item,) = plan(each)
    used = item.task.rule.at(item.task.cluster)
    assert (used.optimizer, used.imbalance, used.weights) == ("adamw-8bit", 1.45, "mixed")
    cluster = item.task.cluster
    assert (cluster.power_cap_watts, cluster.usd_per_hour) == (500.0, 1.5)
    assert cluster.scale_out_bandwidth == 12.5e9 / 8
    assert (cluster.fabric.congestion, item.task.stack.gemm, item.task.fit) == (0.0, 0.5, 0.6)
    for name, message in (
        ("optimiser", "experiment x: a question has no field `optimiser`"),
        ("seq", "experiment x: question.seq is the key `sequences` of an experiment"),
        ("deadline", "experiment x: a question has no field `deadline`"),
    ):
        wrong = msgspec.structs.replace(each, question={name: "1"})
        with pytest.raises(InputError, match=re.escape(message)):
            plan(wrong)


def test_rows_have_axes_and_metrics(answer):
    assert len(answer.of("weak")) == 4
    assert len(answer.of("rings")) == 12
    row = select(answer.rows, {"strategy": "fsdp", "accelerators": 2048})[0]
    assert row.strategy == "fsdp2048-mb2"
    first = select(answer.rows, {"strategy": "fsdp", "accelerators": 128})[0]
    rates = [each.metrics["tokens_per_second_per_accelerator"] for each in (row, first)]
    assert row.metrics["speedup"] == pytest.approx(16 * rates[0] / rates[1], rel=1e-9)
    assert row.metrics["scaling_efficiency"] == pytest.approx(
        row.metrics["speedup"] * 128 / 2048, rel=1e-12
    )
    assert row.metrics["communication_share"] == pytest.approx(
        row.metrics["exposed_fraction"] + row.metrics["contention_share"], rel=1e-12
    )
    assert 0.0 < row.metrics["exposed_fraction"] < row.metrics["comm_fraction"] < 1.0
    ring = select(answer.of("rings"), {"collective": "all_gather", "nodes": 8,
                                       "message_bytes": 2**20})[0]  # fmt: skip
    seconds = ring.metrics["collective_seconds"]
    assert ring.metrics["bus_bandwidth"] == pytest.approx(63 / 64 * 2**20 / seconds, rel=1e-12)
    buy = select(answer.of("buy"), {"change": "peak FLOP/s, 2 x: 1.98 PFLOP/s"})[0]
    # More FLOP/s from the same watts run at lower clocks.
    assert 0.1 < buy.metrics["gain"] < 1.0


def test_the_claim_is_judged_with_a_computed_reason(answer):
    (judged,) = answer.verdicts
    assert judged.verdict in ("holds", "holds with a difference")
    assert -0.45 < judged.value < -0.25
    assert judged.why.startswith("fsdp2048-mb2 on 2,048 loses")
    assert judged.why.endswith(" Because.")


def test_cases_change_keys_of_their_experiment():
    found = run_study(read_study(CASES)).of("growth")
    assert values_of(found, "case") == ["FSDP alone", "swept", "fixed batch"]
    assert len(found) == 3 * 3
    alone, swept, fixed = (select(found, {"case": name}) for name in values_of(found, "case"))
    assert [row.strategy for row in alone] == ["fsdp128-mb2", "fsdp1024-mb2", "fsdp2048-mb2"]
    # The fastest of all pairs at every size, under the tokens they share.
    assert [row.strategy for row in swept][-1] == "fsdp1024-tp2-mb4"
    assert values_of(swept, "strategy") == ["fsdp"]
    assert all("tp" not in row.axes for row in swept)
    rate = "tokens_per_second_per_accelerator"
    assert all(b.metrics[rate] >= a.metrics[rate] for a, b in zip(alone, swept, strict=True))
    assert {row.point.global_batch for row in fixed} == {2048}


def test_the_best_over_strategies_keeps_degrees_apart():
    text = CASES.replace('best_over = ["strategy", "tp"]', 'best_over = ["strategy"]')
    swept = select(run_study(read_study(text)).of("growth"), {"case": "swept"})
    assert values_of(swept, "strategy") == ["fsdp", "fsdp-tp2"]
    assert values_of(swept, "tp") == [1, 2]


def test_marginal_efficiency_per_gpu_and_per_watt(answer):
    row = select(answer.of("weak"), {"strategy": "fsdp", "accelerators": 2048})[0]
    base = select(answer.of("weak"), {"strategy": "fsdp", "accelerators": 128})[0]
    added = row.metrics["tokens_per_second"] - base.metrics["tokens_per_second"]
    watts = row.metrics["site_watts"] - base.metrics["site_watts"]
    rate = base.metrics["tokens_per_second_per_accelerator"]
    assert row.metrics["marginal_return"] == pytest.approx(added / (2048 - 128) / rate)
    assert row.metrics["marginal_joule_return"] == pytest.approx(
        added / watts / base.metrics["tokens_per_joule"]
    )
    assert row.metrics["tokens_per_device_joule"] == pytest.approx(
        row.metrics["tokens_per_second_per_accelerator"] / row.metrics["watts_per_accelerator"]
    )
    assert row.metrics["exposed_contention_share"] == pytest.approx(
        row.metrics["communication_share"] / row.metrics["comm_fraction"]
    )


def test_a_case_with_an_impossible_value_is_refused():
    text = CASES.replace('scaling = "strong"', 'scaling = "strange"')
    with pytest.raises(InputError, match="experiment growth: Invalid enum value 'strange'"):
        plan(read_study(text).experiments[0])


def test_selecting(answer):
    assert len(select(answer.rows, {"accelerators": [128, 2048], "strategy": "FSDP"})) >= 2
    assert select(answer.rows, {"strategy": "ddp"}) == []
    assert varying(answer.of("weak")) == ["strategy", "accelerators"]
    assert varying(answer.of("rings"), but=["nodes"]) == [
        "accelerators", "collective", "message_bytes",
    ]  # fmt: skip
    assert values_of(answer.of("rings"), "nodes") == [8, 64]


def test_what_cannot_run_is_a_row_with_a_reason():
    text = SMALL.replace("[128, 2048]", "[8, 12]").replace('"fsdp-tp2"', '"fsdp-tp8"')
    found = run_study(read_study(text)).of("weak")
    broken = [row for row in found if not row.feasible]
    assert [(row.axes["strategy"], row.axes["accelerators"]) for row in broken] == [
        ("fsdp-tp8", 12)
    ]
    assert "does not divide" in broken[0].infeasible


def test_an_experiment_without_points_is_named():
    text = SMALL.replace("[128, 2048]", "[12]").replace('["fsdp", "fsdp-tp2"]', '["fsdp-tp8"]')
    assert run_study(read_study(text)).empty == ["weak"]


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_study_runs_small(name):
    small = reduced(load_study(name))
    answer = run_study(small)
    assert answer.empty == []
    predicted = {row.experiment for row in answer.rows}
    assert predicted | set(answer.unpredicted) == {each.id for each in small.experiments}
    assert len(answer.verdicts) == sum(len(each.claims) for each in small.experiments)


def test_points_are_computed_once_and_shared_between_studies(tmp_path):
    runner = Counting(tmp_path / "points.db")
    first = run_study(read_study(SMALL), runner)
    assert runner.computed == 4 + 6 + 1
    again = run_study(read_study(SMALL), runner)
    assert runner.computed == 11
    assert [row.metrics for row in again.rows] == [row.metrics for row in first.rows]
    # Another study with three sizes, two of which are known.
    other = SMALL.replace("[128, 2048]", "[128, 512, 2048]").replace("Small", "Other")
    run_study(read_study(other), runner)
    assert runner.computed == 13


def test_a_damaged_store_is_set_aside_with_a_message(tmp_path):
    path = tmp_path / "points.db"
    run_study(read_study(SMALL), Counting(path))
    content = bytearray(path.read_bytes())
    content[:2048] = b"x" * 2048
    path.write_bytes(content)
    runner = Counting(path)
    answer = run_study(read_study(SMALL), runner)
    assert runner.computed == 11
    assert answer.empty == []
    assert any("points.db" in sentence for sentence in runner.lines)
    assert len([each for each in tmp_path.iterdir() if each.name.startswith("points.db.")]) >= 1


def test_killed_in_the_middle_it_goes_on_without_computing_a_point_twice(tmp_path):
    study, report = tmp_path / "small.toml", tmp_path / "report"
    # Enough searches that the kill comes in their middle.
    sizes = ", ".join(str(8 * n) for n in range(1, 60))
    study.write_text(SMALL.replace("[128, 2048]", f"[{sizes}]").replace('"fsdp-tp2"', '"best-pp1"'))
    store = report / "points.db"
    command = [sys.executable, "-m", "scalewise", "study", "run", str(study), "-o", str(report)]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until(lambda: _kept(store) >= 20 or child.poll() is not None, "20 points")
        assert child.poll() is None, "it ended before it could be killed"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    before = _made(store)
    assert 20 <= len(before) < 125
    assert not (report / "index.html").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (report / "index.html").exists()
    after = _made(store)
    # Nothing that was there was computed again: it has the time of its making.
    assert {key: after[key] for key in before} == before
    assert len(after) == 59 * 2 + 6 + 1


def _kept(path):
    return len(_made(path)) if path.exists() else 0


def _made(path):
    try:
        with sqlite3.connect(path) as connection:
            return dict(connection.execute("SELECT key, made FROM points"))
    except sqlite3.OperationalError:
        return {}


def test_answers_of_steps_know_more_than_points(answer):
    item = plan(read_study(SMALL).experiments[0])[0]
    found = evaluate_step(item.task)
    assert found.comm_seconds > 0.0
    assert found.tflops == pytest.approx(found.priced.point.mfu * 989.4, rel=0.01)
    assert "stack llm-foundry" in found.provenance["software constants"]
    assert any("stack llm-foundry" in each for each in answer.provenance["software constants"])
