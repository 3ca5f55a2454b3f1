"""Step lines of every framework: public ones, whole logs, several ranks, restarts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from logs.log_files import DATA, public_lines
from scalewise.errors import InputError
from scalewise.logs.read import LINES, read_log
from scalewise.logs.source import read_source

# Step, seconds, tokens/s per GPU, sequences/s of all, memory in GiB: as the line prints it.
SAID = (
    (14, None, 7282.0, None, 9.46),
    (22, None, 193831.0, None, 1.41),
    (3, None, 30768.0, None, 30.0),
    (43, 5.4449, None, None, None),
    (122, 86.5452, None, None, None),
    (1, 9.09, None, None, None),
    (1, 2.008, None, None, None),
    (49, 12.39, None, None, 70833405952 / 2**30),
    (10, None, None, 25.704280480541442, 38.49),
    (327281, 11.5, 11400.0, None, None),
    (10, 13.36, 3679.158, None, None),
    (1631, 0.56194, None, None, None),
)


@pytest.mark.parametrize(("line", "said"), list(zip(public_lines(), SAID, strict=True)))
def test_public_lines_are_read_by_their_framework(
    line: tuple[str, str], said: tuple[float | None, ...], tmp_path: Path
) -> None:
    framework, text = line
    path = tmp_path / "train.log"
    path.write_text(text + "\n", encoding="utf-8")
    log = read_log(path)
    assert log.framework == framework
    s = log.steps
    found = (s.step[0], s.seconds[0], s.device_tokens[0], s.samples[0], s.memory[0] / 2**30)
    for value, expected in zip(found, said, strict=True):
        assert np.isnan(value) if expected is None else value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("line", public_lines())
def test_public_lines_match_one_pattern_only(line: tuple[str, str]) -> None:
    from scalewise.logs.line import ANSI

    text = ANSI.sub(b"", line[1].encode())
    found = [each.framework for each in LINES if each.pattern.search(text)]
    assert found == [line[0]]


@pytest.mark.parametrize(
    ("name", "framework", "steps", "stated"),
    [
        ("torchtitan.log", "torchtitan", 101,
         {"model": "llama3 8B", "on": "NVIDIA H100 80GB HBM3", "gpus": "32", "batch": "32",
          "seq": "8192", "strategy": "fsdp32-mb1-acop"}),
        ("megatron-lm.log", "megatron-lm", 180, {"batch": "256"}),
        ("megatron-bridge.log", "megatron-bridge", 40, {"batch": "128"}),
        ("nemo-1.log", "nemo", 40, {}),
        ("nemo-2.log", "nemo", 59, {"batch": "128"}),
        ("deepspeed.log", "deepspeed", 60, {}),
        ("nanotron.log", "nanotron", 60, {"batch": "256", "seq": "4096"}),
        ("maxtext.log", "maxtext", 50, {}),
        ("nanogpt.log", "nanogpt", 101, {}),
        ("litgpt.log", "litgpt", 100, {}),
        ("transformers.log", "transformers", 50, {"batch": "128"}),
        ("trainer_state.json", "transformers", 1, {"batch": "128"}),
    ],
)  # fmt: skip
def test_whole_logs(name: str, framework: str, steps: int, stated: dict[str, str]) -> None:
    log = read_source(str(DATA / name))
    assert (log.framework, len(log.steps)) == (framework, steps)
    assert {key: each.value for key, each in log.stated.items()} == stated


def test_lines_are_those_of_the_file() -> None:
    log = read_log(DATA / "torchtitan.log")
    text = (DATA / "torchtitan.log").read_text(encoding="utf-8").splitlines()
    assert all(f"step: {step:2}" in text[line - 1]
               for line, step in zip(log.steps.line, log.steps.step, strict=True))  # fmt: skip
    assert "Trainer is initialized" in text[log.stated["batch"].line - 1]


def test_litgpt_times_are_those_of_a_step_with_all_its_micro_batches() -> None:
    assert np.median(read_log(DATA / "litgpt.log").steps.seconds) == pytest.approx(8.73, rel=0.01)


def test_ranks_that_print_the_same_step_count_once(tmp_path: Path) -> None:
    single = (DATA / "torchtitan.log").read_text(encoding="utf-8")
    several = tmp_path / "all.log"
    lines = []
    for line in single.splitlines():
        lines += [line.replace("[rank0]", f"[rank{rank}]") for rank in range(4)]
    several.write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = read_log(several)
    assert log.steps.step.tolist() == read_log(DATA / "torchtitan.log").steps.step.tolist()
    assert "4 ranks print; those of rank 0 count" in log.notes


def test_ranks_without_labels_count_once(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    text = (DATA / "maxtext.log").read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{line}\n{line}\n" for line in text), encoding="utf-8")
    log = read_log(path)
    assert len(log.steps) == 50
    assert any("50 lines repeat a step" in note for note in log.notes)


def test_a_restart_is_a_new_start_whose_steps_count_too(tmp_path: Path) -> None:
    lines = (DATA / "maxtext.log").read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "twice.log"
    path.write_text("".join(lines[:40] + lines[20:]), encoding="utf-8")
    log = read_log(path)
    assert len(log.steps) == 70
    assert sorted(set(log.steps.start.tolist())) == [0, 1]
    assert "the run was started 2 times" in log.notes


@pytest.mark.parametrize("change", ["crlf", "bom", "gzip", "two gzip members", "leading nul"])
def test_encodings_of_a_file_change_nothing(change: str, tmp_path: Path) -> None:
    plain = (DATA / "megatron-lm.log").read_bytes()
    path = tmp_path / "copy.log"
    half = plain.index(b"\n", len(plain) // 2) + 1
    path.write_bytes({
        "crlf": plain.replace(b"\n", b"\r\n"),
        "bom": b"\xef\xbb\xbf" + plain,
        "gzip": gzip.compress(plain),
        "two gzip members": gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
        "leading nul": b"\0" * 4096 + b"\n" + plain,
    }[change])  # fmt: skip
    log, first = read_log(path), read_log(DATA / "megatron-lm.log")
    assert log.steps.seconds.tolist() == first.steps.seconds.tolist()
    assert log.steps.clock.tolist() == first.steps.clock.tolist()


def test_a_gzip_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "cut.log.gz"
    packed = gzip.compress((DATA / "megatron-lm.log").read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    steps = read_log(path).steps.step
    assert 40 < len(steps) < 180
    assert steps.tolist() == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nothing here\n", "has no step line of torchtitan, megatron-lm"),
        (b"", "has no step line of"),
        (b"\xff\xfes\0t\0e\0p\0", "is UTF-16 text"),
        (bytes(range(1, 32)) * 64, "is no text"),
        (b"iter 5: loss 4.1, time 561.9\n" * 3, "line 1: not a whole step line of nanogpt"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_log(path)


def test_a_log_with_more_damaged_lines_than_others_is_refused(tmp_path: Path) -> None:
    lines = (DATA / "megatron-lm.log").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "train.log"
    path.write_text("\n".join(line[:130] if at % 3 else line for at, line in enumerate(lines)))
    with pytest.raises(InputError, match=r"line \d+: not a whole step line of megatron-lm"):
        read_log(path)


@pytest.mark.parametrize("name", ["nemo-1.log", "transformers.log"])
def test_a_bar_that_fills_megabytes_without_a_new_line_is_read(name: str, tmp_path: Path) -> None:
    text = (DATA / name).read_bytes().replace(b"\n", b"\r")
    path = tmp_path / "bar.log"
    path.write_bytes(b"\r".join([text] * (6_000_000 // len(text))))
    assert len(read_log(path).steps) >= 40


def test_rates_and_steps_of_damaged_lines_are_no_numbers_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    line = (
        "iteration: {} / 60 | time_per_iteration_ms: 2K | tokens_per_sec: 4K | "
        "tokens_per_sec_per_gpu: {} | global_batch_size: {} |\n"
    )
    path.write_text(line.format(27, "0K", 0))
    assert read_log(path).stated == {}
    path.write_text("completed step: 10000000000000000000, seconds: 13.9,\n" * 2)
    assert read_log(path).steps.step.tolist() == [2**53]
