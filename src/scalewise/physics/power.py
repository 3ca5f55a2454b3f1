"""What a step draws: watts from what the chip is doing, joules from how long.

    device_watts({"gemm": 0.6, "bubble": 0.1, ...}, 0.7, idle=80, cap=700)

Each kind of activity draws a share of the range between idle and the power cap. A device that
waits inside a collective is far from idle: its kernels spin, memory and links stay clocked.
"""

from __future__ import annotations

from collections.abc import Mapping

from scalewise.numeric import Num

# Share of the range between idle and cap by what the device does.
# compute: an H200 draws 662 of 700 W in bf16 and fp8 GEMMs alike (idle 80): 0.94.
# communication: H100s under FSDP draw 5.87 % less when throughput falls by 37.22 % from 128 to
#   2,048 of them (arXiv 2411.13055), i.e. the added exposed time draws about 0.77 of the range.
# memory: an assumption, between the two: no published figure was found.
# waiting: whole H100 nodes fall to 4.4 of 7.1 kW when only waiting remains (MLPerf power logs,
#   1/8/64 nodes); hosts and fans taken off, about half of the device's range is left (rough).
COMPUTE, MEMORY, COMMUNICATION, WAITING = 0.94, 0.80, 0.77, 0.50

ACTIVITY: Mapping[str, float] = {
    "gemm": COMPUTE,
    "attention": COMPUTE,
    "head": COMPUTE,
    "recompute": COMPUTE,
    "memory_bound": MEMORY,
    "optimizer": MEMORY,
    # Compute that communication holds up: units wait while links and memory work.
    "contention": COMMUNICATION,
    "tensor_parallel": COMMUNICATION,
    "context_parallel": COMMUNICATION,
    "data_parallel_gather": COMMUNICATION,
    "data_parallel_reduce": COMMUNICATION,
    "pipeline_send": COMMUNICATION,
    "host": WAITING,
    "bubble": WAITING,
    "overhead": WAITING,
    "straggler": COMMUNICATION,
}


def device_watts(terms: Mapping[str, Num], total: Num, *, idle: Num, cap: Num) -> Num:
    """Return the mean power of one device over a step.

    Args:
        terms: Seconds of the step by what the device does.
        total: Their sum.
        idle: Watts with nothing running.
        cap: Watts the device may draw: TDP, or the cap that was set.
    """
    activity: Num = 0.0
    for name, seconds in terms.items():
        activity = activity + ACTIVITY[name] * seconds
    return idle + (cap - idle) * (activity / total)


def facility_watts(device: Num, *, host: Num, network: Num, pue: Num) -> Num:
    """Return what the site draws per device: device, its share of host and network, times PUE."""
    return (device + host + network) * pue
