"""`scalewise diagnose`: verdict first, at most 40 lines, every format, errors."""

import csv
import io
import json

import pytest

LINE = ("diagnose", "llama-3-8b", "--on", "oci-h100", "--gpus", "32", "--strategy",
        "fsdp32-mb1-acop", "--seq", "8192", "--batch", "32")  # fmt: skip


def test_leads_with_the_verdict(run):
    result = run(*LINE, "--measured", "1,786 tok/s")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) <= 40
    assert lines[1].startswith("Slow: 1,786 tok/s/GPU measured, ")
    text = " ".join(result.stdout.split())
    assert "nccl-tests between two nodes shows about 12.3 GB/s, healthy is" in text
    assert result.stdout.index("Together: ") < result.stdout.index("What would explain it")
    table = result.stdout.split("What would explain it")[1]
    assert table.index("NCCL over TCP sockets") < table.index("PCIe instead of NVLink")
    assert "something not on this list" in table
    assert "Against them: 9.3% MFU here (causal), above 0 of 3 comparable runs." in text
    for label in ("Published: ", "Together: ", "Ruled out", "Check: ", "Mended: ", "Next: "):
        assert label in result.stdout
    assert "Even if nothing is broken: " in result.stdout


def test_a_normal_run_is_told_so(run):
    result = run(*LINE, "--measured", "42% MFU", "--convention", "palm")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].startswith("Normal: ")
    assert "What would explain it" not in result.stdout


def test_no_check_where_no_cause_stands_out(run):
    result = run("diagnose", "llama-2-70b", "--on", "dgx-h100", "--gpus", "128", "--strategy",
                 "zero1x2-tp8-pp8-mb1-acfull", "--batch", "512", "--stack", "megatron",
                 "--measured", "296.5 TFLOP/s", "--convention", "megatron")  # fmt: skip
    assert "(296.5 TFLOP/s)" in result.stdout
    assert "No cause stands out." in result.stdout
    assert "Check: " not in result.stdout
    assert "Mended: " not in result.stdout
    assert "Even if nothing is broken: zero1x2-tp8-pp8-mb1 (no recompute)" in result.stdout


def test_two_sizes_and_evidence(run):
    result = run(*LINE, "--measured", "8=7144", "--measured", "32=1786", "--nccl", "12GB/s",
                 "--profile", "compute=0.25,exposed=0.75")  # fmt: skip
    assert "8 GPUs, fsdp8-mb1-acop" in result.stdout
    assert " misfit" in result.stdout
    assert "the network between nodes >99%" in result.stdout
    assert len(result.stdout.splitlines()) <= 40


def test_json_and_files(run, tmp_path):
    data = json.loads(run(*LINE, "--measured", "1786", "--json").stdout)
    assert data["verdict"] == "slow"
    assert data["lead"].startswith("Slow: ")
    assert data["causes"][0]["key"] == "tcp"
    for ending in (".json", ".csv", ".html"):
        path = tmp_path / f"found{ending}"
        assert run(*LINE, "--measured", "1786", "-o", str(path)).exit_code == 0
        text = path.read_text()
        if ending == ".csv":
            rows = list(csv.DictReader(io.StringIO(text)))
            assert rows[0]["cause"] == "tcp"
            assert rows[-1]["cause"] == "other"
        elif ending == ".html":
            assert "NCCL over TCP sockets" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--measured is missing"),
        (("--measured", "7 furlongs"), "unknown unit"),
        (("--measured", "0"), "must be greater than 0"),
        (("--measured", "1786", "--profile", "gpu=1"), "unknown part"),
        (("--measured", "1786", "--nccl", "fast"), "--nccl"),
        (("--measured", "1786", "-o", "x.pdf"), "unsupported file type .pdf"),
        (("--measured", "1786", "--strategy", "fsdp7-mb1"), "7"),
    ],
)
def test_wrong_usage(run, words, message):
    result = run(*LINE, *words)
    assert result.exception is not None
    text = str(result.exception) + result.stderr
    assert result.exit_code in (1, 2)
    assert message in text


def test_a_log_stands_for_the_model(run):
    result = run("diagnose", "tests/data/logs/torchtitan.log")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert text.startswith("llama-3-8b (8.03B) | 32x h100-sxm-80gb | fsdp32-mb1-acop | bf16")
    assert "Normal: 6,207 tok/s/GPU measured" in text
    assert "median of 96 of 101 lines, 2 of warm-up left out, standard error 0.1%" in text
    assert "checkpoints every 250 steps, 12.4 s each: 2.8% of the time" in text
    assert "6,030 tok/s/GPU over the whole log" in text


def test_a_log_needs_what_it_does_not_state(run):
    result = run("diagnose", "--from", "tests/data/logs/megatron-lm.log")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --on is missing, and tests/data/logs/megatron-lm.log")
    assert "gpus 128" in result.stderr


def test_logs_are_in_the_json(run):
    result = run("diagnose", "tests/data/logs/torchtitan.log", "--json")
    (log,) = json.loads(result.stdout)["logs"]
    assert (log["framework"], log["used"], log["warm_up"]) == ("torchtitan", 96, 2)
    assert log["stalls"][0]["cause"] == "checkpoint"
    assert log["stalls"][0]["period"] == 250


def test_a_table_in_place_of_records(run, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "model,on,gpus,strategy,seq,batch,step_s\n"
        "llama-3-8b,oci-h100,32,fsdp32-mb1-acop,8192,32,4.587\n"
        "llama-3-8b,oci-h100,8,fsdp8-mb1-acop,8192,8,1.147\n"
    )
    result = run("compare", str(path))
    assert result.exit_code == 0
    assert "over 2 jobs (cluster oci-h100, stack pytorch)" in " ".join(result.stdout.split())
    result = run("diagnose", str(path))
    assert "NCCL over TCP sockets instead of RDMA" in result.stdout
    result = run("validate", str(path), "--json")
    assert [row["status"] for row in json.loads(result.stdout)["rows"]] == ["ok", "ok"]


def test_a_plan_leaves_open_what_the_log_states(run, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('model = "llama-3-8b"\non = "oci-h100"\n')
    result = run(
        "diagnose", "--plan", str(path), "--from", "tests/data/logs/torchtitan.log", "--json"
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["cluster"] == {"name": "oci-h100", "accelerators": 32}
    assert found["workload"]["global_batch"] == 32


def test_a_trace_is_laid_beside_the_prediction(run, tmp_path):
    words = ("llama-3-8b", "--on", "dgx-h100", "--gpus", "32", "--strategy", "fsdp32-mb1",
             "--seq", "4096", "--batch", "64")  # fmt: skip
    path = str(tmp_path / "step.json.gz")
    slow = ("--set", "cluster.scale_out_bandwidth=5GB/s")
    assert run("timeline", *words, *slow, "-o", path).exit_code == 0
    done = run("diagnose", *words, "--from", path)
    assert done.exit_code == 0, done.stderr
    assert "step (ms)" in done.stdout
    assert "Differs: exposed DP: " in done.stdout
    answer = json.loads(run("diagnose", *words, "--from", path, "--json").stdout)
    assert answer["groups"][0]["key"] == "network"
    assert answer["trace"]["rows"][0]["part"] == "gemm"
    assert answer["runs"][0]["text"].endswith("/step in the trace")
    both = run("diagnose", *words, "--from", path, "--profile", "compute=1")
    assert both.exit_code == 2
    assert "exclude each other" in both.stderr
