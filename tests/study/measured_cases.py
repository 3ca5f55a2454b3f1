"""A study of four points, and records of it with the step times that a test chooses."""

import msgspec

from machine_records import WHERE, record
from scalewise.records.files import append
from scalewise.records.job import inputs_of
from scalewise.study.files import read_study
from scalewise.study.jobs import Machine, points_to_measure

TWO_CORES = Machine(device="cpu", devices=2, memory_bytes=8e9, host="here")

STUDY = """
title = "Measured"

[[experiment]]
id = "weak"
title = "1. Weak scaling"
models = ["tiny"]
clusters = ["this-machine"]
precisions = ["fp32"]
sequences = [128]
sizes = [1, 2]
strategies = ["ddp-mb1", "fsdp-mb1"]
batch = 1
steps = 4
[[experiment.figures]]
y = ["tokens_per_second_per_accelerator", "scaling_efficiency"]
"""

CLAIM = """
[[experiment.claims]]
statement = "{statement}"
source = "a test"
measure = "{measure}"
metric = "{metric}"
{more}
"""


def claim(measure="ratio", metric="tokens_per_second", more="", statement="A claim"):
    """Return the text of a claim."""
    return CLAIM.format(statement=statement, measure=measure, metric=metric, more=more)


def study_with(*claims):
    """Return the study with claims."""
    return read_study(STUDY + "".join(claims))


def write_records(folder, seconds, *, study=None, traces=None):
    """Write records of the study.

    Args:
        folder: Where to.
        seconds: Step times of the repeats by (strategy, ranks).
        study: By default the one without claims.
        traces: Seconds of communication of a step by (strategy, ranks), if it was profiled.
    """
    number = 0
    for point in points_to_measure(study or study_with(), TWO_CORES):
        at = (point.axes["strategy"], point.ranks)
        for launch, step in enumerate(seconds.get(at, ()), start=1):
            number += 1
            results = {
                "step_seconds": [9.0] + [step] * 3, "losses": [5.0, 4.0, 3.0, 2.0],
                "memory_basis": "rss", "peak_memory_bytes": 1e9,
            }  # fmt: skip
            if traces is not None:
                results["trace"] = {
                    "communication_seconds": traces[at], "exposed_seconds": traces[at] / 2,
                }  # fmt: skip
            where = msgspec.structs.replace(WHERE, ranks=point.ranks, ranks_per_node=point.ranks)
            one = record("train", inputs_of(point.job), results, number=number, where=where)
            append(folder / "train.jsonl", msgspec.structs.replace(one, launch=launch))
