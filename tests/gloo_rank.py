"""A rank that runs a program for real on Gloo and CPUs, and profiles a step from where to where a
capture keeps one.

    RANK=0 WORLD_SIZE=2 python gloo_rank.py script FOLDER train.py --steps 3

The program finds the accelerator that a capture pretends, and the stand-ins of its framework.
Tensors and ranks are real, and so are all collectives.
"""

import os
import runpy
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from cpu_attention import attention_of_gpus
from scalewise.program.capture import steps as boundaries
from scalewise.program.capture import torchtitan, transformers
from scalewise.program.capture.habits import habits
from scalewise.program.capture.patches import replaced, replaced_everywhere
from scalewise.program.capture.pretend import _fake_accelerator, _on_cpu
from scalewise.program.capture.steps import Captured, Steps

STEADY = 2
"""Steps before the one that is profiled: DDP's ranks agree on their buckets once, in the second,
which captures leave out."""

ADAPTERS = {
    "script": lambda tracer: nullcontext(),
    "torchtitan": torchtitan.prepared,
    "transformers": transformers.prepared,
}


class Profiled:
    """Stands where a capture has its recorder: begins the range of the step that is kept."""

    def __init__(self):
        self.notes, self.versions, self.refused = [], {}, []
        self.profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
        self.step = record_function("ProfilerStep#1")
        self.begun = 0

    def refuse(self, reason):
        """Stop: the capture of the same program is refused."""
        self.refused.append(reason)

    def restart(self):
        """Begin the step; not sooner, as tensors that the profiler knows cannot be swapped."""
        self.begun += 1
        if self.begun < STEADY:
            return
        self.profiler.start()
        self.step.__enter__()

    def end(self, file):
        """End the step and write its trace."""
        self.step.__exit__(None, None, None)
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(file))


@contextmanager
def gloo_groups(folder, rank, world):
    """Make every process group one of Gloo."""
    init, make = dist.init_process_group, dist.new_group

    def real_init(*arguments, **options):
        if not dist.is_initialized():
            store = f"file://{folder / 'store'}"
            init("gloo", init_method=store, rank=rank, world_size=world)

    def real_group(*arguments, **options):
        dropped = ("backend", "device_id", "pg_options")
        kept = {name: value for name, value in options.items() if name not in dropped}
        return make(*arguments[:1], **kept)

    barrier = dist.barrier
    with (
        replaced_everywhere("init_process_group", real_init),
        replaced_everywhere("new_group", real_group),
        replaced_everywhere("init_device_mesh", _on_cpu(dist.init_device_mesh)),
        replaced_everywhere("barrier", lambda *a, **k: barrier()),
    ):
        yield


@contextmanager
def replicas_on_cpu():
    """Let DDP wrap modules on the CPU, whatever device the program named."""
    plain = DistributedDataParallel.__init__

    def init(self, *arguments, **options):
        plain(self, *arguments[:1], **(options | {"device_ids": None, "output_device": None}))

    with replaced(DistributedDataParallel, __init__=init):
        yield


@contextmanager
def summed_gradients():
    """Divide gradients beside the reduction: Gloo has no reduction that multiplies."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives

    plain = _fsdp_collectives._get_gradient_divide_factors

    def factors(*arguments, **options):
        return plain(*arguments[:5], force_sum_reduction_for_comms=True)

    with replaced(_fsdp_collectives, _get_gradient_divide_factors=factors):
        yield


def main():
    """Run the program until its second step ends, and write the trace."""
    adapter, folder, arguments = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    rank, world = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    torch.set_num_threads(1)
    boundaries.WARMUP = STEADY
    recorder = Profiled()
    steps = Steps(recorder)
    try:
        with ExitStack() as stack:
            stack.enter_context(gloo_groups(folder, rank, world))
            stack.enter_context(attention_of_gpus())
            stack.enter_context(replicas_on_cpu())
            stack.enter_context(summed_gradients())
            stack.enter_context(_fake_accelerator(world, 80e9))
            stack.enter_context(habits(rank))
            stack.enter_context(ADAPTERS[adapter](recorder))
            stack.enter_context(steps.counted())
            as_module = arguments[0] == "-m"
            sys.argv = arguments[1:] if as_module else arguments
            run = runpy.run_module if as_module else runpy.run_path
            run(sys.argv[0], run_name="__main__")
    except Captured:
        pass
    assert not recorder.refused, recorder.refused
    assert steps.complete
    recorder.end(folder / f"rank{rank}.json.gz")
    dist.barrier()
    # Threads of Gloo may abort an interpreter that ends.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
