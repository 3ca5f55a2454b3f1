"""Expert parallelism: experts split over ranks, all-to-all dispatch and combine of their rows.

    mesh = expert_mesh_of(job, device)            # None for a model without experts
    split_experts(block.mlp, mesh)                # each rank keeps its experts

The ranks of a pipeline stage form a second grid for the experts: expert tensor parallel (etp)
innermost, then expert parallel (ep), then expert data parallel (edp), as in Megatron-LM's parallel
folding (Liu et al., arXiv 2504.14960). A layer sends each row to the rank of its expert and back,
and the same in backward: 4 all-to-alls per layer and micro-batch. With etp, ranks all-gather their
rows before the experts and reduce-scatter the partial sums after them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn import functional

from scalewise.measure.decoder import MoeMlp
from scalewise.records.job import TrainJob


def expert_mesh_of(job: TrainJob, device: torch.device) -> Any:
    """Return the ranks as the grid of the experts; None where they are spread like dense weights.

    Experts are sharded over "edp_shard", replicated over "edp_replicate".
    """
    s, etp = job.strategy, job.etp
    if job.model.moe is None or s.ep * etp * s.tp == 1:
        return None
    # HSDP replicates whole expert meshes; DDP replicates what ep and etp leave.
    replicas = s.dp_replicate if s.sharding == "zero3" else 1
    rest = s.data_parallel * s.cp * s.tp // (replicas * s.ep * etp)
    sizes = (replicas, rest) if s.sharding == "zero3" else (rest, 1)
    return init_device_mesh(
        device.type,
        (s.pp, *sizes, s.ep, etp),
        mesh_dim_names=("pp", "edp_replicate", "edp_shard", "ep", "etp"),
    )


def split_experts(moe: MoeMlp, mesh: Any) -> None:
    """Cut a layer's experts down to those of this rank, and let it exchange rows with others.

    Args:
        moe: With its weights; every rank holds all of them before, its part afterwards.
        mesh: Of the experts.
    """
    ep, etp = mesh["ep"], mesh["etp"]
    # The width of an expert is the second dimension of every weight but the last product's.
    widths = {"w1": 1, "w3": 1, "w2": 2, "w1_bias": 1, "w3_bias": 1}
    for name, weight in list(moe.experts.named_parameters()):
        part = weight.detach().chunk(ep.size())[ep.get_local_rank()]
        if name in widths:
            part = part.chunk(etp.size(), widths[name])[etp.get_local_rank()]
        own = nn.Parameter(part.clone(), requires_grad=weight.requires_grad)
        setattr(moe.experts, name, own)
    if ep.size() * etp.size() > 1:
        moe.exchange = RowExchange(ep.get_group(), etp.get_group(), balanced=moe.balanced)


class Route(NamedTuple):
    """Where the rows of one call go."""

    asked: list[int]
    """Rows for each expert of the layer."""
    sent: list[int]
    """Rows for each ep rank."""
    received: list[int]
    """Rows from each ep rank."""
    most: int
    """Rows that the busiest etp rank receives; all etp ranks are padded to it."""
    order: Tensor
    """Places of gathered rows, sorted by expert, padding last."""
    counts: list[int]
    """Rows for each expert of this rank, from all ranks."""


class RowExchange:
    """Dispatch of rows to the ranks of their experts, and their return."""

    def __init__(self, ep: Any, etp: Any, *, balanced: bool) -> None:
        self.ep, self.etp, self.balanced = ep, etp, balanced
        self.route: Route | None = None
        self.received: list[int] = []
        """Rows that arrived at this rank's experts, call by call."""

    def __call__(self, experts: nn.Module, rows: Tensor, counts: list[int]) -> Tensor:
        """Send rows through the experts of all ranks.

        Args:
            experts: Of this rank.
            rows: Of this rank's tokens, sorted by expert.
            counts: Rows for each expert of the layer.

        Returns:
            What the experts say, in the order of the rows.
        """
        route = self._route(counts, rows.device)
        if self.ep.size() > 1:
            rows = _AllToAll.apply(rows, route.sent, route.received, self.ep)
        if self.etp.size() > 1:
            rows = _AllGather.apply(_padded(rows, route.most), self.etp)
        arrived = sum(route.counts)
        self.received.append(arrived)
        out = experts(rows[route.order[:arrived]], route.counts)
        out = _padded(out, len(rows))[route.order.argsort()]
        if self.etp.size() > 1:
            out = _ReduceScatter.apply(out, self.etp)[: sum(route.received)]
        if self.ep.size() > 1:
            out = _AllToAll.apply(out, route.received, route.sent, self.ep)
        return out

    def _route(self, counts: list[int], device: torch.device) -> Route:
        """The way of rows; of balanced ones it is always the same."""
        if self.balanced and self.route is not None and self.route.asked == counts:
            return self.route
        ranks = self.ep.size()
        local = len(counts) // ranks
        arriving = self._arriving(counts, device)
        most = int(arriving.sum((1, 2)).max())
        # Rows come by etp rank, source and expert, with the padding of an etp rank after its own.
        expert = torch.arange(local).repeat(ranks)
        labels = torch.cat([_padded(expert.repeat_interleave(n.flatten()), most, local)
                            for n in arriving])  # fmt: skip
        self.route = Route(
            asked=counts,
            sent=[sum(counts[i * local : (i + 1) * local]) for i in range(ranks)],
            received=arriving[self.etp.rank()].sum(1).tolist(),
            most=most,
            order=labels.argsort(stable=True).to(device),
            counts=arriving.sum((0, 1)).tolist(),
        )
        return self.route

    def _arriving(self, counts: list[int], device: torch.device) -> Tensor:
        """Rows that reach this rank's etp group, (etp rank, source, local expert), on the host."""
        ep, etp = self.ep.size(), self.etp.size()
        local = len(counts) // ep
        if self.balanced:
            # All ranks have as many tokens and deal them alike, so there is nothing to ask.
            own = torch.tensor(counts).view(ep, local)[self.ep.rank()]
            return own.expand(etp, ep, local)
        got = torch.tensor(counts, device=device)
        if ep > 1:
            got = _all_to_all(got, [local] * ep, [local] * ep, self.ep)
        if etp > 1:
            got = _all_gather(got, self.etp)
        return got.view(etp, ep, local).cpu()


