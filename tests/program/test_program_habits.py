"""What scripts do around their model: loaders with workers, own processes, mixed precision."""

import pytest

from capturing import NET, answers_of
from measure_jobs import MOE, job
from scalewise.program.capture.spec import CaptureSpec

MODEL = (
    """
import threading
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
"""
    + NET
    + """
class Masked(Net):
    def forward(self, tokens):
        x = self.tok(tokens)[:, None]
        mask = torch.ones(4, 4, dtype=torch.bool, device="cuda")
        x = nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return self.head(x[:, 0])

def train(rank=0, net=Net, dtype=torch.float32, scaled=False, workers=0):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net().cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    data = TensorDataset(torch.zeros(64, 4, dtype=torch.long))
    for (tokens,) in DataLoader(data, 2, num_workers=workers, pin_memory=True):
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            loss = model(tokens.cuda()).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

"""
)

ENDS = {
    "plain": "train()",
    "workers": "train(workers=2)",
    "spawn": "mp.spawn(train, args=(), nprocs=4)",
    "bf16": "train(dtype=torch.bfloat16)",
    "fp16": "train(dtype=torch.float16, scaled=True)",
    "mask": "train(net=Masked)",
    "thread": "run = threading.Thread(target=train)\nrun.start()\nrun.join()",
    "values": "print(torch.zeros(4).nonzero())",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("habits")
    specs = []
    for name, end in ENDS.items():
        (folder / f"{name}.py").write_text(f"{MODEL}\nif __name__ == '__main__':\n" + "".join(
            f"    {line}\n" for line in end.splitlines()
        ))  # fmt: skip
        specs.append(
            CaptureSpec(adapter="script", world=4, arguments=(str(folder / f"{name}.py"),))
        )
    one = job("fsdp2-ep2-mb2", model=MOE, routing="topk")
    specs.append(CaptureSpec(adapter="decoder", world=2, job=one))
    return dict(zip([*ENDS, "topk"], answers_of(specs), strict=True))


def calls(answer):
    assert answer.capture is not None, answer
    return [(each.name, each.bytes, each.dtype) for each in answer.capture.collectives()]


# 16 x 8 of the embedding, 8 x 16 and 16 of the head, in 32 bits.
GRADIENTS = [("all_reduce", 4.0 * (128 + 128 + 16), "float32")]


@pytest.mark.parametrize("name", ["plain", "workers", "spawn", "bf16", "fp16"])
def test_a_habit_changes_nothing_that_is_sent(name, answers):
    assert calls(answers[name]) == GRADIENTS
    assert answers[name].capture.inputs == ((2, 4),)


@pytest.mark.parametrize(
    ("name", "dtype"), [("plain", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
)
def test_autocast_of_an_accelerator_sets_the_precision_of_products(name, dtype, answers):
    products = [each for each in answers[name].capture.kernels() if each.flops]
    assert {each.dtype for each in products} == {dtype}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("thread", "it works in a thread of its own, where nothing is pretended"),
        ("values", "the result of aten.nonzero.default depends on values"),
        ("topk", "the result of aten.bincount.default depends on values"),
    ],
)
def test_what_cannot_be_captured_is_refused_by_name(name, reason, answers):
    (said,) = answers[name].refused
    assert said.startswith(reason)


def test_attention_with_a_mask_has_the_flops_of_the_whole_square(answers):
    found = answers["mask"].capture.kernels()
    attention = [each for each in found if "attention" in each.name]
    # Two products of 2 sequences, 4 x 4 scores and a width of 8; five in backward.
    assert [each.flops for each in attention] == [1024.0, 2560.0]
