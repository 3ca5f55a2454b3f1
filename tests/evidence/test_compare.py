"""Predicted against measured: one row for each job, with parts and noise."""

import pytest

from machine_records import WHERE, job, machine_records, train_record
from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.evidence.compare import compare
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.stack import load_stack

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def fit():
    return MachineFit("paper").fit(gather(machine_records()))


@pytest.fixture
def catalog(fit, tmp_path, monkeypatch):
    write_machine(fit, tmp_path)
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    return tmp_path


def test_files_give_what_the_fit_gave(fit, catalog):
    assert sorted(str(path.relative_to(catalog)) for path in catalog.rglob("*.toml")) == [
        "accelerators/paper.toml", "calibrations/paper.toml", "clusters/paper.toml",
        "fabrics/paper.toml", "stacks/paper.toml",
    ]  # fmt: skip
    cluster = load_cluster("paper", accelerators=2)
    assert cluster.accelerator.kind == "other"
    assert cluster.fabric.call_seconds == pytest.approx(fit.fabric_.call_seconds, rel=1e-4)
    assert load_stack("paper").gemm == pytest.approx(fit.stack_.gemm, rel=1e-4)
    text = (catalog / "stacks" / "paper.toml").read_text()
    assert "memory_traffic" in text
    assert "Fitted on steps" in text
    jobs = [job("tiny", s, b) for s, b in (("ddp2-mb1", 2), ("fsdp2-mb1", 2), ("tp2-mb1", 1))]
    seconds = fit.predict(jobs)
    records = [train_record(one, float(s), number=i)
               for i, (one, s) in enumerate(zip(jobs, seconds, strict=True))]  # fmt: skip
    done = compare(records, load_cluster("paper"))
    assert done.stack == "paper"
    assert done.median_error < 1e-3
    assert done.coverage == 1.0


def test_errors_noise_and_parts(fit, catalog):
    one = job("tiny", "ddp2-mb1", 2)
    said = float(fit.predict([one])[0])
    trace = {"compute_seconds": 0.4, "communication_seconds": 0.2, "exposed_seconds": 0.1,
             "idle_seconds": 0.05}  # fmt: skip
    records = [
        train_record(one, said / 1.1, number=1, trace=trace),
        train_record(one, said / 1.2, number=2),
        train_record(one, said / 1.0, number=3),
        train_record(job("tiny", "ddp1-mb2"), 1.0, number=4),
    ]
    done = compare(records, load_cluster("paper"), min_ranks=2)
    (row,) = done.rows
    assert row.launches == 3
    assert row.error == pytest.approx(0.1, abs=1e-3)
    assert row.noise == pytest.approx(0.5 * (1.0 - 1.0 / 1.2) * 1.1, abs=1e-3)
    assert row.terms["exposed"][0] == 0.1
    assert row.terms["waiting"][0] == pytest.approx(0.15)
    assert row.terms["compute"][1] + row.terms["waiting"][1] == pytest.approx(row.predicted)
    assert sum(row.predicted_terms.values()) == pytest.approx(row.predicted)
    assert done.median_noise == row.noise
    assert done.by_strategy() == {"ddp2-mb1": pytest.approx(0.1, abs=1e-3)}


def test_what_cannot_be_compared_is_said(catalog):
    with pytest.raises(InputError, match="no measured training"):
        compare([], load_cluster("paper"))
    records = [train_record(job("tiny", "ddp2-mb1", 2), 1.0)]
    assert WHERE.accelerator is None
    with pytest.raises(InputError, match="Paper CPU is not in the catalog"):
        compare(records)
    with pytest.raises(InputError, match="precision fp32 is not supported: tpu-v5p"):
        compare(records, load_cluster("gcp-tpu-v5p"))
