"""Tables of the user's own runs, and every command that takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewise.diagnosis.table import TableRun, holds_rows, is_table, read_user_runs
from scalewise.errors import InputError
from scalewise.evidence.compare import compare_runs
from scalewise.evidence.runs import SHIPPED, UnsupportedError, read_runs
from scalewise.evidence.validate import validate
from scalewise.study.overlays import read_overlays

CSV = """model,on,gpus,strategy,seq,batch,tokens_s,step_s,mfu
llama-3-8b,oci-h100,32,fsdp32-mb1-acop,8192,32,1786,,
llama 3 8b,oci-h100,8,fsdp8-mb1-acop,8192,8,,1.147,
llama-3-8b,oci-h100,8,fsdp8-mb1-acop,8192,8,,,38%
"""

RATES = (1786.0, 8 * 8192 / 1.147 / 8, 7301.7)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(CSV)
    return path


def one(
    row: str, tmp_path: Path, columns: str = "model,on,gpus,strategy,seq,batch,tokens_s"
) -> TableRun:
    path = tmp_path / "one.csv"
    path.write_text(f"{columns}\n{row}\n")
    (run,) = read_user_runs(str(path))
    assert isinstance(run, TableRun)
    return run


def test_a_row_is_a_question_and_a_number(table: Path) -> None:
    runs = read_user_runs(str(table))
    assert [run.id for run in runs] == ["runs.csv-2", "runs.csv-3", "runs.csv-4"]
    assert [run.tokens_per_second for run in runs] == pytest.approx(RATES, rel=1e-3)
    plan = runs[1].plan()
    assert (plan.model.name, plan.cluster.accelerators) == ("llama-3-8b", 8)
    assert (plan.workload.seq_len, plan.workload.global_batch) == (8192, 8)
    assert str(plan.strategy) == "fsdp8-mb1-acop"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("runs.jsonl", '{"model": "llama-3-8b", "on": "oci-h100", "gpus": 32, "strategy": '
         '"fsdp32-mb1-acop", "seq": 8192, "batch": 32, "tokens_s": 1786}\n'),
        ("runs.toml", '[[run]]\nmodel = "llama-3-8b"\non = "oci-h100"\ngpus = 32\n'
         'strategy = "fsdp32-mb1-acop"\nseq = 8192\nbatch = 32\ntokens_s = 1786\n'),
    ],
)  # fmt: skip
def test_json_and_toml_say_the_same(name: str, content: str, tmp_path: Path, table: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    (run,) = read_user_runs(str(path))
    assert is_table(str(path))
    first = read_user_runs(str(table))[0]
    assert run.tokens_per_second == 1786.0
    assert run.plan().strategy == first.plan().strategy


@pytest.mark.parametrize(
    ("column", "text", "rate"),
    [
        ("tokens_s", "1,786 tok/s", 1786.0),
        ("tokens_s_total", "57152", 1786.0),
        ("step_s", "4.587", 32 * 8192 / 4.587 / 32),
        ("step_ms", "4587", 32 * 8192 / 4.587 / 32),
        ("step_s", "4587 ms", 32 * 8192 / 4.587 / 32),
        ("mfu", "0.1", 1921.5),
        ("mfu", "10", 1921.5),
    ],
)
def test_units_of_the_measured_column(column: str, text: str, rate: float, tmp_path: Path) -> None:
    run = one(f'llama-3-8b,oci-h100,32,fsdp32-mb1-acop,8192,32,"{text}"', tmp_path,
              f"model,on,gpus,strategy,seq,batch,{column}")  # fmt: skip
    assert run.tokens_per_second == pytest.approx(rate, rel=1e-3)


def test_unknown_names_stand_for_the_nearest_with_a_note(tmp_path: Path) -> None:
    run = one("lama-3-8bb,h100-sxm-94gb,8,fsdp8-mb1-acop,8192,8,7144", tmp_path)
    plan = run.plan()
    assert (plan.model.name, plan.cluster.accelerator.name) == ("llama-3-8b", "h100-sxm-80gb")
    assert run.notes == (
        "model lama-3-8bb is not in the catalog: llama-3-8b assumed",
        "accelerator h100-sxm-94gb is not in the catalog: h100-sxm-80gb assumed",
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("llama-3-8b,oci-h100,8,fsdp8-zzz,8192,8,7144", "unknown part 'zzz'"),
        ("nonesuch,oci-h100,8,fsdp8-mb1,8192,8,7144", "unknown model `nonesuch`"),
        ("llama-3-8b,,8,fsdp8-mb1,8192,8,7144", "on is not stated"),
        ("llama-3-8b,oci-h100,8,fsdp8-mb1,8192,8,fast", "line 2: tokens_s = 'fast'"),
    ],
)
def test_a_row_that_cannot_be_has_a_reason(row: str, words: str, tmp_path: Path) -> None:
    run = one(row, tmp_path)
    with pytest.raises(UnsupportedError) as caught:
        run.plan()
    assert words in str(caught.value)
    assert run.tokens_per_second is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("model,on,gpus,speed\na,b,8,1\n", "unknown column 'speed'"),
        ("on,gpus,tokens_s\nb,8,1\n", "has no column 'model'"),
    ],
)
def test_wrong_columns_are_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        read_user_runs(str(path))


def test_the_shipped_columns_are_read_by_the_same_door() -> None:
    assert len(read_user_runs(str(SHIPPED))) == len(read_runs())
    assert not isinstance(read_user_runs(str(SHIPPED))[0], TableRun)


def test_metrics_are_no_table(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("step,step_s\n1,2\n")
    assert not holds_rows(str(path))


def test_validate_compare_and_studies_take_it(table: Path) -> None:
    runs = read_user_runs(str(table))
    rows = validate(runs, left_out={}).rows
    assert [row.status for row in rows] == ["ok"] * 3
    assert rows[0].stack == "pytorch"
    done = compare_runs(runs)
    assert [row.measured for row in done.rows] == pytest.approx([4.587, 1.147, 1.1219], rel=1e-3)
    assert [row.predicted for row in done.rows] == pytest.approx(
        [8192 / (row.predicted_tokens_per_second or 0.0) for row in rows]
    )
    assert len(read_overlays([str(table)])) == 3
