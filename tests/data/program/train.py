"""A small training script as people write them: GPUs, NCCL, FSDP2, DDP or tensor parallelism.

Nobody runs it on GPUs here; tests capture it.
"""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="fsdp")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--size", choices=("tiny", "7b"), default="tiny")
args = parser.parse_args()

SIZES = {"tiny": (64, 4, 128, 256, 32, 2), "7b": (4096, 32, 11008, 32000, 4096, 32)}
HIDDEN, HEADS, FFN, VOCAB, SEQ, LAYERS = SIZES[args.size]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.up, self.gate = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.n1(x)
        q, k, v = (
            f(y).view(b, t, -1, HIDDEN // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
world, local = dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
model = Net().to(device)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
if args.mode == "fsdp":
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
elif args.mode == "hsdp":
    mesh = init_device_mesh("cuda", (world // 4, 4), mesh_dim_names=("replicate", "shard"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
elif args.mode == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local])
elif args.mode == "tp":
    mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    plan = {n: ColwiseParallel() for n in ("q", "k", "v", "up", "gate")}
    plan |= {n: RowwiseParallel() for n in ("o", "down")}
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
elif args.mode == "cp":
    mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "cp"))
    shards = mesh["dp", "cp"]._flatten("dp_cp")
    for layer in model.layers:
        fully_shard(layer, mesh=shards, mp_policy=policy)
    fully_shard(model, mesh=shards, mp_policy=policy)
elif args.mode == "silent":
    # A mesh with a dimension that nothing uses: an omission.
    mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "cp"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
elif args.mode == "fail":
    raise RuntimeError("no data")


def split(tokens):
    """Split sequences over context-parallel ranks."""
    if args.mode != "cp":
        return nullcontext()
    return context_parallel(
        mesh["cp"], buffers=[tokens], buffer_seq_dims=[1], no_restore_buffers={tokens}
    )


optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(args.steps):
    for _ in range(args.accumulate):
        tokens = torch.randint(0, VOCAB, (2, SEQ), device=device)
        with split(tokens):
            logits = model(tokens).float()
            loss = F.cross_entropy(logits.view(-1, VOCAB), tokens.view(-1))
            loss.backward()
    if args.mode != "tp":  # norms over two meshes cannot be stacked
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item())
