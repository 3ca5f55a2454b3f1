"""`scalewise remember`: runs are kept, later questions use and name them."""

import json

TABLE = """\
model,on,gpus,strategy,seq,batch,tokens_s
llama-3-8b,dgx-h100,8,fsdp8-mb1,8192,8,6300
llama-3-8b,dgx-h100,32,fsdp32-mb1,8192,32,6200
"""
QUESTION = ("llama-3-8b", "--on", "dgx-h100", "--gpus", "64", "--strategy", "fsdp64-mb1",
            "--seq", "8192", "--batch", "64", "--stack", "my-team")  # fmt: skip


def test_later_answers_use_the_runs(run, tmp_path):
    runs, here = tmp_path / "runs.csv", {"SCALEWISE_CATALOG": str(tmp_path / "own")}
    runs.write_text(TABLE)
    done = run("remember", "my-team", "--from", str(runs), **here)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("my-team: 2 runs at 0.8")
    assert (tmp_path / "own" / "stacks" / "my-team.toml").exists()
    asked = run("estimate", *QUESTION, **here)
    assert "your 2 runs (llama-3-8b fsdp8-mb1" in " ".join(asked.stdout.split())
    found = run("diagnose", *QUESTION, "--measured", "6250", "--json", **here)
    answer = json.loads(found.stdout)
    assert answer["verdict"] == "normal"
    assert answer["comparable"][0]["source"] == "your run"
    assert answer["comparable"][0]["strategy"] == "fsdp32-mb1"
    again = run("remember", "my-team", "--from", str(runs), "--json", **here)
    assert len(json.loads(again.stdout)["runs"]) == 2


def test_wrong_usage(run, tmp_path):
    assert run("remember", "my-team").exit_code == 2
    result = run("remember", "My Team", "--from", str(tmp_path))
    assert result.exit_code == 2
    assert "must be lower-case letters" in result.stderr
    result = run("remember", "mine", "--from", str(tmp_path / "absent.csv"))
    assert result.exit_code == 2
    assert "no such file" in result.stderr


def test_a_log_and_its_flags(run, tmp_path):
    log, own = "tests/data/logs/torchtitan.log", str(tmp_path / "own")
    done = run("remember", "mine", "--from", log, "--on", "oci-h100", "--gpus", "32", "-o", own)
    assert done.exit_code == 0, done.stderr
    assert "llama-3-8b fsdp32-mb1-acop on 32x oci-h100" in done.stdout
    assert ",oci-h100,fsdp32-mb1-acop" in (tmp_path / "own" / "runs" / "mine.csv").read_text()
    fitted = run("calibrate", "mine2", "--from", log, "-o", own)
    assert fitted.stdout.startswith("mine2: 1 run at 0.99 times the speed of pytorch")


def test_other_commands_take_the_log(run):
    log = "tests/data/logs/torchtitan.log"
    assert "llama-3-8b" in run("compare", log).stdout
    judged = json.loads(run("validate", log, "--json").stdout)
    assert "torchtitan.log" in json.dumps(judged)
