"""Hardware: accelerator, fabric between scale-up domains, and cluster.

A `Cluster` is accelerators in scale-up domains (NVLink, xGMI, ICI), joined by a scale-out fabric.
All numbers are SI and one way. Nothing here computes a time: these are immutable records, read from
the catalog and checked once; `with_` returns a changed copy.

    cluster = load_cluster("dgx-h100", accelerators=2048)    # scalewise.catalog
    cluster.accelerator.peak("fp8")                          # 1.979e15 FLOP/s
    cluster.with_(scale_out_bandwidth="800Gbit/s").nodes     # 256

This file imports only `errors`, `fields`, `precision`, `price` and `units` of scalewise.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.fields import replace
from scalewise.precision import RECIPES
from scalewise.price import Price, PriceKind
from scalewise.units import parse

Host = Literal["intel", "amd", "arm", "unknown"]
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")

ACCELERATOR_UNITS: Mapping[str, str] = {
    "peak_flops": "flops_per_second",
    "memory_bytes": "bytes",
    "memory_bandwidth": "bytes_per_second",
    "scale_up_bandwidth": "bytes_per_second",
    "nccl_bandwidth": "bytes_per_second",
    "scale_out_bandwidth": "bytes_per_second",
    "host_link_bandwidth": "bytes_per_second",
    "tdp_watts": "watts",
    "idle_watts": "watts",
    "boost_hz": "hertz",
    "usd_per_hour": "dollars_per_hour",
    "usd_per_hour_low": "dollars_per_hour",
    "usd_per_hour_high": "dollars_per_hour",
}
FABRIC_UNITS: Mapping[str, str] = {
    "hop_seconds": "seconds",
    "call_seconds": "seconds",
    "ring_step_seconds": "seconds",
}
CLUSTER_UNITS: Mapping[str, str] = {
    "accelerators": "count",
    "scale_up_domain": "count",
    "scale_up_bandwidth": "bytes_per_second",
    "scale_out_bandwidth": "bytes_per_second",
    "tier_size": "count",
    "host_accelerators": "count",
    "host_link_bandwidth": "bytes_per_second",
    "host_link_accelerators": "count",
    "host_memory_bytes": "bytes",
    "host_memory_bandwidth": "bytes_per_second",
    "host_cores": "count",
    "nvme_read_bandwidth": "bytes_per_second",
    "nvme_write_bandwidth": "bytes_per_second",
    "power_cap_watts": "watts",
    "host_watts": "watts",
    "network_watts": "watts",
    "usd_per_hour": "dollars_per_hour",
}

# Precision of GEMMs -> the datasheet column that bounds them.
_PEAK_OF = {word: recipe.peak for word, recipe in RECIPES.items()} | {
    "mxfp4": "fp4",
    **{dtype: dtype for dtype in DTYPES},
}

# Where idle power is not published (and then listed by `Cluster.assumed`). nvidia-smi at 0 % use
# in public logs: V100 40/300, A100 60/400, H100 70/700, H200 80/700, B200 140/1000, B300 180/1100,
# GB300 234/1400, that is 10 to 17 % of TDP, mean 14 %.
IDLE_SHARE = 0.14
# PUE: 1.1 to 1.2 for modern facilities, 1.4 to 1.6 for older ones (planning values,
# aiinframap.com).
PUE = 1.15

MAX_PARTS = 2**32
"""Limit of counts: GPUs, those of a domain or tier, cores; far beyond any machine."""

MAX_PUE = 100.0
"""Limit of the PUE: that of measured facilities is 1.0 to 3."""

MAX_RATE = 1e9
"""Limit of watts of a host and of dollars per hour, per accelerator: beyond, sums overflow."""

MAX_UNITS = 1_000_000
"""Limit of compute units of one accelerator; WSE-3, the largest chip, has 900,000 cores."""

_S = TypeVar("_S", bound=msgspec.Struct)

_YOURS = {
    "price_kind": "yours", "price_date": "", "price_source": "", "price_region": "",
    "price_chip": "",
}  # fmt: skip


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device: datasheet, power and cost."""

    name: str
    """Name, with memory size: "h100-sxm-80gb"."""
    vendor: str
    """Vendor."""
    architecture: str
    """Generation under which measured efficiencies are shared: "hopper", "cdna3", "tpu-v5p"."""
    device_names: tuple[str, ...] = ()
    """Parts of the names that drivers report for it, such as "H100 80GB HBM3"."""
    kind: Literal["gpu", "tpu", "other"]
    """Communication model: NCCL-like, torus, or neither."""
    peak_flops: dict[str, float]
    """Dense (not sparse) peak by dtype of GEMMs, FLOP/s."""
    memory_bytes: float
    """Device memory the driver reports, bytes; frameworks can use a little less."""
    memory_bandwidth: float
    """Peak of the device memory, bytes/s."""
    scale_up_name: str
    """Scale-up link: "NVLink4", "ICI 3D torus"."""
    scale_up_domain: int
    """Typical accelerators per scale-up domain."""
    scale_up_bandwidth: float | None = None
    """Of all scale-up links of one accelerator, one way, bytes/s; None if not published."""
    nccl_bandwidth: float | None = None
    """The same in NCCL's topology search, bytes/s; None if NCCL does not list the links."""
    scale_up_switch: bool = True
    """Whether a switch joins a domain; without one, a part of it has a part of the links."""
    scale_out_bandwidth: float | None = None
    """Network bandwidth per accelerator in typical nodes, one way, bytes/s; None if unknown."""
    host_link_bandwidth: float | None = None
    """Link to the memory of the host (PCIe, NVLink-C2C), one way, bytes/s; None if unknown."""
    tdp_watts: float | None = None
    """Power limit of the device as sold, watts."""
    idle_watts: float | None = None
    """Idle power, watts."""
    compute_units: int | None = None
    """SMs or CUs, over which kernels are spread; None if not published."""
    nvls: bool = False
    """Whether the switch between the accelerators of a domain can reduce (NVLink SHARP)."""
    gemm_prior: float | None = None
    """Fraction of the 16-bit peak that GEMMs are expected to sustain in training, for architectures
    of which no run was fitted; None if nothing is known."""
    boost_hz: float | None = None
    """Clock behind `peak_flops`, hertz."""
    usd_per_hour: float | None = None
    """Typical cost of one accelerator in its node, dollars/hour."""
    usd_per_hour_low: float | None = None
    """Low end of the market, dollars/hour."""
    usd_per_hour_high: float | None = None
    """High end of the market, dollars/hour."""
    price_kind: PriceKind = "market"
    """What the prices are: offers on the market, or the list of the vendor."""
    price_date: str | None = None
    """Date of the prices, YYYY-MM."""
    price_source: str = ""
    """Where the prices were read."""
    purchase_usd: float | None = None
    """Purchase of one with its share of node and network, dollars; None if unknown."""
    purchase_date: str | None = None
    """Date of the purchase price, YYYY-MM."""
    purchase_source: str = ""
    """Where it was read."""
    release: str | None = None
    """Date of announcement or shipment, YYYY-MM or YYYY-MM-DD."""
    notes: str = ""
    """What a reader should know before trusting a number."""
    source: str = ""
    """Where the numbers were read."""

    def __post_init__(self) -> None:
        where = f"accelerator `{self.name}`"
        for dtype in self.peak_flops:
            if dtype not in DTYPES:
                message = f"{where}: unknown dtype {dtype} in peak_flops"
                raise InputError(message, hint=did_you_mean(dtype, DTYPES))
            _check(where, f"peak_flops.{dtype}", self.peak_flops[dtype], above=0)
        _check(where, "memory_bytes", self.memory_bytes, above=0)
        _check(where, "memory_bandwidth", self.memory_bandwidth, above=0)
        _check(where, "scale_up_domain", self.scale_up_domain, minimum=1, whole=True)
        for field in (
            "scale_up_bandwidth", "nccl_bandwidth", "scale_out_bandwidth", "host_link_bandwidth",
            "tdp_watts", "gemm_prior", "boost_hz",
        ):  # fmt: skip
            _check(where, field, getattr(self, field), above=0)
        _check(where, "compute_units", self.compute_units, minimum=1, maximum=MAX_UNITS, whole=True)
        for field in (
            "idle_watts",
            "usd_per_hour",
            "usd_per_hour_low",
            "usd_per_hour_high",
            "purchase_usd",
        ):
            _check(where, field, getattr(self, field), minimum=0)
        if self.tdp_watts and self.idle_watts and self.idle_watts >= self.tdp_watts:
            message = (
                f"{where}: idle_watts = {self.idle_watts:g} must be below "
                f"tdp_watts = {self.tdp_watts:g}"
            )
            raise InputError(message)

    def __hash__(self) -> int:
        # The peaks are a dict, which has no hash; the name and a few numbers identify a chip.
        return hash(
            (self.name, self.memory_bytes, self.memory_bandwidth, *self.peak_flops.values())
        )

    def peak(self, precision: str) -> float:
        """Return the dense GEMM peak of a precision, FLOP/s.

        Args:
            precision: A word of `precision.RECIPES`, tf32 or fp32.

        Returns:
            The dense peak, FLOP/s.

        Raises:
            InputError: If the accelerator has no such units, or their peak is not published.
        """
        wanted = precision.lower()
        if wanted not in _PEAK_OF:
            message = f"unknown precision {precision}"
            raise InputError(message, hint=did_you_mean(wanted, _PEAK_OF))
        if _PEAK_OF[wanted] in self.peak_flops:
            return self.peak_flops[_PEAK_OF[wanted]]
        message = (
            f"precision {precision} is not supported: {self.name} has no {_PEAK_OF[wanted]} peak"
        )
        twin = {"bf16": "fp16", "fp16": "bf16"}.get(wanted, "")
        has = ", ".join(dtype for dtype in DTYPES if dtype in self.peak_flops)
        hint = f"use {twin}" if twin in self.peak_flops else f"it has {has or 'no published peaks'}"
        raise InputError(message, hint=hint)

    def with_(self, **changes: Any) -> Accelerator:
        """Return a copy with some fields changed, such as twice the memory bandwidth.

        Args:
            **changes: Fields by name; a string is read with its unit ("6TB/s").

        Returns:
            The changed, checked copy.

        Raises:
            InputError: If a field does not exist or a value is impossible.
        """
        return _changed(self, changes, ACCELERATOR_UNITS)


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Network between domains, without its bit rate."""

    name: str
    """Name: "infiniband", "roce", "efa"."""
    family: str = ""
    """Fabrics that share fitted constants (congestion, latency at scale): "rdma"."""
    hop_seconds: float
    """Latency of the NIC and its switches, added to every network hop of a collective, seconds."""
    call_seconds: float
    """Constant per collective that crosses the fabric (proxy wake-up, rendezvous), seconds."""
    efficiency: float
    """Fraction of the NIC rate that arrives as payload, 0 to 1."""
    ring_step_seconds: float = 0.0
    """Minimum time of one ring step across the fabric: its message rate, seconds."""
    flat_domains: float = 16.0
    """Domains that the network joins without loss: those of one leaf in rail-aligned networks."""
    congestion: float = 0.0
    """Relative slowdown per doubling of domains beyond `flat_domains`."""
    rail_scaling: float = 1.0
    """Exponent with which the NICs of one domain add up for one group: 1 if all are used."""
    latency_factor: float = 1.0
    """Factor on the hop latencies of NCCL's model, for machines on which they were measured."""
    ll128: bool = False
    """Whether NCCL may choose the protocol LL128 across domains. It does where the path from GPU
    to NIC is within PXB (PXN on Hopper), which bare-metal hosts show; virtual machines, EFA and TCP
    get Simple (NVIDIA/nccl, src/graph/tuning.cc; aws-ofi-nccl issues 76, 715, 850)."""
    scatter_factor: float = 1.0
    """Bytes that a reduce-scatter moves over those of a ring; Gloo has none of its own and runs an
    all-reduce, which moves twice as many."""
    all_reduce_factor: float = 1.0
    """The same for an all-reduce, where it is faster or slower than two passes of a ring."""
    description: str = ""
    """Description, one line."""
    notes: str = ""
    """Reliability of the numbers."""
    source: str = ""
    """Sources."""

    def __post_init__(self) -> None:
        where = f"fabric `{self.name}`"
        _check(where, "hop_seconds", self.hop_seconds, minimum=0)
        _check(where, "call_seconds", self.call_seconds, minimum=0)
        _check(where, "efficiency", self.efficiency, above=0, maximum=1)
        _check(where, "ring_step_seconds", self.ring_step_seconds, minimum=0)
        _check(where, "flat_domains", self.flat_domains, minimum=1)
        _check(where, "congestion", self.congestion, minimum=0)
        _check(where, "rail_scaling", self.rail_scaling, minimum=0, maximum=1)
        for field in ("latency_factor", "scatter_factor", "all_reduce_factor"):
            _check(where, field, getattr(self, field), above=0)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accelerators in scale-up domains, joined by a scale-out fabric."""

    name: str
    """Name: "dgx-h100", "aws-p5"."""
    accelerator: Accelerator
    """The device, the same everywhere."""
    accelerators: int
    """Number of accelerators."""
    scale_up_domain: int
    """Accelerators per scale-up domain (8 on HGX boards, 72 in an NVL72 rack)."""
    scale_up_bandwidth: float
    """Bandwidth of all scale-up links of one accelerator, one way, bytes/s."""
    scale_out_bandwidth: float
    """Network bandwidth per accelerator, one way, bytes/s, before the fabric's efficiency."""
    fabric: Fabric
    """The network between domains."""
    host_watts: float
    """Power per accelerator of CPUs, memory, NICs, fans and conversion losses, watts."""
    network_watts: float
    """Power per accelerator of switches and optics, watts."""
    oversubscription: float = 1.0
    """Scale-out bandwidth is divided by this for groups that span more than `tier_size`."""
    tier_size: int | None = None
    """Accelerators in one full-rate part of the fabric; None if all of it is full-rate."""
    host: Host = "unknown"
    """CPU vendor: NCCL's overhead per network step differs."""
    host_accelerators: int | None = None
    """Accelerators of one host, which share its memory; None for those of a scale-up domain."""
    host_link_bandwidth: float | None = None
    """Link of one accelerator to its host, one way, bytes/s; None for the accelerator's."""
    host_link_accelerators: int = 1
    """Accelerators that share one such link behind a PCIe switch."""
    host_memory_bytes: float | None = None
    """Memory of one host, bytes; None if unknown."""
    host_memory_bandwidth: float | None = None
    """Peak of the memory of one host, all CPUs, bytes/s; None if unknown."""
    host_cores: int | None = None
    """CPU cores of one host; None if unknown."""
    nvme_read_bandwidth: float | None = None
    """Read rate of the local NVMe of one host, bytes/s; None if unknown."""
    nvme_write_bandwidth: float | None = None
    """Write rate of it, bytes/s; None if unknown."""
    algorithm: Literal["auto", "ring", "tree", "pat", "hierarchical"] = "auto"
    """Collective algorithm (NCCL_ALGO); auto is NCCL's choice."""
    protocol: Literal["auto", "ll", "ll128", "simple"] = "auto"
    """Collective protocol (NCCL_PROTO); auto is NCCL's choice."""
    power_cap_watts: float | None = None
    """Power limit set per accelerator, watts; None is the TDP."""
    pue: float = PUE
    """Facility power per power of its machines."""
    usd_per_hour: float | None = None
    """Cost of one accelerator with its node, dollars/hour; None if unknown."""
    price_kind: PriceKind = "yours"
    """What the price is; see `scalewise.price`."""
    price_date: str = ""
    """Date of the price, YYYY-MM."""
    price_source: str = ""
    """Where the price was read."""
    price_region: str = ""
    """Region of the cloud where the price holds."""
    price_chip: str = ""
    """Accelerator that the price is inherited from; empty for a price of the cluster."""
    assumptions: tuple[str, ...] = ()
    """Assumptions for unpublished values, one sentence each."""
    notes: str = ""
    """What a reader should know before trusting a number."""
    source: str = ""
    """Where the numbers were read."""

    def __post_init__(self) -> None:
        where = f"cluster `{self.name}`"
        for field, type_ in (("accelerator", Accelerator), ("fabric", Fabric)):
            if not isinstance(getattr(self, field), type_):
                message = (
                    f"{where}: {field} = {getattr(self, field)!r} must be of type {type_.__name__}"
                )
                raise InputError(message, hint=f"load it: load_{field}(name)")
        for field in (
            "accelerators", "scale_up_domain", "tier_size", "host_accelerators",
            "host_link_accelerators", "host_cores",
        ):  # fmt: skip
            _check(where, field, getattr(self, field), minimum=1, maximum=MAX_PARTS, whole=True)
        for field in (
            "scale_up_bandwidth", "scale_out_bandwidth", "host_link_bandwidth",
            "host_memory_bytes", "host_memory_bandwidth", "nvme_read_bandwidth",
            "nvme_write_bandwidth",
        ):  # fmt: skip
            _check(where, field, getattr(self, field), above=0)
        for field in ("host_watts", "network_watts", "usd_per_hour"):
            _check(where, field, getattr(self, field), minimum=0, maximum=MAX_RATE)
        _check(where, "oversubscription", self.oversubscription, minimum=1)
        _check(where, "pue", self.pue, minimum=1, maximum=MAX_PUE)
        if self.host not in get_args(Host):
            message = f"{where}: unknown host {self.host}"
            raise InputError(message, hint=did_you_mean(str(self.host), get_args(Host)))
        if self.price_kind not in get_args(PriceKind):
            message = f"{where}: unknown price_kind {self.price_kind}"
            raise InputError(message, hint=did_you_mean(str(self.price_kind), get_args(PriceKind)))
        if self.oversubscription > 1 and self.tier_size is None:
            message = f"{where}: oversubscription = {self.oversubscription:g} needs a tier_size"
            raise InputError(message, hint="for example tier_size = 256")
        _check(
            where, "power_cap_watts", self.power_cap_watts, above=self.idle or 0, maximum=self.tdp
        )

    @property
    def nodes(self) -> int:
        """Number of scale-up domains; the last one may be partly filled."""
        return math.ceil(self.accelerators / self.scale_up_domain)

    @property
    def tdp(self) -> float | None:
        """Power limit of one accelerator as sold, watts; None if not published."""
        return self.accelerator.tdp_watts

    @property
    def idle(self) -> float | None:
        """Idle power of one accelerator, watts: published, or a fraction of the TDP."""
        if self.accelerator.idle_watts is not None:
            return self.accelerator.idle_watts
        return None if self.tdp is None else IDLE_SHARE * self.tdp

    @property
    def power_limit(self) -> float | None:
        """Power at which one accelerator lowers its clocks, watts: the cap, else the TDP."""
        return self.tdp if self.power_cap_watts is None else self.power_cap_watts

    @property
    def price(self) -> Price | None:
        """Price of one accelerator for an hour, with its kind; None if unknown."""
        if self.usd_per_hour is None:
            return None
        return Price(
            usd_per_hour=self.usd_per_hour,
            kind=self.price_kind,
            date=self.price_date,
            source=self.price_source,
            region=self.price_region,
            chip=self.price_chip,
        )

    @property
    def assumed(self) -> list[str]:
        """Assumptions for unpublished values, one sentence each."""
        sentences = list(self.assumptions)
        if self.tdp is None:
            sentences.append(f"power of {self.accelerator.name} not published: no energy estimate")
        elif self.accelerator.idle_watts is None:
            sentences.append(
                f"idle power of {self.accelerator.name} not published: {IDLE_SHARE:.0%} of TDP "
                "assumed (seven measured GPUs: 10 to 17%)"
            )
        return sentences

    def scale_out_within(self, span: int) -> float:
        """Return the network rate of each accelerator in a group, bytes/s.

        Args:
            span: Accelerators from the first to the last of the group.

        Returns:
            Bandwidth per accelerator, one way, bytes/s, divided by the oversubscription if the
            group reaches beyond one tier.
        """
        if self.tier_size is None or span <= self.tier_size:
            return self.scale_out_bandwidth
        return self.scale_out_bandwidth / self.oversubscription

    def with_(self, **changes: Any) -> Cluster:
        """Return a copy with some fields changed, such as twice the network bandwidth.

        Args:
            **changes: Fields by name; a string is read with its unit ("800Gbit/s"). A changed price
                is yours, unless its kind is given, too.

        Returns:
            The changed, checked copy.

        Raises:
            InputError: If a field does not exist or a value is impossible.
        """
        if "usd_per_hour" in changes and "price_kind" not in changes:
            changes = _YOURS | changes
        return _changed(self, changes, CLUSTER_UNITS)


