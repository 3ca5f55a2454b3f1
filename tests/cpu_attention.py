"""The attention of GPUs on CPUs: PyTorch's context parallelism exchanges keys around that alone.

with attention_of_gpus():
    ...                                # real tensors, computed by the kernel of CPUs
"""

from contextlib import contextmanager

import torch

from scalewise.program.capture.patches import fused_attention


@contextmanager
def attention_of_gpus():
    """Give CPUs the operators of attention that GPUs have, and let models call them."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention", _forward, "CPU")
    library.impl("_scaled_dot_product_flash_attention_backward", _backward, "CPU")
    with fused_attention():
        yield library


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
