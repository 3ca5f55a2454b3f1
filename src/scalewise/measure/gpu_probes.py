"""Checks of one device in a process of their own: each prints its numbers as one line of JSON.

    python -m scalewise.measure.gpu_probes energy cuda
    {"measured": {"counter_joules": 812.4, "power_joules": 803.1}, "problem": null}

They call the functions that measurements call, so that a failure here is one there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from scalewise.measure.power import MILLI, Counter, host_counter, nvml_handle
from scalewise.measure.timing import synchronise
from scalewise.measure.train import Memory, gpu_counter
from scalewise.records.environment import accelerator_of

MIB = 2**20

HELD_BYTES = 256 * MIB
"""Size of the buffer by which the reset of the peak is seen."""

SLACK_BYTES = 64 * MIB
"""Memory that a process may take or free beside it: a quarter of the buffer."""

LOAD_SIZE = 4096
"""Rows, columns and depth of the products that load a GPU: long enough to hide their launch."""

SETTLE_SECONDS, LOAD_SECONDS = 2.0, 4.0
"""Load before and during the comparison of energy: NVML's power is a mean over 1 s on most GPUs
(https://docs.nvidia.com/deploy/nvml-api, nvmlDeviceGetPowerUsage)."""

ENERGY_TOLERANCE = 0.15
"""Largest error of a counter against the integral of power: an assumption, for sampled power."""

EVENT_TOLERANCE, EVENT_SLACK = 0.05, 0.5e-3
"""Largest difference of host time and events: a part of it, and what a launch and a wait take."""

EVENT_PRODUCTS = 50
"""Products between two events."""


class Seen(NamedTuple):
    """Outcome of a check."""

    measured: dict[str, Any]
    """Numbers by name."""
    problem: str | None = None
    """What is wrong, in one sentence; None if nothing is."""
    applies: bool = True
    """Whether the device has what is checked."""


def devices(kind: str) -> Seen:
    """List the devices and the versions of their libraries."""
    if kind == "cpu":
        return Seen({"count": 2, "names": ["cpu"] * 2, "accelerator": None})
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return Seen({"count": 0}, "there is no GPU that PyTorch can use here")
    known = [torch.cuda.get_device_properties(i) for i in range(count)]
    names = [torch.cuda.get_device_name(i) for i in range(count)]
    nccl = torch.distributed.is_nccl_available()
    measured = {
        "count": count, "names": names, "accelerator": accelerator_of(names[0]),
        "memory_bytes": [each.total_memory for each in known],
        "capability": [f"{each.major}.{each.minor}" for each in known],
        "uuid": [str(getattr(each, "uuid", "")) for each in known],
        "gcn_arch": [str(getattr(each, "gcnArchName", "")) for each in known],
        "torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
        "nccl": str(torch.cuda.nccl.version()) if nccl else None,
        "bf16": torch.cuda.is_bf16_supported(including_emulation=False),
    }  # fmt: skip
    if not nccl:
        return Seen(measured, "this PyTorch was built without NCCL, which GPUs need")
    return Seen(measured)


def power(kind: str) -> Seen:
    """Read name and power of every visible GPU from its vendor's library."""
    if kind == "cpu":
        return Seen({}, applies=False)
    watts, foreign = [], []
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        told, read = _power_reader(torch.device("cuda", index))
        watts.append(read())
        if told and told.split() != name.split():
            foreign.append(f"GPU {index} is {name}, but NVML's handle of its UUID is {told}")
    wrong = [f"{each:g} W" for each in watts if not 1.0 <= each <= 3000.0]
    problem = foreign[0] if foreign else f"a power of {wrong[0]} is impossible" if wrong else None
    return Seen({"watts": watts}, problem)


def _power_reader(device: torch.device) -> tuple[str, Callable[[], float]]:
    """Return the name of a GPU in NVML ("" on AMD), and what reads its power, watts."""
    if torch.version.hip is None:
        nvml, handle = nvml_handle(str(torch.cuda.get_device_properties(device).uuid))
        name = str(nvml.nvmlDeviceGetName(handle))
        return name, lambda: float(nvml.nvmlDeviceGetPowerUsage(handle)) * MILLI
    # PyTorch hands amdsmi's watts on, although it documents milliwatts:
    # https://rocm.docs.amd.com/projects/amdsmi/en/latest, amdsmi_get_power_info.
    return "", lambda: float(torch.cuda.power_draw(device))


def energy(kind: str) -> Seen:
    """Compare the energy counter with the integral of power while products run."""
    if kind == "cpu":
        counter = host_counter()
        if counter is None:
            return Seen({}, applies=False)
        before = counter.joules()
        _spin(torch.device("cpu"), 0.2)
        joules = counter.joules() - before
        return Seen({"counter_joules": joules}, None if joules > 0.0 else "RAPL stands still")
    device = torch.device("cuda", 0)
    counter = gpu_counter(device)
    _, watts = _power_reader(device)
    if counter is None:
        return Seen({"watts": watts()}, _why_no_counter(device))
    a = torch.randn(LOAD_SIZE, LOAD_SIZE, device=device, dtype=torch.bfloat16)

    def work() -> None:
        for _ in range(8):
            torch.mm(a, a)
        torch.cuda.synchronize(device)

    _during(SETTLE_SECONDS, work)
    return compared_energy(counter, watts, work, LOAD_SECONDS)


def _why_no_counter(device: torch.device) -> str:
    if torch.version.hip is not None:
        return "amdsmi has no energy counter for this GPU"
    nvml, handle = nvml_handle(str(torch.cuda.get_device_properties(device).uuid))
    joules = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    return f"NVML counts {joules} mJ, but the GPU is divided into MIG instances"


def compared_energy(
    counter: Counter,
    watts: Callable[[], float],
    work: Callable[[], None],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Seen:
    """Compare a counter with the integral of sampled power.

    Args:
        counter: Counts energy.
        watts: Reads power, watts.
        work: Keeps the device busy for a moment.
        seconds: Length of the comparison.
        clock: Reads the time, seconds.
    """
    times, readings = [clock()], [watts()]
    before = counter.joules()
    while times[-1] - times[0] < seconds:
        work()
        times.append(clock())
        readings.append(watts())
    joules, expected = counter.joules() - before, integral(times, readings)
    measured = {"counter": counter.source, "counter_joules": joules, "power_joules": expected}
    if abs(joules / expected - 1.0) <= ENERGY_TOLERANCE:
        return Seen(measured)
    return Seen(measured, f"the counter says {joules:.0f} J, power over time {expected:.0f} J")


def integral(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the area under sampled values, by trapezoids.

    >>> integral([0.0, 1.0, 3.0], [100.0, 300.0, 300.0])
    800.0
    """
    pieces = zip(times, times[1:], values, values[1:], strict=False)
    return sum((end - start) * (one + other) / 2.0 for start, end, one, other in pieces)


def events(kind: str) -> Seen:
    """Compare CUDA events with the host's clock around the same products."""
    if kind == "cpu":
        return Seen({}, applies=False)
    device = torch.device("cuda", 0)
    a = torch.randn(LOAD_SIZE, LOAD_SIZE, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    torch.mm(a, a, out=out)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronise(device)
    start = time.perf_counter()
    first.record()
    for _ in range(EVENT_PRODUCTS):
        torch.mm(a, a, out=out)
    last.record()
    synchronise(device)
    host = time.perf_counter() - start
    return compared_times(host, first.elapsed_time(last) * MILLI)


def compared_times(host: float, device: float) -> Seen:
    """Compare the time of the host with that of events, seconds."""
    measured = {"host_seconds": host, "event_seconds": device}
    if abs(host - device) <= EVENT_TOLERANCE * host + EVENT_SLACK:
        return Seen(measured)
    return Seen(measured, f"the host counts {1e3 * host:.3f} ms, events {1e3 * device:.3f} ms")


def memory(kind: str) -> Seen:
    """Check that a peak is seen, and forgotten when the next job starts."""
    device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
    first = Memory(device)
    held = torch.ones(HELD_BYTES, dtype=torch.uint8, device=device)
    synchronise(device)
    seen = first.peak()
    del held
    second = Memory(device)
    small = torch.ones(MIB, dtype=torch.uint8, device=device)
    synchronise(device)
    left = second.peak()
    measured = {"basis": first.basis, "peak_bytes": seen, "after_reset_bytes": left}
    del small
    if abs(seen - HELD_BYTES) > SLACK_BYTES:
        return Seen(measured, f"a buffer of {HELD_BYTES} bytes has a peak of {seen:.0f}")
    if left > SLACK_BYTES:
        return Seen(measured, f"the peak is still {left:.0f} bytes after its reset")
    return Seen(measured)


def attention(kind: str) -> Seen:
    """Time the kernels of attention that PyTorch can choose from."""
    device = torch.device(kind)
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    length = 2048 if kind == "cuda" else 64
    q = torch.randn(1, 8, length, 64, device=device, dtype=dtype)
    chosen = _seconds(lambda: scaled_dot_product_attention(q, q, q, is_causal=True), device)
    measured: dict[str, Any] = {"chosen_seconds": chosen}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                    SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):  # fmt: skip
        measured[backend.name.lower()] = _forced(backend, q, device)
    if all(measured[name] is None for name in ("flash_attention", "efficient_attention")):
        return Seen(measured, "attention has no fused kernel: sequences take quadratic memory")
    return Seen(measured)


def _forced(backend: SDPBackend, q: Tensor, device: torch.device) -> float | None:
    """Time of attention by one kernel, seconds; None where it cannot run."""
    try:
        with sdpa_kernel(backend):
            return _seconds(lambda: scaled_dot_product_attention(q, q, q, is_causal=True), device)
    except RuntimeError:
        return None


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    call()
    synchronise(device)
    start = time.perf_counter()
    for _ in range(10):
        call()
    synchronise(device)
    return (time.perf_counter() - start) / 10.0


def _spin(device: torch.device, seconds: float) -> None:
    a = torch.randn(256, 256, device=device)
    _during(seconds, lambda: torch.mm(a, a))


def _during(seconds: float, work: Callable[[], object]) -> None:
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        work()


PROBES: dict[str, Callable[[str], Seen]] = {
    "devices": devices, "power": power, "energy": energy, "events": events, "memory": memory,
    "attention": attention,
}  # fmt: skip


def main(name: str, kind: str) -> str:
    """Run a check; its outcome as JSON, whatever happens."""
    try:
        seen = PROBES[name](kind)
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        seen = Seen({}, f"{type(error).__name__}: {first}")
    return msgspec.json.encode(seen._asdict()).decode()


if __name__ == "__main__":
    print(main(*sys.argv[1:3]))
