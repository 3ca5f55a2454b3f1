"""`scalewise calibrate NAME` and `scalewise compare`, from records to figures."""

import json

import pytest

from machine_records import job, machine_records, train_record
from scalewise.records.files import append

pytest.importorskip("scipy")

LOG = """\
./all_gather_perf -b 1M -e 1G -f 32 -g 8
""" + "".join(
    f"#  Rank  {rank} Group  0 Pid  {rank} on  box device  {rank} [0x07] NVIDIA A100-SXM4-80GB\n"
    for rank in range(8)
) + "".join(
    f"  {size}  1  float  none  -1  {20 + size * 7 / 8 / 240e9 * 1e6:.2f}  1.0  1.0  0\n"
    for size in (2**20, 2**24, 2**26, 2**28, 2**30)
)  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for record in machine_records(noise=0.01, step_noise=0.01):
        append(folder / f"{record.kind}.jsonl", record)
    append(folder / "train.jsonl", train_record(job("tiny", "fsdp2-mb1", 2), 0.9, number=77))
    return folder


def test_a_machine_becomes_a_catalog_that_estimates_accept(run, records, tmp_path):
    catalog, page = tmp_path / "catalog", tmp_path / "residuals.html"
    done = run("calibrate", "paper", "--from", str(records), "-o", str(catalog), "--plot",
               str(page))  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "large GEMMs" in done.stdout
    assert "80% prediction interval: " in done.stdout
    assert "wrote 5 files" in done.stdout
    assert f"SCALEWISE_CATALOG={catalog} scalewise estimate MODEL --on paper" in done.stderr
    assert "<svg" in page.read_text()
    here = {"SCALEWISE_CATALOG": str(catalog)}
    asked = run("estimate", "tiny", "--on", "paper", "--gpus", "2", "--strategy", "fsdp2-mb1",
                "--seq", "512", "--batch", "2", "--stack", "paper", "--json", **here)  # fmt: skip
    assert asked.exit_code == 0, asked.stderr
    answer = json.loads(asked.stdout)
    seconds = (
        answer["estimates"][0]["step_seconds"] if "estimates" in answer else answer["step_seconds"]
    )
    done = run("compare", str(records), "--on", "paper", "--min-ranks", "2", "--json", **here)
    assert done.exit_code == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["predicted"] == pytest.approx(seconds)
    assert row["error"] == pytest.approx(seconds / 0.9 - 1.0)
    figure = tmp_path / "steps.svg"
    done = run("compare", str(records), "--on", "paper", "-o", str(figure), **here)
    assert done.stdout.startswith("Median error ")
    assert "fsdp2-mb1" in done.stdout
    assert figure.read_text().startswith("<?xml")


def test_nccl_tests_alone_calibrate_the_links_of_a_known_device(run, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(LOG)
    done = run("calibrate", "box", "--nccl-tests", str(log), "-o", str(tmp_path / "c"), "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    (rate,) = [c for c in answer["constants"] if c["name"] == "scale_up_rate"]
    assert rate["value"] == pytest.approx(240e9, rel=0.05)
    here = {"SCALEWISE_CATALOG": str(tmp_path / "c")}
    asked = run("estimate", "llama-2-7b", "--on", "box", "--json", **here)
    assert asked.exit_code in (0, 1), asked.stderr
    assert "box" in asked.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("calibrate", "My Cluster"), "NAME My Cluster: a machine's name has lower-case"),
        (("calibrate", "x", "--from", "/nowhere"), "there is no file or folder /nowhere"),
        (("calibrate", "x", "--nccl-tests", "/nowhere"), "/nowhere cannot be read"),
        (("calibrate", "--nccl-tests", "log.txt"), "--nccl-tests needs NAME"),
        (("compare", "/nowhere"), "there is no file or folder /nowhere"),
        (("compare", "/nowhere", "-o", "x.doc"), "-o x.doc: unsupported file type .doc"),
    ],
)
def test_wrong_usage_gets_a_sentence(run, args, said):
    done = run(*args)
    assert done.exit_code == 2
    assert said in done.stderr
