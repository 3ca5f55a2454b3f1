"""Exports of Weights & Biases, TensorBoard and trainers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from logs.log_files import DATA
from scalewise.errors import InputError
from scalewise.logs.source import read_source, split_source
from scalewise.logs.steady import steady


def test_columns_of_wandb_have_the_name_of_the_run() -> None:
    steps = read_source(str(DATA / "wandb.csv")).steps
    assert steps.step.tolist()[:3] == [10, 20, 30]
    assert set(steps.every.tolist()) == {10}
    assert np.nanmedian(steps.waited) == pytest.approx(0.329, abs=0.002)
    assert np.nanmax(steps.memory) == 43.59 * 2**30


def test_tensorboard_names_its_metric_in_the_name_of_the_file() -> None:
    name = "run-olmo_1-tag-throughput_device_tokens_per_second.csv"
    steps = read_source(str(DATA / name)).steps
    assert np.median(steps.device_tokens) == pytest.approx(8998, abs=2)
    assert steps.clock[1] - steps.clock[0] == pytest.approx(7.4)


def test_metrics_inside_an_object_are_found() -> None:
    steps = read_source(str(DATA / "composer.jsonl")).steps
    assert np.median(steps.device_tokens) == pytest.approx(7209, abs=2)
    assert steps.loss[0] == 3.1


def test_a_column_may_be_named_with_its_unit(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("step,speed,loss\n1,800,3\n2,812,3\n3,,3\n")
    steps = read_source(f"{path}:speed=tok/s total").steps
    assert steps.total_tokens.tolist() == [800.0, 812.0]
    assert steps.line.tolist() == [2, 3]
    assert read_source(f"{path}:speed=ms").steps.seconds.tolist() == [0.8, 0.812]


def test_the_columns_behind_a_path() -> None:
    assert split_source("a.csv:x/y=s") == ("a.csv", "x/y=s")
    assert split_source("C:/logs/train.log") == ("C:/logs/train.log", "")


@pytest.mark.parametrize(
    ("content", "column", "words"),
    [
        ("step,speed\n1,2\n", "", "no known column with times or rates"),
        ("step,speed\n1,2\n", ":sped=s", "has no column 'sped'"),
        ("step,speed\n1,2\n", ":speed", "its unit is not known"),
        ("step,speed\n1,2\n", ":speed=furlong", "unknown unit"),
        ("step,step_s\n1,two\n", "", "line 2: step_s = 'two' is not a number"),
        ("step,step_s\n1,\n", "", "has no row with a number"),
        ("a - throughput(tps),b - throughput(tps)\n1,2\n", "", "several columns of device tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(
    content: str, column: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_source(f"{path}{column}")
    assert words in str(caught.value)
    assert caught.value.hint


def test_torn_lines_of_json_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    rows = [f'{{"step": {at}, "step_s": 2.0}}' for at in range(20)]
    rows[7] = rows[7][:12]
    path.write_text("\n".join(rows))
    log = read_source(str(path))
    assert (len(log.steps), log.damaged) == (19, (8,))


@pytest.mark.parametrize(
    "line", [b'{"a": "\xff"}', b'{"step": 1e19, "step_s": 2.0}', b'{"step": 3, "step_s": 0}']
)
def test_a_line_that_says_nothing_changes_nothing(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1, "step_s": 2.0}\n' + line + b'\n{"step": 2, "step_s": 2.0}\n')
    assert steady(read_source(str(path))).seconds == 2.0


def test_numbers_that_no_float_holds_are_refused_or_unknown(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "step_s": ' + "9" * 400 + "}\n")
    with pytest.raises(InputError, match="is not a number"):
        read_source(str(path))
    path = tmp_path / "m.csv"
    path.write_text("Step,throughput(tps),memory/max_reserved(GiB)\n1,500,1e308\n2,500,8\n")
    assert np.isinf(read_source(str(path)).steps.memory).tolist() == [True, False]


def test_a_trainer_state_without_its_end_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"loss": 2.0, "step": 10}]}')
    with pytest.raises(InputError, match="has no time: the run has not ended"):
        read_source(str(path))
