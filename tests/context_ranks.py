"""Ranks that train with PyTorch's context parallelism on CPUs, under the profiler.

    traced(2, [job("fsdp1-cp2-mb4", trace_steps=1)], folder)    # folder/traces/job0/rank0.json.gz

PyTorch exchanges keys and values around the attention kernel of GPUs alone. Ranks get that kernel
from the one of CPUs; what is sent, when and to whom is PyTorch's.
"""

import multiprocessing
from pathlib import Path

import torch
import torch.distributed as dist

from scalewise.measure.train import train
from scalewise.program.capture.patches import fused_attention
from waiting import PATIENCE

CPU = torch.device("cpu")


def traced(ranks, jobs, folder):
    """Train jobs on as many new processes as they have ranks."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_rank, args=(rank, ranks, jobs, str(folder)))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(timeout=PATIENCE)
        assert [process.exitcode for process in processes] == [0] * ranks
    finally:
        for process in processes:
            process.kill()


def _rank(rank, ranks, jobs, folder):
    torch.set_num_threads(1)
    store = f"file://{Path(folder) / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    library = attention_of_gpus()
    with fused_attention():
        for place, each in enumerate(jobs):
            train(each, CPU, folder=Path(folder) / "traces" / f"job{place}")
    dist.barrier()
    dist.destroy_process_group()
    del library


def attention_of_gpus():
    """Give CPUs the operators of attention that GPUs have; they stay while the library lives."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention", _forward, "CPU")
    library.impl("_scaled_dot_product_flash_attention_backward", _backward, "CPU")
    return library


def _forward(query, key, value, dropout=0.0, causal=False, mask=False, *, scale=None):
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, normalizer = attention(query, key, value, dropout, causal, scale=scale)
    seed = offset = torch.zeros((), dtype=torch.long)
    return out, normalizer, None, None, query.shape[2], key.shape[2], seed, offset, out.new_empty(0)


def _backward(
    grad, query, key, value, out, normalizer, first, second, most_q, most_k, dropout, causal,
    seed, offset, *, scale=None,
):  # fmt: skip
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return attention(grad, query, key, value, out, normalizer, dropout, causal, scale=scale)
