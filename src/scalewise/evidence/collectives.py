"""Links and fabrics fitted to published timings of collectives.

    rows, skipped = read_collectives()              # the shipped nccl-tests timings
    fit = CollectivesFit().fit(rows)
    fit.values_[("fabric", "efa", "hop_seconds")], fit.identified_, fit.after_["all"]

Rows are predicted by the functions of a training step, so a constant learned here means the same
thing there. An architecture owns the fraction of its scale-up links that a ring reaches. A fabric
owns its latencies and the fraction of the NIC rate that arrives.

Some rows never teach the efficiency of a wire: those without a stated NIC rate, those with SHARP,
and all-reduce on two nodes, where NCCL's tree sends half of the traffic around NICs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast, get_args

import msgspec
import numpy as np

from scalewise.catalog import load_accelerator
from scalewise.errors import InputError
from scalewise.evidence.parameters import Parameter, Scope
from scalewise.evidence.robust import Key, RobustFit, shared_weights, sort_rows
from scalewise.numeric import Array
from scalewise.physics import collectives as physics
from scalewise.physics.links import Links, Placement, ll_ceilings

Op = Literal["all_reduce", "all_gather", "reduce_scatter", "sendrecv"]
Algorithm = Literal["auto", "ring", "tree", "sharp"]
_ALGORITHMS: dict[str, Algorithm] = {"Ring": "ring", "Tree": "tree", "SHARP": "sharp"}

SHIPPED = Path(__file__).parent.parent / "catalog" / "runs" / "collectives.csv"

# Not in the catalog, but with the links of a chip that is (NVLink4 at 900 GB/s both ways: NVIDIA's
# HGX H20 and H100 datasheets).
SAME_LINKS = {"h20-sxm-96gb": "h100-sxm-80gb"}

NCCL_LINKS = 0.8
"""Fraction of the datasheet rate of the links that NCCL's topology search counts, where it lists no
rate for them; it has 20 of 25 GB/s per link on V100 and A100."""

# Before any fit, networks have no losses.
NCCL_ONE = ("efficiency", "rail_scaling", "latency_factor")

# Scope, prior, spread of its logarithm, limits. Wide, because fabrics differ most in these:
# latencies a factor of 4.5 around InfiniBand; a ConnectX-7 delivers 46 to 49 of 50 GB/s
# (NVIDIA/nccl-tests issues 267 and 290), others may lose more.
_PRIORS: dict[str, tuple[Scope, float, float, float, float]] = {
    "link_efficiency": ("chip", 0.8, 0.15, 0.3, 1.0),
    "hop_seconds": ("fabric", 5e-6, 1.5, 2e-7, 5e-4),
    "call_seconds": ("fabric", 1e-5, 1.5, 2e-7, 8e-4),
    "efficiency": ("fabric", 0.92, 0.12, 0.3, 0.99),
}
PARAMETERS = {
    name: Parameter(name=name, scope=scope, prior=prior, spread=spread, low=low, high=high)
    for name, (scope, prior, spread, low, high) in _PRIORS.items()
}

SMALL, LARGE = 4e6, 64e6
"""Messages below are bound by latency, messages above by bandwidth, bytes."""

SATURATING = 250e6
"""Messages from which one node's bus bandwidth hardly rises any more, bytes (8 A100: 167, 174,
214, 222 and 228 GB/s at 64, 128, 256, 512 and 1024 MiB)."""

SCALE = 0.08
"""Residual at which rows start to count less: neighboring sizes scatter by that much."""


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One timing of one collective."""

    name: str
    """Key of the row."""
    op: Op
    """What was called; a send goes from every rank to the next."""
    accelerator: str
    """Key into the catalog."""
    architecture: str
    """Owner of `link_efficiency`."""
    ranks: int
    """Members of the group."""
    nodes: int
    """Scale-up domains that they span, evenly."""
    fabric: str
    """Network between the domains, owner of its constants; "nvlink" on one node."""
    scale_up: float
    """Datasheet sum of the scale-up links of one accelerator, one way, bytes/s."""
    nccl_links: float = NCCL_LINKS
    """Fraction of `scale_up` that NCCL's topology search counts; the value before any fit."""
    nvls: bool = False
    """Whether the switch of a domain can reduce."""
    nic_rate: float
    """Network rate per accelerator, one way, bytes/s: stated, or else typical of the chip."""
    nic_stated: bool
    """False if the rate is only typical."""
    size: float
    """Message, bytes; the full buffer for gathers."""
    seconds: float
    """Measured time, seconds."""
    algorithm: Algorithm = "auto"
    """What was forced, auto for NCCL's choice; sharp if the network's switches may reduce."""
    quality: str = "ok"
    """ok, or approximate for a quoted plateau."""
    source: str = ""
    """Where it was read."""

    @property
    def per_domain(self) -> int:
        """Members that share one scale-up domain."""
        return -(-self.ranks // self.nodes)

    @property
    def knows_wire(self) -> bool:
        """Whether the time determines the fraction of the NIC rate that arrives."""
        around = self.algorithm == "sharp" or (self.nodes == 2 and self.algorithm != "ring")
        return self.nodes > 1 and self.nic_stated and not (self.op == "all_reduce" and around)

    @property
    def teaches(self) -> bool:
        """Whether a fit may use it.

        Not if it is bound by a wire of unknown rate. One node has the bandwidth of a
        ring to learn and no latency (the launch is a constant of the physics), so only messages
        that saturate it speak, and no sends.
        """
        if self.nodes == 1:
            return self.size > SATURATING and self.op != "sendrecv"
        return self.knows_wire or self.size < SMALL

    @property
    def group(self) -> str:
        """Heading under which its error is reported."""
        where = "1 node" if self.nodes == 1 else f"{self.nodes} nodes {self.fabric}"
        return f"{self.architecture} {where}"


def read_collectives(path: str | Path | None = None) -> tuple[list[Collective], dict[str, int]]:
    """Read timings of collectives.

    Args:
        path: A CSV file with the columns of the shipped one, or None for the shipped one.

    Returns:
        The rows that can be predicted, and how many others there were by reason.

    Raises:
        InputError: If the file cannot be read.
    """
    return sort_rows(SHIPPED if path is None else Path(path), _collective)


def _collective(cells: Mapping[str, str]) -> Collective | str:
    """One row, or why it cannot be predicted."""
    op, name, forced = (cells.get(key, "") for key in ("op", "accelerator", "algorithm"))
    if op not in get_args(Op) or cells.get("quality") == "ambiguous":
        return "operation not modeled or not certain"
    for column, what in (("time_us", "time"), ("message_bytes", "size"), ("accelerators", "ranks")):
        if column not in cells:
            return f"no {what}"
    try:
        chip = load_accelerator(SAME_LINKS.get(name, name))
    except InputError:
        return "accelerator not in the catalog"
    ranks, nodes = int(cells["accelerators"]), int(cells.get("nodes", 1))
    nic_rate = float(cells.get("scaleout_gbps", 0.0)) * 1e9 / 8 or chip.scale_out_bandwidth
    if chip.scale_up_bandwidth is None or nic_rate is None:
        return "unknown link rate"
    if not chip.scale_up_switch and ranks < nodes * int(cells.get("scaleup_domain", ranks)):
        return "part of a node without a switch"
    size, seconds = float(cells["message_bytes"]), float(cells["time_us"]) * 1e-6
    if ranks < 2 or nodes < 1 or size <= 0.0 or seconds <= 0.0:
        return "nothing to time"
    if nodes > 1 and "SHARP" in cells.get("interconnect", ""):
        forced = "SHARP"
    return Collective(
        name=cells.get("id", ""), op=cast(Op, op), accelerator=name,
        architecture=chip.architecture, ranks=ranks, nodes=nodes,
        fabric=cells.get("fabric", "unknown"), scale_up=chip.scale_up_bandwidth,
        nccl_links=chip.nccl_bandwidth / chip.scale_up_bandwidth if chip.nccl_bandwidth
        else NCCL_LINKS, nvls=chip.nvls,
        nic_rate=nic_rate, nic_stated="scaleout_gbps" in cells,
        size=size, seconds=seconds,
        algorithm=_ALGORITHMS.get(forced.split(" ")[0], "auto"),
        quality=cells.get("quality", "ok"), source=cells.get("source", ""),
    )  # fmt: skip


def predict_collectives(
    rows: Sequence[Collective],
    constants: Mapping[Key, float] | None = None,
    *,
    protocols: Mapping[str, str] | None = None,
    held: Mapping[Key, float] | None = None,
) -> Array:
    """Price rows as estimates do.

    Args:
        rows: Timings.
        constants: Values by key; NCCL's own for those that are missing.
        protocols: Protocol by fabric where it is not NCCL's choice ("simple" if it has no other).
        held: Efficiencies for the rows that do not determine them, if these must not follow.

    Returns:
        Seconds by row.
    """

    def numbers(field: str) -> Array:
        return np.array([float(getattr(row, field)) for row in rows])

    def fabric(name: str, given: Mapping[Key, float] = constants or {}) -> Array:
        return np.array([_constant(given, ("fabric", row.fabric, name)) for row in rows])

    arrives = fabric("efficiency")
    if held is not None:
        text = np.array([row.knows_wire for row in rows])
        arrives = np.where(text, arrives, fabric("efficiency", held))
    reached = [
        (constants or {}).get(("chip", row.architecture, "link_efficiency"), row.nccl_links)
        for row in rows
    ]
    indices = {name: float(index) for index, name in enumerate(physics.PROTOCOLS)}
    forced = {name: indices[protocol] for name, protocol in (protocols or {}).items()}
    ceilings = [ll_ceilings(row.architecture, "unknown") for row in rows]
    links = Links(
        **{name: np.array([each[name] for each in ceilings]) for name in ceilings[0]},
        scale_up=numbers("scale_up") * reached,
        scale_out=numbers("nic_rate") * arrives,
        hop_seconds=fabric("hop_seconds"),
        call_seconds=fabric("call_seconds"),
        ring_step_seconds=fabric("ring_step_seconds"),
        congestion=fabric("congestion"),
        rail_scaling=fabric("rail_scaling"),
        latency_factor=fabric("latency_factor"),
        protocol=np.array([forced.get(row.fabric, -1.0) for row in rows]),
        algorithm=np.array([{"ring": 0.0, "tree": 1.0}.get(row.algorithm, -1.0) for row in rows]),
        nvls=numbers("nvls"),
    )
    size, nodes, op = numbers("size"), numbers("nodes"), np.array([row.op for row in rows])
    members, local = numbers("ranks"), numbers("per_domain")
    place = Placement(ranks=members, per_domain=local, domains=nodes)
    sent = physics.p2p_seconds(size, links, np.where(nodes > 1.0, 1.0, 0.0))
    rest = np.where(op == "sendrecv", sent, physics.all_gather_seconds(size, place, links))
    return np.where(op == "all_reduce", physics.all_reduce_seconds(size, place, links), rest)


def _constant(given: Mapping[Key, float], key: Key) -> float:
    """A value, or NCCL's own."""
    if key in given:
        return given[key]
    return 1.0 if key[2] in NCCL_ONE else 0.0


class CollectivesFit(RobustFit):
    """Links and fabrics from timings, beginning at NCCL's constants only.

    Args:
        scale: Residual (log of predicted over measured) at which rows start to count less.
        protocols: Protocol by fabric where it is not NCCL's choice.

    Attributes:
        rows_: The rows that could teach.
    """

    def __init__(self, *, scale: float = SCALE, protocols: Mapping[str, str] | None = None) -> None:
        super().__init__(scale=scale)
        self.protocols = dict(protocols or {})
        self.rows_: list[Collective] = []

    def fit(self, rows: Sequence[Collective]) -> CollectivesFit:
        """Learn from the rows that can teach; InputError if there are fewer than 5."""
        used = [row for row in rows if row.teaches]
        if len(used) < 5:
            message = f"{len(used)} timings are too few to learn from"
            raise InputError(message, hint="give at least 5 that are not bound by an unknown wire")
        names = ("hop_seconds", "call_seconds", "efficiency")
        keys: set[Key] = {("chip", row.architecture, "link_efficiency") for row in used}
        keys |= {("fabric", row.fabric, name) for row in used for name in names if row.nodes > 1}
        parameters = {key: PARAMETERS[key[2]] for key in sorted(keys)}
        held = {key: parameter.prior for key, parameter in parameters.items()}
        sweeps = [(row.source, row.accelerator, row.ranks, row.algorithm) for row in used]
        self._learn(lambda v: self._error(used, v, held), parameters, shared_weights(sweeps))
        self.rows_ = used
        # Latency per hop and per call need two depths to be separated; one gives their sum.
        for key in keys:
            depths = {(row.nodes, row.algorithm) for row in used if row.fabric == key[1]}
            if key[2] in ("hop_seconds", "call_seconds") and len(depths) == 1:
                self.identified_[key] = False
        groups, size = [row.group for row in rows], np.array([row.size for row in rows])
        before, after = self._error(rows, {}, None), self._error(rows, self.values_, None)
        self._report(before, after, groups, size, (SMALL, LARGE))
        return self

    def predict(self, rows: Sequence[Collective]) -> Array:
        """Seconds by row; owners that were never seen keep NCCL's constants."""
        return predict_collectives(rows, self.values_, protocols=self.protocols)

    def _error(
        self, rows: Sequence[Collective], values: dict[Key, float], held: dict[Key, float] | None
    ) -> Array:
        """Log of predicted over measured."""
        seconds = predict_collectives(rows, values, protocols=self.protocols, held=held)
        return np.asarray(np.log(seconds / [row.seconds for row in rows]))
