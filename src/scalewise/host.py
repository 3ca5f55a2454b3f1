"""Hosts of a cluster: what offload runs on, as stated or as typical of the accelerator.

    host = host_of(cluster)
    host.link, host.memory_bandwidth, host.assumed

Rates are datasheet rates in SI units and one way. What a cluster leaves open is taken from a node
whose accelerators have the same link, and `assumed` says so.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

LINK = 31.5e9
"""Link of accelerators whose datasheet names none: PCIe 4.0 x16, bytes/s."""

TYPICAL = {
    450e9: (512e9, 72.0),
    225e9: (256e9, 36.0),
    63e9: (76.8e9, 14.0),
    31.5e9: (51.2e9, 16.0),
    15.75e9: (17.1e9, 5.0),
}
"""Memory bandwidth (bytes/s) and cores per accelerator by the link of its datasheet. NVLink-C2C:
one Grace (72 cores, LPDDR5X of 512 GB/s) for one GPU or two. PCIe x16: an eighth of DGX H100 (16
channels of DDR5-4800, 112 cores), DGX A100 (16 of DDR4-3200, 128) and DGX-1 (8 of DDR4-2133, 40),
from their user guides."""

TPU_CHIPS = 4
"""Chips of a TPU host where none are stated (Google Cloud documentation: v4, v5p, 7x; v5e and v6e
also have hosts of one and eight)."""

NVME = 2e9
"""Read and write rate of local NVMe per accelerator, bytes/s: an eighth of the 16 GB/s of a p4d
(AWS, Amazon EC2 P4d instances deep dive: eight devices in RAID 0)."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One host of a cluster."""

    accelerators: int
    """Accelerators that share it."""
    link: float
    """Link of one accelerator to it while all of them copy, one way, bytes/s."""
    memory_bytes: float | None
    """Its memory, bytes; None if unknown."""
    memory_bandwidth: float
    """Peak of its memory, bytes/s."""
    cores: float
    """CPU cores."""
    nvme_read: float
    """Read rate of its NVMe, bytes/s."""
    nvme_write: float
    """Write rate of its NVMe, bytes/s."""
    assumed: tuple[str, ...]
    """Assumptions for unpublished values, one sentence each, without NVMe."""
    assumed_nvme: tuple[str, ...]
    """The same for NVMe."""


@lru_cache(maxsize=256)
def host_of(cluster: Cluster) -> Host:
    """Return the host of a cluster, with typical values where it states none."""
    chip, assumed, of_nvme = cluster.accelerator, list[str](), list[str]()
    whole = cluster.host_accelerators or cluster.scale_up_domain
    if cluster.host_accelerators is None and chip.kind == "tpu" and whole > TPU_CHIPS:
        whole = TPU_CHIPS
        assumed.append(f"chips per host unknown: {TPU_CHIPS} assumed")
    accelerators = min(whole, cluster.accelerators)
    link = cluster.host_link_bandwidth or chip.host_link_bandwidth
    if link is None:
        link = LINK
        assumed.append(f"host link of {chip.name} unknown: PCIe 4.0 x16, 31.5 GB/s assumed")
    generation = chip.host_link_bandwidth or LINK
    typical, many = TYPICAL[min(TYPICAL, key=lambda rate: abs(rate - generation))]
    bandwidth, cores = cluster.host_memory_bandwidth, cluster.host_cores
    if bandwidth is None:
        bandwidth = whole * typical
        assumed.append(
            f"host memory bandwidth unknown: {typical / 1e9:.1f} GB/s per GPU assumed "
            "(hosts of the same link)"
        )
    if cores is None:
        cores = max(round(whole * many), 1)
        assumed.append(f"CPU cores unknown: {many:.0f} per GPU assumed (hosts of the same link)")
    if cluster.host_memory_bytes is None:
        assumed.append("host memory unknown: whether offloaded bytes fit there is not checked")
    read, write = cluster.nvme_read_bandwidth, cluster.nvme_write_bandwidth
    if read is None:
        read = whole * NVME
        of_nvme.append(f"NVMe read rate unknown: {NVME / 1e9:.0f} GB/s per GPU assumed (AWS p4d)")
    if write is None:
        write = whole * NVME
        of_nvme.append(f"NVMe write rate unknown: {NVME / 1e9:.0f} GB/s per GPU assumed (AWS p4d)")
    return Host(
        accelerators=accelerators,
        link=link / min(cluster.host_link_accelerators, accelerators),
        memory_bytes=cluster.host_memory_bytes,
        memory_bandwidth=bandwidth,
        cores=float(cores),
        nvme_read=read,
        nvme_write=write,
        assumed=tuple(assumed),
        assumed_nvme=tuple(of_nvme),
    )
