"""What hardware is there: one accelerator, the fabric between domains, and how many of them?

A `Cluster` is accelerators in scale-up domains (NVLink, xGMI, ICI), joined by a scale-out fabric.
All numbers are SI and one way. Nothing here computes a time: these are nouns, read from the
catalog, checked once, and then never changed; `with_` makes a changed copy.

    cluster = load_cluster("dgx-h100", accelerators=2048)    # scalewise.catalog
    cluster.accelerator.peak("fp8")                          # 1.979e15 FLOP/s
    cluster.with_(scale_out_bandwidth="800Gbit/s").nodes     # 256

This file imports only `errors` and `units` of scalewise.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.units import parse

Host = Literal["intel", "amd", "arm", "unknown"]
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")

ACCELERATOR_UNITS: Mapping[str, str] = {
    "peak_flops": "flops_per_second",
    "memory_bytes": "bytes",
    "memory_bandwidth": "bytes_per_second",
    "scale_up_bandwidth": "bytes_per_second",
    "scale_out_bandwidth": "bytes_per_second",
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
    "power_cap_watts": "watts",
    "host_watts": "watts",
    "network_watts": "watts",
    "usd_per_hour": "dollars_per_hour",
}

# Precision of the matrix products -> the datasheet column that bounds them.
_PEAK_OF = {"mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"} | {dtype: dtype for dtype in DTYPES}

# Where idle power is not published (and then listed by `Cluster.assumed`). nvidia-smi at 0 % use
# in public logs: V100 40/300, A100 60/400, H100 70/700, H200 80/700, B200 140/1000, B300 180/1100,
# GB300 234/1400, that is 10 to 17 % of TDP, mean 14 %.
IDLE_SHARE = 0.14
# PUE: 1.1 to 1.2 for modern sites, 1.4 to 1.6 for older ones (planning values, aiinframap.com).
PUE = 1.15

_S = TypeVar("_S", bound=msgspec.Struct)


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device: what its datasheet promises, what it draws, what it costs."""

    name: str
    """As people say it, with memory size: "h100-sxm-80gb"."""
    vendor: str
    """Who makes it."""
    architecture: str
    """Generation under which measured efficiencies are shared: "hopper", "cdna3", "tpu-v5p"."""
    kind: Literal["gpu", "tpu", "other"]
    """Which communication model applies: NCCL-like, torus, or neither."""
    peak_flops: dict[str, float]
    """Dense (not sparse) peak by dtype of the matrix products, FLOP/s."""
    memory_bytes: float
    """Device memory the driver reports, bytes; frameworks can use a little less."""
    memory_bandwidth: float
    """Peak of the device memory, bytes/s."""
    scale_up_name: str
    """What joins the accelerators of one domain: "NVLink4", "ICI 3D torus"."""
    scale_up_domain: int
    """How many accelerators one domain typically has."""
    scale_up_bandwidth: float | None = None
    """Of all scale-up links of one accelerator, one way, bytes/s; None if not published."""
    scale_out_bandwidth: float | None = None
    """Network rate per accelerator in typical nodes, one way, bytes/s; None if not known."""
    tdp_watts: float | None = None
    """Power limit of the device as sold, watts."""
    idle_watts: float | None = None
    """Drawn without work, watts."""
    compute_units: int | None = None
    """SMs or CUs, over which kernels are spread; None if not published."""
    boost_hz: float | None = None
    """Clock behind `peak_flops`, hertz."""
    usd_per_hour: float | None = None
    """Rent of one accelerator in its node, one typical price, dollars/hour."""
    usd_per_hour_low: float | None = None
    """Low end of the market, dollars/hour."""
    usd_per_hour_high: float | None = None
    """High end of the market, dollars/hour."""
    price_date: str | None = None
    """When the prices held, YYYY-MM."""
    release: str | None = None
    """When it was announced or shipped, YYYY-MM or YYYY-MM-DD."""
    notes: str = ""
    """What a reader should know before trusting a number."""
    source: str = ""
    """Where the numbers were read."""

    def __post_init__(self) -> None:
        where = f"accelerator `{self.name}`"
        for dtype in self.peak_flops:
            if dtype not in DTYPES:
                message = f"{where}: peak_flops has no dtype `{dtype}`"
                raise InputError(message, hint=did_you_mean(dtype, DTYPES))
            _check(where, f"peak_flops.{dtype}", self.peak_flops[dtype], above=0)
        _check(where, "memory_bytes", self.memory_bytes, above=0)
        _check(where, "memory_bandwidth", self.memory_bandwidth, above=0)
        _check(where, "scale_up_domain", self.scale_up_domain, least=1, whole=True)
        for field in ("scale_up_bandwidth", "scale_out_bandwidth", "tdp_watts", "boost_hz"):
            _check(where, field, getattr(self, field), above=0)
        _check(where, "compute_units", self.compute_units, least=1, whole=True)
        for field in ("idle_watts", "usd_per_hour", "usd_per_hour_low", "usd_per_hour_high"):
            _check(where, field, getattr(self, field), least=0)
        if self.tdp_watts and self.idle_watts and self.idle_watts >= self.tdp_watts:
            message = (
                f"{where}: idle_watts = {self.idle_watts:g} must be below "
                f"tdp_watts = {self.tdp_watts:g}"
            )
            raise InputError(message)

    def __hash__(self) -> int:
        # The peaks are a dict, which has no hash; the name and a few numbers tell chips apart.
        return hash(
            (self.name, self.memory_bytes, self.memory_bandwidth, *self.peak_flops.values())
        )

    def peak(self, precision: str) -> float:
        """Say how fast matrix products of a precision can be at best.

        Args:
            precision: bf16, fp16, fp8, mxfp8, nvfp4, tf32 or fp32.

        Returns:
            The dense peak, FLOP/s.

        Raises:
            InputError: If the accelerator has no such units, or their peak is not published.
        """
        wanted = precision.lower()
        if wanted not in _PEAK_OF:
            message = f"precision `{precision}` is not known"
            raise InputError(message, hint=did_you_mean(wanted, _PEAK_OF))
        if _PEAK_OF[wanted] in self.peak_flops:
            return self.peak_flops[_PEAK_OF[wanted]]
        message = f"{self.name} has no {_PEAK_OF[wanted]} peak, so precision {precision} cannot run"
        twin = {"bf16": "fp16", "fp16": "bf16"}.get(wanted, "")
        has = ", ".join(dtype for dtype in DTYPES if dtype in self.peak_flops)
        hint = f"use {twin}" if twin in self.peak_flops else f"it has {has or 'no published peaks'}"
        raise InputError(message, hint=hint)

    def with_(self, **changes: Any) -> Accelerator:
        """Return a copy with some fields changed: "what if it had twice the memory bandwidth?".

        Args:
            **changes: Fields by name; a string is read with its unit ("6TB/s").

        Returns:
            The changed, checked copy.

        Raises:
            InputError: If a field does not exist or a value is impossible.
        """
        return _changed(self, changes, ACCELERATOR_UNITS)


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What joins the domains: the part of a network that is not its bit rate."""

    name: str
    """As people say it: "infiniband", "roce", "efa"."""
    family: str = ""
    """Fabrics that share what training runs taught (congestion, latency at scale): "rdma"."""
    hop_seconds: float
    """Latency of the NIC and its switches, added to every network hop of a collective, seconds."""
    call_seconds: float
    """Constant per collective that crosses the fabric (proxy wake-up, rendezvous), seconds."""
    efficiency: float
    """Share of the NIC rate that arrives as payload, 0 to 1."""
    ring_step_seconds: float = 0.0
    """Least time of one step of a ring that crosses the fabric: its rate of messages, seconds."""
    congestion: float = 0.0
    """Share by which it gets slower per doubling of domains beyond the first 16."""
    rail_scaling: float = 1.0
    """Exponent with which the NICs of one domain add up for one group: 1 if all of them work."""
    latency_factor: float = 1.0
    """Calibrated factor on the hop latencies of NCCL's model."""
    scatter_factor: float = 1.0
    """Bytes that a reduce-scatter moves over those of a ring; Gloo has none of its own and runs an
    all-reduce, which moves twice as many."""
    all_reduce_factor: float = 1.0
    """The same for an all-reduce, where it is faster or slower than two passes of a ring."""
    description: str = ""
    """What it is, one line."""
    notes: str = ""
    """How far to trust the numbers."""
    source: str = ""
    """Where the numbers come from."""

    def __post_init__(self) -> None:
        where = f"fabric `{self.name}`"
        _check(where, "hop_seconds", self.hop_seconds, least=0)
        _check(where, "call_seconds", self.call_seconds, least=0)
        _check(where, "efficiency", self.efficiency, above=0, most=1)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accelerators in scale-up domains, joined by a scale-out fabric, and how many."""

    name: str
    """As people say it: "dgx-h100", "aws-p5"."""
    accelerator: Accelerator
    """The device, the same everywhere."""
    accelerators: int
    """How many of them."""
    scale_up_domain: int
    """How many share one scale-up domain (8 on HGX boards, 72 in an NVL72 rack)."""
    scale_up_bandwidth: float
    """Of all scale-up links of one accelerator, one way, bytes/s."""
    scale_out_bandwidth: float
    """Network rate per accelerator, one way, bytes/s, before the fabric's efficiency."""
    fabric: Fabric
    """The network between domains."""
    host_watts: float
    """Share of one accelerator in CPUs, memory, NICs, fans and conversion losses, watts."""
    network_watts: float
    """Share of one accelerator in switches and optics, watts."""
    oversubscription: float = 1.0
    """Scale-out bandwidth is divided by this for groups that span more than `tier_size`."""
    tier_size: int | None = None
    """Accelerators below one full-rate part of the fabric; None if it is full-rate throughout."""
    host: Host = "unknown"
    """Whose CPUs: NCCL's overhead per network step differs."""
    algorithm: Literal["auto", "ring", "tree", "pat", "hierarchical"] = "auto"
    """Collective algorithm, or NCCL's choice (NCCL_ALGO): decides what thousands of ranks cost."""
    protocol: Literal["auto", "ll", "ll128", "simple"] = "auto"
    """Collective protocol, or NCCL's choice (NCCL_PROTO)."""
    power_cap_watts: float | None = None
    """Power limit set per accelerator, watts; None is the TDP."""
    pue: float = PUE
    """Watts drawn by the site per watt drawn by its machines."""
    usd_per_hour: float | None = None
    """Rent of one accelerator with everything around it, dollars/hour; None if not known."""
    assumptions: tuple[str, ...] = ()
    """What was filled in because nobody published it, one sentence each."""
    notes: str = ""
    """What a reader should know before trusting a number."""
    source: str = ""
    """Where the numbers were read."""

    def __post_init__(self) -> None:
        where = f"cluster `{self.name}`"
        for field, type_ in (("accelerator", Accelerator), ("fabric", Fabric)):
            if not isinstance(getattr(self, field), type_):
                message = f"{where}: {field} = {getattr(self, field)!r} is no {type_.__name__}"
                raise InputError(message, hint=f"load it: load_{field}(name)")
        for field in ("accelerators", "scale_up_domain", "tier_size"):
            _check(where, field, getattr(self, field), least=1, whole=True)
        for field in ("scale_up_bandwidth", "scale_out_bandwidth"):
            _check(where, field, getattr(self, field), above=0)
        for field in ("host_watts", "network_watts", "usd_per_hour"):
            _check(where, field, getattr(self, field), least=0)
        _check(where, "oversubscription", self.oversubscription, least=1)
        _check(where, "pue", self.pue, least=1)
        if self.host not in get_args(Host):
            message = f"{where}: host = `{self.host}` is not known"
            raise InputError(message, hint=did_you_mean(str(self.host), get_args(Host)))
        if self.oversubscription > 1 and self.tier_size is None:
            message = f"{where}: oversubscription = {self.oversubscription:g} without a tier_size"
            raise InputError(message, hint="say how many accelerators share a full-rate tier")
        _check(where, "power_cap_watts", self.power_cap_watts, above=self.idle or 0, most=self.tdp)

    @property
    def nodes(self) -> int:
        """How many scale-up domains the accelerators fill, the last one perhaps in part."""
        return math.ceil(self.accelerators / self.scale_up_domain)

    @property
    def tdp(self) -> float | None:
        """Power limit of one accelerator as sold, watts; None if not published."""
        return self.accelerator.tdp_watts

    @property
    def idle(self) -> float | None:
        """Power of one accelerator without work, watts: published, or a share of the TDP."""
        if self.accelerator.idle_watts is not None:
            return self.accelerator.idle_watts
        return None if self.tdp is None else IDLE_SHARE * self.tdp

    @property
    def power_limit(self) -> float | None:
        """Power at which one accelerator lowers its clocks, watts: the cap, else the TDP."""
        return self.tdp if self.power_cap_watts is None else self.power_cap_watts

    @property
    def assumed(self) -> list[str]:
        """Every number here that nobody published, one sentence each."""
        sentences = list(self.assumptions)
        if self.tdp is None:
            sentences.append(f"power of {self.accelerator.name} not published: no energy estimate")
        elif self.accelerator.idle_watts is None:
            sentences.append(
                f"idle power of {self.accelerator.name} not published: {IDLE_SHARE:.0%} of TDP "
                "assumed (seven measured GPUs: 10 to 17 %)"
            )
        return sentences

    def scale_out_within(self, span: int) -> float:
        """Say what the network gives each accelerator of a group.

        Args:
            span: How many accelerators lie between the first and the last of the group.

        Returns:
            Rate per accelerator, one way, bytes/s, divided by the oversubscription if the group
            reaches beyond one tier.
        """
        if self.tier_size is None or span <= self.tier_size:
            return self.scale_out_bandwidth
        return self.scale_out_bandwidth / self.oversubscription

    def with_(self, **changes: Any) -> Cluster:
        """Return a copy with some fields changed: "what if the NICs were twice as fast?".

        Args:
            **changes: Fields by name; a string is read with its unit ("800Gbit/s").

        Returns:
            The changed, checked copy.

        Raises:
            InputError: If a field does not exist or a value is impossible.
        """
        return _changed(self, changes, CLUSTER_UNITS)


