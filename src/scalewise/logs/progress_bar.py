"""Progress bars of tqdm: what the Hugging Face Trainer and scripts with accelerate print.

     10%|#         | 50/500 [02:34<23:10,  3.09s/it]

A bar has the steps that are done and the time since its start in whole seconds. Times of steps are
differences over at least `WINDOW`, so that the whole seconds matter little. The bar counts what the
script counts; in the Trainer that is optimizer steps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from scalewise.logs.run_log import CHECKPOINT

MARKS = (b"s/it", b"it/s")
"""Its rate, one of the two."""

PATTERN = re.compile(
    rb"(?:^|[| ])(\d+)/(\d+) \[(?:(\d+):)?(\d{1,2}):(\d\d)<[\d:?]+, *[\d.?]+(?:s/it|it/s)"
)

WINDOW = 30.0
"""Least time between two readings, s: 1 s of rounding is then 3%."""

Reading = tuple[int, int, int, float]
"""Line, step, steps of the bar, and seconds since its start."""


def reading(line: bytes, number: int) -> Reading | None:
    """Return what a bar says; None where a line has no whole bar."""
    found = PATTERN.search(line)
    if found is None:
        return None
    done, total, hours, minutes, seconds = found.groups()
    elapsed = 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds)
    return number, int(done), int(total), elapsed


def longest(readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings of the bar that ran longest: that of the training, not of loading.

    Bars are told apart by their number of steps. A reading that goes back is another rank's, or of
    a bar that was started again.
    """
    bars: dict[int, list[Reading]] = defaultdict(list)
    for each in readings:
        bar = bars[each[2]]
        if not bar or (each[1] > bar[-1][1] and each[3] >= bar[-1][3]):
            bar.append(each)
    return max(bars.values(), key=lambda bar: bar[-1][3] - bar[0][3], default=[])


def windows(
    bar: Iterable[Reading], saves: Sequence[int] = ()
) -> list[tuple[int, int, int, float, int]]:
    """Return line, step, number of steps, mean seconds and events of each window of a bar.

    Args:
        bar: Readings of one bar.
        saves: Lines that speak of a checkpoint.
    """
    found = []
    start: Reading | None = None
    for each in bar:
        if start is None:
            start = each
        elif each[3] - start[3] >= WINDOW:
            steps = each[1] - start[1]
            saved = any(start[0] <= line <= each[0] for line in saves)
            found.append(
                (each[0], each[1], steps, (each[3] - start[3]) / steps, CHECKPOINT * saved)
            )
            start = each
    return found
