"""Host time of wrappers: constants from rows whose constants are known."""

import pytest

from scalewise.evidence.machine_host import host_constants
from scalewise.measure.host_plan import HostPlan, cases_of

TRUTH = {
    "fsdp_host_seconds": 3e-3, "fsdp_step_seconds": 2e-3, "fsdp_copy_bytes": 40.0,
    "tp_host_seconds": 1e-2, "tp_step_seconds": 2e-2,
}  # fmt: skip
MEMORY, OPTIMIZER = 1e10, 50.0


def rows_of(truth=TRUTH, scatter=0.0):
    """What `measure host` reports of a machine with these constants."""
    rows = []
    for case in cases_of(HostPlan()):
        layers, params = case.job.model.layers, case.job.model.layer_parameters
        seconds = 1e-3 + 1e-3 * layers + layers * OPTIMIZER * params / MEMORY
        if case.technique == "fsdp":
            seconds += truth["fsdp_step_seconds"] + layers * truth["fsdp_host_seconds"]
            # Two ranks share the optimizer's work.
            copies = truth["fsdp_copy_bytes"] - OPTIMIZER / 2
            seconds += layers * copies * params / MEMORY
        elif case.technique == "tp":
            seconds += truth["tp_step_seconds"] + layers * truth["tp_host_seconds"]
        samples = [seconds * (1.0 + off * scatter) * 1e6 for off in (-2, -1, 0, 1, 2)]
        rows.append(
            {"technique": case.technique, "wide": case.wide, "layers": layers,
             "layer_parameters": params, "samples_us": samples}
        )  # fmt: skip
    return rows


def test_known_constants_are_found():
    found = host_constants(rows_of(), optimizer_bytes=OPTIMIZER, memory_rate=MEMORY)
    assert found.values == pytest.approx(TRUTH, rel=1e-6)
    assert found.spread == pytest.approx(dict.fromkeys(TRUTH, 1.0))


def test_small_collectives_of_dtensor_are_added():
    found = host_constants(
        rows_of(), optimizer_bytes=OPTIMIZER, memory_rate=MEMORY, call_seconds=1e-3
    )
    # Two per layer, eight per step; FSDP has none.
    assert found.values["tp_host_seconds"] == pytest.approx(1.2e-2)
    assert found.values["tp_step_seconds"] == pytest.approx(2.8e-2)
    assert found.values["fsdp_host_seconds"] == pytest.approx(3e-3)


def test_noise_of_the_steps_is_the_spread_of_the_constants():
    found = host_constants(rows_of(scatter=0.05), optimizer_bytes=OPTIMIZER, memory_rate=MEMORY)
    assert found.values == pytest.approx(TRUTH, rel=1e-6)
    # Quartiles 10% apart: 1.2533 x 0.7413 x 10% / sqrt(5) = 4.2% of steps of 43 and 87 ms, so 4 ms
    # of 40 ms between them.
    assert found.spread["tp_host_seconds"] == pytest.approx(1.108, abs=0.002)
    assert found.spread["tp_step_seconds"] > found.spread["tp_host_seconds"]


def test_nothing_is_said_of_what_was_not_timed():
    rows = [row for row in rows_of() if row["technique"] != "fsdp"]
    found = host_constants(rows, optimizer_bytes=OPTIMIZER, memory_rate=MEMORY)
    assert set(found.values) == {"tp_host_seconds", "tp_step_seconds"}
    rows = [row for row in rows if row["technique"] != "plain"]
    assert host_constants(rows, optimizer_bytes=OPTIMIZER, memory_rate=MEMORY).values == {}


def test_a_wrapper_that_costs_nothing_has_no_constant():
    rows = rows_of(dict.fromkeys(TRUTH, 0.0) | {"tp_host_seconds": 1e-2})
    found = host_constants(rows, optimizer_bytes=OPTIMIZER, memory_rate=MEMORY)
    assert found.values["tp_host_seconds"] == pytest.approx(1e-2)
    assert found.values.get("tp_step_seconds", 0.0) == pytest.approx(0.0, abs=1e-9)
    assert found.values.get("fsdp_host_seconds", 0.0) == pytest.approx(0.0, abs=1e-9)
