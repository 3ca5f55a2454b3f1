"""One door for what people have of a run: a log, or an export of its metrics.

read_source("train.log")
read_source("wandb.csv:throughput/device/tokens_per_sec")
read_source("metrics.csv:rate=tok/s")
"""

from __future__ import annotations

from scalewise.logs.exports import ENDINGS, read_export
from scalewise.logs.read import read_log
from scalewise.logs.run_log import RunLog
from scalewise.reading import user_path


def split_source(text: str) -> tuple[str, str]:
    """Split a path from the column behind its last ending and colon.

    >>> split_source("wandb.csv:throughput/tokens_per_sec")
    ('wandb.csv', 'throughput/tokens_per_sec')
    >>> split_source("train.log")
    ('train.log', '')
    """
    for ending in ENDINGS:
        path, colon, column = text.partition(f"{ending}:")
        if colon and column:
            return path + ending, column
    return text, ""


def read_source(text: str) -> RunLog:
    """Read a log or an export.

    Args:
        text: Path; of an export with the column to read behind a colon, and its unit behind =.

    Raises:
        InputError: If it cannot be read, or no step of it has a time.
    """
    path, column = split_source(text)
    if user_path(path).suffix.lower() in ENDINGS:
        return read_export(path, column)
    return read_log(path)
