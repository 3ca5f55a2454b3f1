"""A machine whose constants are known: the fit finds them again, and refuses what it must."""

import msgspec
import numpy as np
import pytest

from machine_records import (
    TRUTH,
    WHERE,
    collective_rows,
    job,
    kernel_rows,
    machine_records,
    record,
    train_record,
)
from scalewise.errors import InputError
from scalewise.evidence.machine import MachineFit, overlap_of
from scalewise.evidence.machine_kernels import KernelRates
from scalewise.evidence.machine_links import LinkRates
from scalewise.evidence.machine_rows import gather

pytest.importorskip("scipy")


def test_kernel_rates_are_found_again():
    fit = KernelRates().fit(kernel_rows(noise=0.02)[0])
    assert fit.values_["gemm_fill"] < 20.0
    for name, value in fit.values_.items():
        if name == "gemm_fill":
            continue
        assert value == pytest.approx(TRUTH[name], rel=0.05), name
    assert 1.0 < fit.spread_["gemm_flops"] < 1.05
    assert max(abs(r.off) for r in fit.residuals_) < 0.1


def test_kernel_rates_forgive_a_few_hiccups():
    rows = kernel_rows(noise=0.02)[0]
    for row in rows[:4]:
        row["time_us"] *= 5.0
    fit = KernelRates().fit(rows)
    assert fit.values_["gemm_flops"] == pytest.approx(80e9, rel=0.05)


def test_links_are_found_again():
    fit = LinkRates(domain=1).fit(collective_rows(noise=0.03))
    assert fit.values_["scale_out_rate"] == pytest.approx(0.8e9, rel=0.06)
    assert fit.values_["call_seconds"] == pytest.approx(4e-4, rel=0.08)
    assert fit.values_["all_reduce_factor"] == pytest.approx(0.7, rel=0.06)
    assert "hop_seconds" not in fit.values_, "one size of groups cannot tell hops from calls"
    assert (
        fit.predict([{"op": "broadcast", "accelerators": 2, "message_bytes": 8}])[0]
        != (fit.predict([{"op": "all_reduce", "accelerators": 2, "message_bytes": 8}])[0])
    )


def test_links_of_gpus_learn_the_scale_up_rate_from_large_messages_only():
    rows = [
        {"op": "all_gather", "accelerators": 8, "nodes": 1, "message_bytes": size,
         "time_us": 20.0 + size * 7 / 8 / 300e9 * 1e6}
        for size in (2**10, 2**20, 2**24, 2**26, 2**28, 2**30)
    ]  # fmt: skip
    fit = LinkRates(domain=8).fit(rows)
    assert set(fit.values_) == {"scale_up_rate"}
    assert fit.values_["scale_up_rate"] == pytest.approx(300e9, rel=0.05)
    assert len(fit.residuals_) == 5


def test_a_machine_predicts_steps_it_has_not_seen():
    fit = MachineFit("paper").fit(gather(machine_records(noise=0.02, step_noise=0.02)))
    truth = MachineFit("truth").fit(gather(machine_records()))
    jobs = [job(m, s, b) for m in ("tiny", "tiny-19m") for s, b in
            (("ddp2-mb1", 2), ("fsdp2-mb1", 2), ("tp2-mb1", 1), ("pp2-ga4-mb1", 4))]  # fmt: skip
    assert fit.predict(jobs) == pytest.approx(truth.predict(jobs), rel=0.08)
    answer = {constant.name: constant for constant in fit.constants_}
    assert answer["overlap"].value == pytest.approx(0.25)
    assert answer["memory_rate"].unit == "bytes/s"
    assert fit.stack_.dp_overlap == pytest.approx(0.25)
    assert fit.stack_.contention == pytest.approx(0.75)
    # Four bytes travel where two are counted; Gloo reduces and scatters by an all-reduce.
    assert fit.cluster_.scale_out_bandwidth == pytest.approx(0.4e9, rel=0.06)
    assert fit.stack_.reduce_bytes == 2.0
    assert fit.fabric_.all_reduce_factor == pytest.approx(0.7, rel=0.06)
    assert fit.fabric_.scatter_factor == pytest.approx(1.9, rel=0.06)
    assert fit.fitted_on_.startswith("51 kernels, 33 collectives, 3 jobs on one device measured on")
    assert "2026-01-02 (torch 2.13.0, Python 3.11.7" in fit.fitted_on_


def test_the_interval_follows_the_residuals():
    calm = MachineFit("calm").fit(gather(machine_records(noise=0.01, step_noise=0.01)))
    wild = MachineFit("wild").fit(gather(machine_records(noise=0.01, step_noise=0.3)))
    assert calm.interval_[0] == pytest.approx(1.0 / calm.interval_[1], abs=1e-3)
    assert 1.03 < calm.interval_[1] < 1.12
    assert wild.interval_[1] > 1.15
    assert (calm.stack_.own_runs, wild.stack_.own_runs) == (3, 3)
    assert 0.05 <= calm.stack_.own_noise < wild.stack_.own_noise
    sweeps = [r for r in machine_records() if r.kind != "train"]
    blind = MachineFit("blind").fit(gather(sweeps))
    assert blind.stack_.own_runs == 0
    assert blind.interval_[1] > 1.13 > calm.interval_[1]
    assert "no step on one device" in blind.notes_[-2]
    assert "host time was not measured" in blind.notes_[-1]


