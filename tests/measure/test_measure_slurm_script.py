"""What Slurm is asked for, and what becomes of its variables; no cluster is needed."""

import re
import shlex
import subprocess
import sys

import pytest

from measure_jobs import job, record
from scalewise.errors import InputError
from scalewise.measure import missing_launches, slurm
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.slurm import Plan
from scalewise.measure.slurm_rank import first_node, master_addr, rank_variables, tasks_of
from scalewise.measure.slurm_script import Allocation, sbatch_script
from scalewise.measure.sweeps import SweepSpec
from scalewise.records.files import append
from scalewise.slurm.queue import ENDINGS

STEP = {
    "SLURM_JOB_ID": "71",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_TASKS": "24",
    "SLURM_STEP_TASKS_PER_NODE": "8(x3)",
    "SLURM_STEP_NODELIST": "no-such-node[007-009]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
}


def spec(folder, strategy="ddp2-mb4", *, launch=1, number=0, **changes):
    planned = PlannedJob(job=job(strategy, **changes), id=f"job{number}-{launch}", launch=launch)
    return LaunchSpec(planned=[planned], records=str(folder / "train.jsonl"), device="cpu")


def test_slurms_variables_become_torchruns():
    assert rank_variables(STEP) == {
        "RANK": "17",
        "WORLD_SIZE": "24",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": str(10_000 + 71 * 64 + 3),
    }
    assert rank_variables({**STEP, "MASTER_ADDR": "head"})["MASTER_ADDR"] == "head"
    large = rank_variables({**STEP, "SLURM_JOB_ID": "98765432"})["MASTER_PORT"]
    assert 10_000 <= int(large) < 30_000


def test_ranks_meet_by_name_where_it_resolves():
    assert master_addr({"SLURM_STEP_NODELIST": "localhost,other"}) == "localhost"
    assert master_addr({"SLURM_STEP_NODELIST": "no-such-node1"}) == "no-such-node1"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("node1", "node1"),
        ("node[1-2]", "node1"),
        ("gpu[003-005,9],login1", "gpu003"),
        ("r[1-2]n[04-07]", "r1n04"),
        ("a,b[1-2]", "a"),
        ("x[7]-ib", "x7-ib"),
    ],
)
def test_the_first_node_of_a_list(text, first):
    assert first_node(text) == first


def test_tasks_of_nodes():
    assert tasks_of("2(x3),1") == [2, 2, 2, 1]
    assert tasks_of("4") == [4]
    with pytest.raises(ValueError, match="does not say how many"):
        tasks_of("2(x")


def test_gpus_are_asked_for_and_fewer_ranks_take_fewer_nodes(tmp_path):
    specs = [spec(tmp_path, "fsdp16-mb1", global_batch=16), spec(tmp_path, "ddp4-mb2")]
    asked = Allocation(nodes=2, ranks_per_node=8, device="cuda", partition="gpu", seconds=5400.0)
    text = sbatch_script(missing_launches.launches_of(specs), tmp_path / "plan", asked)
    head = text.split("\n\n")[0].splitlines()
    assert head[0] == "#!/bin/bash"
    assert [line for line in head if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=scalewise-measure",
        "#SBATCH --partition=gpu",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=8",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --exclusive",
        "#SBATCH --time=90",
    ]
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith("launch ")]
    assert lines == [
        ["launch", "1", "small fsdp16-mb1, launch 1", "scalewise.measure.worker", "--nodes=2",
         "--ntasks=16", "--ntasks-per-node=8", "--time=30"],
        ["launch", "2", "small ddp4-mb2, launch 1", "scalewise.measure.worker", "--nodes=1",
         "--ntasks=4", "--ntasks-per-node=4", "--time=30"],
    ]  # fmt: skip
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_ranks_that_do_not_fit_are_refused(tmp_path):
    launches = missing_launches.launches_of([spec(tmp_path, "ddp4-mb2")])
    with pytest.raises(InputError, match="launch 1 needs 4 ranks, but 1 nodes of 2 ranks are"):
        Allocation(nodes=1, ranks_per_node=2, device="cpu").check(launches)
    with pytest.raises(InputError, match="4 ranks, which do not fill nodes of 3"):
        Allocation(nodes=2, ranks_per_node=3, device="cpu").check(launches)
    with pytest.raises(InputError, match="nodes = 0 must be positive"):
        Allocation(nodes=0, ranks_per_node=3, device="cpu")


def test_labels_say_more_where_they_must(tmp_path):
    same = [spec(tmp_path), spec(tmp_path, seq_len=64), spec(tmp_path, "tp2-mb8")]
    assert [launch.label for launch in missing_launches.launches_of(same)] == [
        "small ddp2-mb4, seq 32, batch 8, fp32, launch 1",
        "small ddp2-mb4, seq 64, batch 8, fp32, launch 1",
        "small fsdp1-tp2-mb8, launch 1",
    ]


ASKED = Allocation(nodes=2, ranks_per_node=1, device="cpu")


def test_the_same_request_finds_its_plan_again(tmp_path):
    first = Plan.of([spec(tmp_path, number=1), spec(tmp_path, "fsdp2-mb4", number=2)], ASKED)
    first.write()
    longer = Allocation(nodes=2, ranks_per_node=1, device="cpu", partition="x", seconds=9e4)
    again = Plan.of([spec(tmp_path, number=3), spec(tmp_path, "fsdp2-mb4", number=4)], longer)
    assert again == first
    assert [launch.spec.ids for launch in again.launches] == [["job1-1"], ["job2-1"]]
    other = Plan.of([spec(tmp_path, number=3, seq_len=64)], ASKED)
    assert other.folder != first.folder
    # An order that somebody damaged is given anew; the other keeps its id.
    (first.folder / "1.json").write_text('{"planned": [')
    mended = Plan.of([spec(tmp_path, number=5), spec(tmp_path, "fsdp2-mb4", number=6)], ASKED)
    assert [launch.spec.ids for launch in mended.launches] == [["job5-1"], ["job2-1"]]