def _padded(rows: Tensor, count: int, value: int = 0) -> Tensor:
    """Rows, and so many more of a value that there are `count`."""
    missing = count - len(rows)
    return functional.pad(rows, [0, 0] * (rows.dim() - 1) + [0, missing], value=value)


class _AllToAll(torch.autograd.Function):
    """All-to-all of rows; backward sends the gradients the other way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
        ctx.route = received, sent, group
        return _all_to_all(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(grad, *ctx.route), None, None, None


def _all_to_all(rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    out = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
    return out


class _AllGather(torch.autograd.Function):
    """All-gather of as many rows from every rank; backward reduce-scatters."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _all_gather(rows, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _reduce_scatter(grad, ctx.group), None


class _ReduceScatter(torch.autograd.Function):
    """Reduce-scatter of rows; backward all-gathers."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _reduce_scatter(rows, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_gather(grad, ctx.group), None


def _all_gather(rows: Tensor, group: Any) -> Tensor:
    out = rows.new_empty(len(rows) * group.size(), *rows.shape[1:])
    dist.all_gather_into_tensor(out, rows.contiguous(), group=group)
    return out


def _reduce_scatter(rows: Tensor, group: Any) -> Tensor:
    out = rows.new_empty(len(rows) // group.size(), *rows.shape[1:])
    dist.reduce_scatter_tensor(out, rows.contiguous(), group=group)
    return out


def moe_layers_of(modules: Iterable[nn.Module]) -> list[MoeMlp]:
    """The layers with experts of a rank, in order."""
    return [m for module in modules for m in module.modules() if isinstance(m, MoeMlp)]


def scale_expert_grads(modules: Iterable[nn.Module], job: TrainJob, mesh: Any) -> None:
    """Turn the mean of expert gradients over edp into the mean over the data-parallel ranks.

    A loss is the mean over the tokens of one data-parallel rank, and an expert sees those of
    dp x cp / edp of them.
    """
    edp = mesh["edp_replicate"].size() * mesh["edp_shard"].size()
    factor = edp / (job.strategy.data_parallel * job.strategy.cp)
    if factor == 1.0:
        return
    for moe in moe_layers_of(modules):
        for weight in moe.experts.parameters():
            if weight.grad is not None:
                (weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad).mul_(
                    factor
                )


def imbalance_of(modules: Iterable[nn.Module], device: torch.device) -> float | None:
    """Rows of the busiest ep rank over the mean, averaged over calls; 1 if all have the same.

    Every rank of the job must call it; None where no rank exchanges rows.
    """
    ratios = []
    for moe in moe_layers_of(modules):
        if isinstance(moe.exchange, RowExchange):
            rows = torch.tensor(moe.exchange.received, dtype=torch.float64, device=device)
            most, total = rows.clone(), rows.clone()
            dist.all_reduce(most, op=dist.ReduceOp.MAX, group=moe.exchange.ep)
            dist.all_reduce(total, group=moe.exchange.ep)
            ratios.append(most * moe.exchange.ep.size() / total)
    own = torch.cat(ratios) if ratios else torch.empty(0, dtype=torch.float64, device=device)
    both = torch.stack([own.sum(), torch.tensor(float(len(own)), dtype=own.dtype, device=device)])
    dist.all_reduce(both)
    return float(both[0] / both[1]) if both[1] else None