def _check(
    where: str,
    field: str,
    value: float | None,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """Refuse a number outside its bounds; None means "not known" and passes."""
    if value is None:
        return
    # numbers.* also knows NumPy's scalars, which sweeps hand in.
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        rule = "must be a finite number"
    elif whole and not isinstance(value, numbers.Integral):
        rule = "must be a whole number"
    elif above is not None and value <= above:
        rule = f"must be above {above:g}"
    elif least is not None and value < least:
        rule = f"must be at least {least:g}"
    elif most is not None and value > most:
        rule = f"must be at most {most:g}"
    else:
        return
    shown = f"{value:g}" if isinstance(value, numbers.Real) else repr(value)
    message = f"{where}: {field} = {shown} {rule}"
    raise InputError(message)


def _changed(struct: _S, changes: Mapping[str, Any], units: Mapping[str, str]) -> _S:
    """Copy with changes: names checked, unit strings read, bounds checked by the struct itself."""
    known = struct.__struct_fields__
    values: dict[str, Any] = {}
    for field, value in changes.items():
        if field not in known:
            message = f"{type(struct).__name__} has no field `{field}`"
            raise InputError(message, hint=did_you_mean(field, known))
        if isinstance(value, str) and field in units:
            value = parse(value, units[field])
            if units[field] == "count":
                value = int(value)
        values[field] = value
    return msgspec.structs.replace(struct, **values)
