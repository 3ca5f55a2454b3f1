"""Ranks that train with PyTorch's context parallelism on CPUs, under the profiler.

    traced(2, [job("fsdp1-cp2-mb4", trace_steps=1)], folder)    # folder/traces/job0/rank0.json.gz

Ranks get the attention of `cpu_attention`; what is sent, when and to whom is PyTorch's.
"""

import multiprocessing
from pathlib import Path

import torch
import torch.distributed as dist

from cpu_attention import attention_of_gpus
from scalewise.measure.train import train
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
    with attention_of_gpus():
        for place, each in enumerate(jobs):
            train(each, CPU, folder=Path(folder) / "traces" / f"job{place}")
    dist.barrier()
    dist.destroy_process_group()
