"""Power model: watts of a device by activity, and of the facility.

    device_watts({"gemm": 0.6, "bubble": 0.1, ...}, 0.7, idle=80, cap=700)

Each kind of activity draws a fraction of the range between idle power and the power cap. A device
that waits inside a collective is far from idle: its kernels spin, memory and links stay clocked.
"""

from __future__ import annotations

from collections.abc import Mapping

from scalewise.numeric import Num
from scalewise.terms import TERMS

# Fraction of the range between idle and cap by activity.
# compute: an H200 draws 662 of 700 W in bf16 and fp8 GEMMs alike (idle 80): 0.94.
# communication: H100s under FSDP draw 5.87 % less when throughput falls by 37.22 % from 128 to
#   2,048 of them (arXiv 2411.13055), i.e. the added exposed time draws about 0.77 of the range.
# memory: an assumption, between the two: no published figure was found.
# waiting: whole H100 nodes fall to 4.4 of 7.1 kW when only waiting remains (MLPerf power logs,
#   1/8/64 nodes); hosts and fans taken off, about half of the device's range is left (rough).
COMPUTE, MEMORY, COMMUNICATION, WAITING = 0.94, 0.80, 0.77, 0.50

DRAW: Mapping[str, float] = {
    "compute": COMPUTE, "memory": MEMORY, "communication": COMMUNICATION, "waiting": WAITING,
}  # fmt: skip
"""The same by the activities of `scalewise.terms`."""

ACTIVITY: Mapping[str, float] = {term.key: DRAW[term.activity] for term in TERMS.values()}
"""The same by term of a step."""


def device_watts(terms: Mapping[str, Num], total: Num, *, idle: Num, cap: Num) -> Num:
    """Return the mean power of one device over a step, watts.

        idle + (cap - idle) * sum(draw_i * seconds_i) / total

    Args:
        terms: Seconds of the step by what the device does.
        total: Their sum.
        idle: Watts with nothing running.
        cap: Watts the device may draw: TDP, or the cap that was set.

    >>> round(device_watts({"gemm": 0.6, "bubble": 0.4}, 1.0, idle=80.0, cap=700.0), 2)
    553.68
    """
    # First by activity: most terms are the same for many strategies, and there are few activities.
    by_draw: dict[float, Num] = {}
    for name, seconds in terms.items():
        draw = ACTIVITY[name]
        by_draw[draw] = by_draw.get(draw, 0.0) + seconds
    activity: Num = 0.0
    for draw, seconds in by_draw.items():
        activity = activity + draw * seconds
    return idle + (cap - idle) * (activity / total)


def facility_watts(device: Num, *, host: Num, network: Num, pue: Num) -> Num:
    """Return the power of the facility per device, watts.

        (device + host + network) * pue

    Args:
        device: Watts of the device.
        host: Watts of its part of the host.
        network: Watts of its part of the network.
        pue: Power usage effectiveness: power of the facility over power of its machines.

    >>> facility_watts(600.0, host=300.0, network=100.0, pue=1.25)
    1250.0
    """
    return (device + host + network) * pue
