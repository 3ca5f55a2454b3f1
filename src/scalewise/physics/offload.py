"""Offload: rates of copies to host memory, of updates on its CPUs, and what compute overlaps.

    link_rate(63e9, 614.4e9, 8.0)             # 55.4e9 bytes/s of one GPU while all eight copy
    cpu_update_rate(614.4e9, 112.0)           # 283e9 bytes/s of one host

Pure functions on floats or arrays; SI units.
"""

from __future__ import annotations

from scalewise.numeric import Num, maximum, minimum

LINK_EFFICIENCY = 0.88
"""Fraction of a host link's rate that copies of page-locked memory reach: 55.63 of 63 GB/s over
PCIe 5.0 x16 (NVIDIA, nvbandwidth: a tool to measure GPU interconnect and memory performance)."""

STREAM = 0.8
"""Fraction of the peak of host memory that streams sustain: 410 of 512 GB/s per Grace (NVIDIA Grace
performance tuning guide, STREAM triad), 330 to 350 of 410 GB/s on two EPYC Milan (Azure HBv3)."""

CPU_ADAM = 0.46
"""Fraction of the peak of host memory that DeepSpeed's CPUAdam moves: 10 billion parameters of 30
bytes in 2.57 s on two Xeon 8168, 256 GB/s (Ren et al., ZeRO-Offload, arXiv 2101.06840, table 4;
its rows of 1 to 8 billion are 14% faster to 15% slower than this fraction says)."""

CORE_RATE = 12e9
"""Bytes/s that one core streams, which bounds hosts of few cores. An assumption: 12 to 14 GB/s are
usual of one Xeon core, limited by its outstanding cache lines."""

UPDATE_BYTES = 30.0
"""Bytes an AdamW update with master weights moves per parameter: `optimizer.update_bytes`."""

SUB_GROUP = 1e9
"""Parameters that are updated at once, in host memory meanwhile, where their states are on NVMe:
DeepSpeed's default of sub_group_size (deepspeed.ai, configuration)."""

BUCKET = 5e8
"""Gradients that wait on the device for their copy: DeepSpeed's default of reduce_bucket_size
(deepspeed.ai, configuration), elements."""

TILE = 128.0 * 1024.0**2
"""Parameters after whose update their copy to the device starts: DeepSpeed's TILE
(csrc/includes/cpu_adam.h)."""

RESIDENT_LAYERS = 2.0
"""Layers whose activations stay on the device: one in use, one on its way. NVIDIA/TransformerEngine
offloads with double buffers (transformer_engine/pytorch/cpu_offload.py)."""


def link_rate(link: Num, memory: Num, ranks: Num) -> Num:
    """Return the bytes/s of copies of one accelerator, one way, while all of a host copy.

        min(0.88 link, 0.8 memory / ranks)

    Args:
        link: Link of one accelerator, one way, bytes/s.
        memory: Peak of the host's memory, bytes/s.
        ranks: Accelerators of the host.

    >>> round(float(link_rate(63e9, 614.4e9, 8.0)) / 1e9, 1)
    55.4
    """
    return minimum(LINK_EFFICIENCY * link, STREAM * memory / ranks)


def cpu_update_rate(memory: Num, cores: Num) -> Num:
    """Return the bytes/s that an update on the CPUs of a host moves.

        min(0.46 memory, 12e9 cores)

    Args:
        memory: Peak of the host's memory, bytes/s.
        cores: CPU cores of the host.

    >>> round(10e9 * UPDATE_BYTES / float(cpu_update_rate(255.9e9, 48.0)), 2)
    2.55
    """
    return minimum(CPU_ADAM * memory, CORE_RATE * cores)


def exposed_copy(copy: Num, last: Num, overlapped: Num) -> Num:
    """Return the seconds by which copies outlast what runs beside them.

        max(last, copy - overlapped)

    Copies of parts of equal size start as the parts are done: either the copy of the last part
    stays, or the link is busy from the first part on.

    Args:
        copy: All copies, seconds.
        last: The copy of the last part, seconds.
        overlapped: Work that comes after the first part, seconds.

    >>> [float(exposed_copy(3.0, 0.5, beside)) for beside in (4.0, 1.0)]
    [0.5, 2.0]
    """
    return maximum(last, copy - overlapped)