def test_a_plan_that_cannot_be_kept_is_refused(tmp_path):
    (tmp_path / "slurm").write_text("not a folder")
    run = slurm.PlanRun(Plan.of([spec(tmp_path)], ASKED), ASKED, print)
    with pytest.raises(InputError, match=r"jobs cannot be written to .*Not a directory"):
        run.submit_rest()


def test_what_is_missing_is_said_from_the_records_alone(tmp_path):
    specs = [spec(tmp_path, number=n, launch=n) for n in (1, 2, 3)]
    plan = Plan.of(specs, ASKED)
    plan.write()
    append(tmp_path / "train.jsonl", record("ddp2-mb4", id="job2-2"))

    def say(place):
        command = [sys.executable, "-m", "scalewise.measure.missing_launches", str(place)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = say(plan.folder)
    assert done.returncode == 1
    assert done.stdout == (
        f"1 of 3 launches are in {tmp_path}/train.jsonl; missing: small ddp2-mb4, launch 1; small "
        "ddp2-mb4, launch 3 (submit the same again: it runs only what is missing)\n"
    )
    assert say(plan.folder / "2.json").returncode == 0
    assert say(plan.folder / "3.json").returncode == 1
    assert say(tmp_path).returncode == 1


def test_of_many_missing_launches_some_are_named(tmp_path):
    launches = missing_launches.launches_of([spec(tmp_path, launch=n) for n in range(1, 21)])
    said = missing_launches.sentence(launches, missing_launches.missing(launches))
    assert said.startswith(f"0 of 20 launches are in {tmp_path}/train.jsonl; missing: small ")
    assert said.endswith("small ddp2-mb4, launch 8; and 12 more")


def test_sweeps_are_planned_like_launches(tmp_path):
    sweep = SweepSpec(what="kernel", plan={"dtype": "fp32"}, processes=2, id="k",
                       records=str(tmp_path / "kernel.jsonl"), device="cpu")  # fmt: skip
    plan = Plan.of([sweep], ASKED)
    plan.write()
    again = missing_launches.read_plan(plan.folder)
    assert again == {1: sweep}
    assert plan.launches[0].label == "kernels on 2 ranks"
    assert "scalewise.measure.sweep_worker" in sbatch_script(plan.launches, plan.folder, ASKED)


def test_how_a_missing_launch_ended(tmp_path):
    (launch,) = missing_launches.launches_of([spec(tmp_path)])
    assert missing_launches.ending(tmp_path, launch) == "it did not start"
    (tmp_path / "1-0.log").write_text("slurmstepd: error: *** STEP 5.0 ON node1 CANCELLED ***\n")
    assert missing_launches.ending(tmp_path, launch) == (
        f"it was ended before it was done (its logs are in {tmp_path})"
    )
    (tmp_path / "1.err").write_text("srun: error: node2: task 1: Killed\n")
    assert missing_launches.ending(tmp_path, launch) == (
        "rank 1 was killed (the system may have run out of memory)"
    )
    (tmp_path / "1-1.log").write_text("Traceback\nRuntimeError: connection closed\n")
    assert missing_launches.ending(tmp_path, launch) == (
        f"rank 1 failed: RuntimeError: connection closed (the full log is {tmp_path}/1-1.log)"
    )


@pytest.mark.parametrize(
    ("state", "log", "said"),
    [
        ("TIMEOUT", "", "Slurm job 71 reached its time limit"),
        ("NODE_FAIL", "", "Slurm job 71 lost a node"),
        ("PREEMPTED", "", "Slurm job 71 was preempted"),
        (
            "FAILED",
            "ValueError: no",
            r"rank 0 failed: ValueError: no \(the full log is",
        ),
        (None, "", "it was ended before it was done"),
    ],
)
def test_what_is_missing_is_explained(tmp_path, monkeypatch, state, log, said):
    monkeypatch.setattr(slurm, "ending_of", lambda job: ENDINGS.get(state))
    plan = Plan.of([spec(tmp_path, number=1), spec(tmp_path, "fsdp2-mb4", number=2)], ASKED)
    plan.write()
    append(tmp_path / "train.jsonl", record("ddp2-mb4", id="job1-1"))
    (plan.folder / "2-0.log").write_text(log)
    done = slurm._done(plan, "71")
    there = f"1 of 2 launches are in {tmp_path}/train.jsonl"
    missing = f"missing: small fsdp2-mb4, launch 1: {said}"
    assert re.match(f"{there}; {missing}", str(done.problem))
    assert done.problem.hint == "run the same command again: it runs only what is missing"
    assert [launch.number for launch in done.left] == [2]
    assert done.failures[0].startswith("small fsdp2-mb4, launch 1: ")
    assert plan.folder.exists()
    append(tmp_path / "train.jsonl", record("fsdp2-mb4", id="job2-1"))
    assert slurm._done(plan, "71").problem is None
    assert not plan.folder.exists()


def test_a_job_that_could_not_start_a_launch_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "ending_of", lambda job: None)
    plan = Plan.of([spec(tmp_path)], ASKED)
    plan.write()
    (plan.folder / "71.err").write_text("srun: error: no such option\n")
    said = str(slurm._done(plan, "71").problem)
    assert said.endswith(
        f"Slurm job 71 ended without starting them, see {plan.folder}/71.err "
        "(srun: error: no such option)"
    )
