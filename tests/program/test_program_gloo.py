"""Captured collectives against those of real Gloo runs: the same count, bytes and order."""

from pathlib import Path

import pytest

from capturing import captures_of
from context_ranks import traced
from gloo_calls import difference, run_on_gloo
from measure_jobs import MOE, job, run_together
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.recognize import recognize
from scalewise.program.run import capture_program

SCRIPT = str(Path(__file__).parents[1] / "data" / "program" / "train.py")

TRACED = {"optimizer": "adamw", "trace_steps": 1, "learning_rate": 1e-3}

TWO = ["fsdp2-mb1", "fsdp2-mb2-noreshard", "ddp2-mb1", "ddp1-tp2-mb1", "ddp1-tp2-nosp-mb1",
       "ddp1-pp2-mb1", "ddp1-pp2-v2-mb1", "fsdp2-mb1-acfull", "zero1x2-mb1",
       "ddp1-pp2-zbh1-mb1", "ddp1-pp2-zbv-mb1"]  # fmt: skip
FOUR = ["fsdp4-mb1", "hsdp2x2-mb1", "fsdp2-tp2-mb1", "fsdp2-pp2-mb1", "ddp4-mb1",
        "ddp1-pp4-zbh1-mb1", "ddp2-pp2-zbv-mb1"]  # fmt: skip

EXPERTS_TWO = ["fsdp2-ep2-mb2", "ddp1-tp2-ep2-mb8"]
EXPERTS_FOUR = ["ddp4-ep2-mb2", "fsdp4-ep4-mb2", "hsdp2x2-ep2-mb2", "fsdp2-tp2-ep2-mb4",
                "fsdp2-pp2-ep2-mb2"]  # fmt: skip

CONTEXT = {2: ["fsdp1-cp2-mb4"], 4: ["fsdp1-cp4-mb4", "fsdp2-cp2ag-mb2"]}
"""Where PyTorch's attention of GPUs is put in, see `cpu_attention`."""


def degrees(s):
    return {"tp": s.tp, "cp": s.cp, "pp": s.pp, "ep": s.ep, "dp": s.data_parallel}


def assert_equal(jobs, folder):
    for place, captures in enumerate(captures_of(jobs)):
        assert degrees(recognize(captures).strategy) == degrees(jobs[place].strategy)
        for capture in captures:
            trace = folder / "traces" / f"job{place}" / f"rank{capture.rank}.json.gz"
            assert difference(capture, trace) is None


@pytest.mark.parametrize(
    ("dense", "experts"), [(TWO, EXPERTS_TWO), (FOUR, EXPERTS_FOUR)], ids=["two", "four"]
)
def test_a_capture_has_the_collectives_of_a_real_run(dense, experts, tmp_path):
    jobs = [job(each, **TRACED) for each in dense]
    jobs += [job(each, model=MOE, **TRACED) for each in experts]
    run_together(jobs, tmp_path)
    assert_equal(jobs, tmp_path)


@pytest.mark.parametrize("ranks", [2, 4])
def test_context_parallel_attention_sends_what_a_real_run_sends(ranks, tmp_path):
    jobs = [job(each, **TRACED) for each in CONTEXT[ranks]]
    traced(ranks, jobs, tmp_path)
    assert_equal(jobs, tmp_path)


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=pytest.mark.slow) for mode in ("fsdp", "ddp", "cp")] + ["tp"],
)
def test_a_script_sends_what_a_real_run_of_it_sends(mode, tmp_path):
    program = (SCRIPT, "--mode", mode, "--steps", "4")
    run_on_gloo(program, tmp_path, ranks=4)
    (found,) = capture_program(CaptureSpec(adapter="script", world=4, arguments=program))
    assert difference(found, tmp_path / "rank0.json.gz") is None
