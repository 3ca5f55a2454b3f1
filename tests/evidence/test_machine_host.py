"""Host time of wrappers: constants from rows whose constants are known."""

import pytest

from scalewise.evidence.machine_host import host_constants
from scalewise.measure.host_plan import HostPlan, cases_of

TRUTH = {
    "fsdp_host_seconds": 3e-3, "fsdp_step_seconds": 2e-3, "fsdp_copy_bytes": 40.0,
    "tp_host_seconds": 1e-2, "tp_step_seconds": 2e-2,
}  # fmt: skip
MEMORY = 1e10


def estimated(job):
    """A step without wrappers: 1 ms, 1 ms per layer, and 2 ms of collectives on two ranks."""
    return 1e-3 + 1e-3 * job.model.layers + (2e-3 if job.ranks > 1 else 0.0)


def rows_of(truth=TRUTH, scatter=0.0, busy=0.0):
    """What `measure host` reports of a machine with these constants.

    Args:
        truth: The constants.
        scatter: Relative distance of neighboring samples.
        busy: Fraction of the difference to a plain step that is CPU time.
    """
    rows = []
    for case in cases_of(HostPlan()):
        layers, params = case.job.model.layers, case.job.model.layer_parameters
        more = 0.0
        if case.technique == "fsdp":
            copies = truth["fsdp_copy_bytes"] * params / MEMORY
            more = truth["fsdp_step_seconds"] + layers * (truth["fsdp_host_seconds"] + copies)
        elif case.technique == "tp":
            more = truth["tp_step_seconds"] + layers * truth["tp_host_seconds"]
        seconds = estimated(case.job) + more
        rows.append(
            {"technique": case.technique, "wide": case.wide, "layers": layers,
             "time_us": seconds * 1e6, "cpu_us": (1e-3 + busy * more) * 1e6,
             "samples_us": [seconds * (1.0 + i * scatter) * 1e6 for i in (-2, -1, 0, 1, 2)]}
        )  # fmt: skip
    return rows


def constants(rows):
    return host_constants(rows, HostPlan(), estimated, MEMORY)


def test_known_constants_are_found():
    found = constants(rows_of())
    assert found.values == pytest.approx(TRUTH, rel=1e-6)
    assert found.spread == pytest.approx(dict.fromkeys(TRUTH, 1.0))


def test_computed_time_is_no_wait_for_a_collective():
    # Where estimates say too much of collectives, the thread's own time remains.
    assert constants(rows_of(busy=1.5)).values == pytest.approx(
        {name: 1.5 * value for name, value in TRUTH.items()}, rel=1e-6
    )


def test_noise_of_the_steps_is_the_spread_of_the_constants():
    found = constants(rows_of(scatter=0.05))
    assert found.values == pytest.approx(TRUTH, rel=1e-6)
    # Quartiles 10% apart: 1.2533 x 0.7413 x 10% / sqrt(5) = 4.2% of steps of 45 and 89 ms, beside
    # 3 and 7 ms of plain ones, so 4.2 ms of 40 ms between them.
    assert found.spread["tp_host_seconds"] == pytest.approx(1.11, abs=0.002)
    assert found.spread["tp_step_seconds"] > found.spread["tp_host_seconds"]


def test_nothing_is_said_of_what_was_not_timed():
    rows = [row for row in rows_of() if row["technique"] != "fsdp"]
    assert set(constants(rows).values) == {"tp_host_seconds", "tp_step_seconds"}
    assert constants([row for row in rows if row["technique"] != "plain"]).values == {}


def test_a_wrapper_that_costs_nothing_has_no_constant():
    found = constants(rows_of(dict.fromkeys(TRUTH, 0.0) | {"tp_host_seconds": 1e-2}))
    assert found.values["tp_host_seconds"] == pytest.approx(1e-2)
    assert found.values.get("tp_step_seconds", 0.0) == pytest.approx(0.0, abs=1e-9)
    assert found.values.get("fsdp_host_seconds", 0.0) == pytest.approx(0.0, abs=1e-9)
