"""Files that change under the same name: the next estimate reads them again."""

import os

import pytest

import scalewise as sw


@pytest.mark.parametrize(
    ("word", "name", "before", "after"),
    [
        ("optimizer", "o.toml", "moment_bytes = 8\n", "moment_bytes = 4\n"),
        ("lengths", "l.csv", "100\n200\n", "1000\n2000\n"),
    ],
)  # fmt: skip
def test_a_changed_file_changes_the_estimate(word, name, before, after, tmp_path):
    def asked():
        e = sw.estimate("llama-2-7b", "dgx-h100", gpus=8, strategy="fsdp8-mb1", **{word: str(path)})
        return e.memory_bytes, e.step_seconds

    path = tmp_path / name
    path.write_text(before)
    first = asked()
    assert asked() == first
    path.write_text(after)
    os.utime(path, ns=(1, 1))
    assert asked() != first
