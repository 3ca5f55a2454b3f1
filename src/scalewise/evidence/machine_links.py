"""Rates and latencies of a user's links, fitted to timings of collectives.

    fit = LinkRates(domain=1).fit(rows)
    fit.values_["scale_out_rate"], fit.values_["call_seconds"], fit.residuals_

GPUs of one machine form a scale-up domain and use NCCL, whose own constants give the latency inside
it. CPUs use Gloo: every process is a domain of its own, and its latency is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalewise.errors import InputError
from scalewise.evidence.machine_kernels import Residual
from scalewise.evidence.parameters import Parameter
from scalewise.evidence.robust import Key, learn, shared_weights
from scalewise.numeric import Array
from scalewise.physics import collectives as physics
from scalewise.physics.links import Links, Placement

SCALE = 0.12
"""Residual (log) at which a row starts to count less: neighboring sizes scatter by that much."""

OPS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
       "send_recv": "send", "sendrecv": "send"}  # fmt: skip
"""Operations that estimates know, as sweeps and nccl-tests call them."""

LARGE = 2**20
"""Messages from here on speak of bandwidth, bytes."""

KEPT = 0.9
"""Share of the timings of a call that count."""


class LinkRates:
    """Rates and latencies of links; learned values end in an underscore.

    Args:
        domain: Devices of a scale-up domain; 1 where every device is on its own (CPUs).
        nvls: Whether the switch between devices can reduce.
        scale: Residual at which rows start to count less.

    Attributes:
        values_: "scale_up_rate", "scale_out_rate" (bytes/s), "hop_seconds", "call_seconds", and
            "all_reduce_factor": time of an all-reduce over that of two gathers' traffic, all only
            where rows speak of them.
        spread_: Factor of one standard deviation by name.
        identified_: Whether the rows said more than the prior.
        residuals_: One for each row that was used.
    """

    def __init__(self, *, domain: int, nvls: bool = False, scale: float = SCALE) -> None:
        self.domain, self.nvls, self.scale = domain, nvls, scale
        self.values_: dict[str, float] = {}
        self.spread_: dict[str, float] = {}
        self.identified_: dict[str, bool] = {}
        self.residuals_: list[Residual] = []

    def fit(self, rows: Sequence[Mapping[str, Any]]) -> LinkRates:
        """Learn from rows of `measure collectives` or nccl-tests.

        Raises:
            InputError: If no row is of an operation that estimates know.
        """
        used = [row for row in rows if row["op"] in OPS and self._teaches(row)]
        if len(used) < 3:
            raise InputError(
                f"{len(used)} timings of collectives are too few to fit the rates of links",
                hint="time all_gather, reduce_scatter and all_reduce up to 64MiB or more",
            )
        parameters = self._parameters(used)
        measured = np.array([_observed(row) for row in used])

        def error(values: dict[Key, float]) -> Array:
            plain = {key[2]: value for key, value in values.items()}
            return np.asarray(np.log(self._seconds(used, plain) / measured))

        labels = [(row["op"], row["accelerators"], row.get("placement")) for row in used]
        learned = learn(error, parameters, shared_weights(labels), self.scale)
        self.values_ = {key[2]: value for key, value in learned.values.items()}
        self.spread_ = {key[2]: value for key, value in learned.spread.items()}
        self.identified_ = {key[2]: flag for key, flag in learned.identified.items()}
        predicted = self._seconds(used, self.values_)
        self.residuals_ = [
            Residual(
                part=str(row["op"]),
                label=f"{row['op']} of {int(row['message_bytes'])} bytes, {row['accelerators']} "
                f"ranks on {_nodes(row)} nodes",
                size=float(row["message_bytes"]),
                measured=float(seconds),
                predicted=float(said),
            )
            for row, seconds, said in zip(used, measured, predicted, strict=True)
        ]
        return self

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> Array:
        """Seconds by row; rows of operations that estimates do not know give nan."""
        known = np.array([row["op"] in OPS for row in rows])
        seconds = np.full(len(rows), np.nan)
        if known.any():
            mine = [row for row, flag in zip(rows, known, strict=True) if flag]
            seconds[known] = self._seconds(mine, self.values_)
        return seconds

    def _teaches(self, row: Mapping[str, Any]) -> bool:
        """Whether a row speaks of a constant that estimates have.

        Gloo's sends are faster per byte than its rings, and estimates know one rate: the rings'
        decides, because pipelines send little. A gather of a few bytes inside an NVLink domain is
        the launch, which is a constant of the physics.
        """
        if self.domain == 1:
            return OPS[row["op"]] != "send"
        return _nodes(row) > 1 or _size(row) >= LARGE

    def _parameters(self, rows: Sequence[Mapping[str, Any]]) -> dict[Key, Parameter]:
        """What these rows can teach, with first guesses from their extremes."""
        across = [row for row in rows if self._domains(row) > 1]
        inside = [row for row in rows if self._domains(row) == 1]
        found: dict[Key, Parameter] = {}

        def add(name: str, prior: float, spread: float = 1.0) -> None:
            found["fabric", "", name] = Parameter(
                name=name, scope="fabric", prior=prior, spread=spread,
                low=prior / 1e3, high=prior * 1e3,
            )  # fmt: skip

        if inside:
            add("scale_up_rate", max(_bus(row) for row in inside))
        if across:
            add("scale_out_rate", max(_bus(row) / self._local(row) for row in across))
            add("call_seconds", min(_observed(row) for row in across))
            if len({int(row["accelerators"]) for row in across}) > 1:
                add("hop_seconds", 5e-6, 1.5)
        for op, name in (("all_reduce", "all_reduce_factor"), ("reduce_scatter", "scatter_factor")):
            if self.domain == 1 and any(row["op"] == op for row in across):
                add(name, 1.0, 0.5)
        return found

    def _domains(self, row: Mapping[str, Any]) -> int:
        return int(row["accelerators"]) if self.domain == 1 else _nodes(row)

    def _local(self, row: Mapping[str, Any]) -> int:
        return max(int(row["accelerators"]) // self._domains(row), 1)

    def _seconds(self, rows: Sequence[Mapping[str, Any]], v: Mapping[str, float]) -> Array:
        """Price rows as estimates do."""
        links = Links(
            scale_up=v.get("scale_up_rate", 1e15),
            scale_out=v.get("scale_out_rate", 1e15),
            hop_seconds=v.get("hop_seconds", 0.0),
            call_seconds=v.get("call_seconds", 0.0),
            # Gloo knows rings only; NCCL chooses.
            algorithm=0.0 if self.domain == 1 else -1.0,
            protocol=2.0 if self.domain == 1 else -1.0,
            nvls=float(self.nvls),
        )
        size = np.array([_size(row) for row in rows])
        ranks = np.array([float(row["accelerators"]) for row in rows])
        domains = np.array([float(self._domains(row)) for row in rows])
        place = Placement(ranks=ranks, per_domain=ranks / domains, domains=domains)
        op = np.array([OPS[row["op"]] for row in rows])
        factors = {"all_reduce": "all_reduce_factor", "reduce_scatter": "scatter_factor"}
        scaled = size * [v.get(factors.get(each, ""), 1.0) for each in op.tolist()]
        sent = physics.p2p_seconds(size, links, np.where(domains > 1.0, 1.0, 0.0))
        rest = np.where(op == "send", sent, physics.all_gather_seconds(scaled, place, links))
        reduced = physics.all_reduce_seconds(scaled, place, links)
        return np.asarray(np.where(op == "all_reduce", reduced, rest))


def _observed(row: Mapping[str, Any]) -> float:
    """Seconds of a call, as a step of many calls has them on average.

    A step waits for slow calls too, so the middle one says too little; the slowest tenth is left
    out, because it is the machine's other business.
    """
    samples = sorted(float(each) for each in row.get("samples_us") or ())
    kept = samples[: max(int(len(samples) * KEPT), 1)]
    return (sum(kept) / len(kept) if kept else float(row["time_us"])) * 1e-6


def _nodes(row: Mapping[str, Any]) -> int:
    return int(row.get("nodes") or 1)


def _size(row: Mapping[str, Any]) -> float:
    return float(row["message_bytes"])


def _bus(row: Mapping[str, Any]) -> float:
    """Bus bandwidth, bytes/s."""
    from scalewise.records.rows import bus_factor

    op = "send_recv" if OPS[row["op"]] == "send" else str(row["op"])
    return _size(row) / _observed(row) * bus_factor(op, int(row["accelerators"]))
