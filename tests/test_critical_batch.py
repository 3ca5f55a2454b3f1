"""The critical batch in words."""

import pytest

from scalewise.critical_batch import CriticalBatch, parse_critical_batch
from scalewise.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("laws", CriticalBatch()),
        ("4Mtok", CriticalBatch(batch=4e6)),
        ("4M tokens @ 300B", CriticalBatch(batch=4e6, at=3e11)),
        ("0.8Mtok@300B,20%", CriticalBatch(batch=8e5, at=3e11, overhead=0.2)),
        ("800k, 20%", CriticalBatch(batch=8e5, overhead=0.2)),
    ],
)
def test_read(text, expected):
    assert parse_critical_batch(text) == expected


@pytest.mark.parametrize("text", ["law", "0tok", "4Mtok@", "4M,20", "4M,0%", "4M,120%", "@300B"])
def test_refused(text):
    with pytest.raises(InputError, match="neither laws nor a batch in tokens") as caught:
        parse_critical_batch(text)
    assert caught.value.field == "critical_batch"