def _check(
    where: str,
    field: str,
    value: float | None,
    *,
    above: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    whole: bool = False,
) -> None:
    """Check that a number is inside its bounds; None (unknown) passes."""
    if value is None:
        return
    # numbers.* includes NumPy's scalars, which sweeps pass.
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        rule = "must be a finite number"
    elif whole and not isinstance(value, numbers.Integral):
        rule = "must be a whole number"
    elif above is not None and value <= above:
        rule = f"must be above {above:g}"
    elif minimum is not None and value < minimum:
        rule = f"must be at least {minimum:g}"
    elif maximum is not None and value > maximum:
        rule = f"must be at most {maximum:g}"
    else:
        return
    shown = f"{value:g}" if isinstance(value, numbers.Real) else repr(value)
    message = f"{where}: {field} = {shown} {rule}"
    raise InputError(message)


def _changed(struct: _S, changes: Mapping[str, Any], units: Mapping[str, str]) -> _S:
    """Return a changed copy: names, units and bounds are checked."""
    known = struct.__struct_fields__
    values: dict[str, Any] = {}
    for field, value in changes.items():
        if field not in known:
            message = f"unknown field {field} of {type(struct).__name__}"
            raise InputError(message, hint=did_you_mean(field, known))
        if isinstance(value, str) and field in units:
            value = parse(value, units[field])
            if units[field] == "count":
                value = int(value)
        values[field] = value
    return replace(struct, **values)