def test_gather_sorts_and_remembers():
    data = gather(machine_records())
    assert (data.device, data.kind, data.dtype, data.ranks) == ("Paper CPU", "cpu", "fp32", 2)
    assert data.memory_bytes == 8e9
    assert [step.job.model.name for step in data.steps] == ["tiny", "tiny-19m", "tiny-65m"]
    two_threads = msgspec.structs.replace(WHERE, threads=2)
    more = [*machine_records(), train_record(job("tiny", "ddp1-mb2"), 1.0, number=9,
                                             where=two_threads)]  # fmt: skip
    data = gather(more)
    assert len(data.steps) == 3
    assert data.notes == [
        "1 single-device jobs were left out: compiled, or of another precision or number of threads"
    ]


def refused(records, said, **options):
    with pytest.raises(InputError, match=said) as caught:
        MachineFit("x").fit(gather(records, **options))
    assert caught.value.hint


def test_too_little_is_refused():
    rows, plan = kernel_rows()
    kernels = record("kernel", plan, {"rows": rows})
    few = record("kernel", plan, {"rows": [row for row in rows if row["kernel"] == "gemm"][:2]})
    links = record("collective", {}, {"rows": collective_rows(), "beside": None})
    narrow = record("collective", {}, {"rows": collective_rows(sizes=[2**20, 2**21])})
    refused([], "no timing of kernels or collectives")
    refused([links], "no kernel was timed")
    refused([kernels], "no collective was timed")
    refused([few, links], "2 timings of matrix products and 0 of memory are too few")
    refused([kernels, narrow], "too few to separate latency from bandwidth")


def test_several_machines_are_refused():
    rows, plan = kernel_rows()
    other = msgspec.structs.replace(WHERE, device_name="Other CPU")
    refused(
        [
            record("kernel", plan, {"rows": rows}),
            record("collective", {}, {"rows": collective_rows()}, where=other),
        ],
        "2 kinds of devices: Paper CPU with 1 threads and Other CPU with 1 threads",
    )


def test_devices_that_are_not_known_well_enough_are_refused():
    rows, plan = kernel_rows()
    gpu = msgspec.structs.replace(WHERE, device="cuda", device_name="Paper GPU", threads=None)
    h100 = msgspec.structs.replace(gpu, accelerator="h100-sxm-80gb")
    for where, said in ((gpu, "memory and datasheet are missing"), (h100, "was timed in fp32")):
        refused(
            [
                record("kernel", plan, {"rows": rows}, where=where),
                record("collective", {}, {"rows": collective_rows()}, where=where),
            ],
            said,
        )


def test_a_known_device_keeps_its_datasheet():
    rows, plan = kernel_rows(truth={**TRUTH, "gemm_flops": 700e12, "memory_rate": 2.8e12,
                                    "attention_forward_flops": 500e12,
                                    "attention_backward_flops": 400e12}, units=132.0)  # fmt: skip
    rows = [{**row, "dtype": "bf16"} for row in rows]
    h100 = msgspec.structs.replace(
        WHERE, device="cuda", device_name="NVIDIA H100 80GB HBM3", accelerator="h100-sxm-80gb",
        threads=None, ranks_per_node=8, ranks=8,
    )  # fmt: skip
    links = [
        {"op": op, "accelerators": 8, "nodes": 1, "scaleup_domain": 8, "message_bytes": size,
         "time_us": 30.0 + size * 7 / 8 / 360e9 * 1e6}
        for op in ("all_gather", "reduce_scatter") for size in (2**22, 2**26, 2**28, 2**30)
    ]  # fmt: skip
    fit = MachineFit("box").fit(
        gather(
            [
                record("kernel", {**plan, "dtype": "bf16"}, {"rows": rows}, where=h100),
                record("collective", {}, {"rows": links}, where=h100),
            ]
        )
    )
    assert fit.accelerator_.name == "h100-sxm-80gb"
    assert fit.cluster_.scale_up_domain == 8
    assert fit.chip_.name == "hopper"
    assert fit.chip_.link_efficiency == pytest.approx(360 / 450, rel=0.05)
    assert fit.chip_.memory_efficiency == pytest.approx(2.8 / 3.35, rel=0.1)
    assert fit.stack_.reduce_bytes == 4.0
    assert fit.fabric_.name == "unknown"


def test_contradictions_are_refused():
    rows, plan = kernel_rows()
    again = [{**row, "time_us": 3.0 * row["time_us"]} for row in rows]
    refused(
        [
            record("kernel", plan, {"rows": rows}),
            record("kernel", plan, {"rows": again}, number=2),
            record("collective", {}, {"rows": collective_rows()}),
        ],
        "contradict each other",
    )
    draw = np.random.default_rng(0)
    links = [{**row, "time_us": row["time_us"] * float(np.exp(draw.normal(0.0, 2.0)))}
             for row in collective_rows()]  # fmt: skip
    refused(
        [record("kernel", plan, {"rows": rows}), record("collective", {}, {"rows": links})],
        "no set of constants fits the timings of collectives",
    )


def test_overlap_is_a_share():
    def beside(together):
        return {"communication_seconds": 1.0, "compute_seconds": 2.0, "together_seconds": together}

    assert overlap_of([]) is None
    assert overlap_of([beside(2.25)]) == pytest.approx(0.75)
    assert overlap_of([beside(3.5)]) == 0.0
    assert overlap_of([beside(1.9)]) == 1.0
