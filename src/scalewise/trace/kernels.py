"""Kind of a compute kernel by its name: GEMM, attention, or any other.

    kernel_kind("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_...")   # "gemm"
    kernel_kind("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, ...")  # "attention"

Names are those of cuBLAS, CUTLASS, cuDNN, rocBLAS, Triton, FlashAttention and Transformer Engine in
traces; in a simulated step those that `scalewise timeline` writes.
"""

from __future__ import annotations

import re
from typing import Literal

KernelKind = Literal["gemm", "attention", "other"]

KINDS: tuple[KernelKind, ...] = ("gemm", "attention", "other")

# Before GEMM, because some attention kernels are CUTLASS kernels too.
_ATTENTION = re.compile(
    r"flash|fmha|mha_|attention(?!.*(?:mask|bias))|sdpa|splash|softmax_warp|scaled_masked_softmax",
    re.IGNORECASE,
)
# Inductor names a fused kernel after all operators in it; only templates are GEMMs or attention.
_FUSED = re.compile(r"triton_(?:poi|red|per|for|mix)_")
# FBGEMM is a library of recommendation models, most of whose kernels are no GEMMs.
_GEMM = re.compile(
    r"(?<!fb)gemm|gemv|\bnvjet|cutlass.*(?:tensorop|mma)|xmma|cublas|Cijk_|matmul|triton_tem_\w*mm"
    r"|s(?:884|1688|16816)|wgmma",
    re.IGNORECASE,
)
_SIMULATED = re.compile(
    r"(?:qkv|out|up, down|experts|recompute|adapters|head forward|head backward)"
    r"(?: backward| m\d+)*"
)


def kernel_kind(name: str) -> KernelKind:
    """Return the kind of a compute kernel.

    >>> [kernel_kind(name) for name in ("ampere_bf16_s16816gemm_128x128", "triton_poi_fused_mul")]
    ['gemm', 'other']
    >>> [kernel_kind(name) for name in ("qkv backward", "recompute attention", "norm, rotary")]
    ['gemm', 'attention', 'other']
    """
    if _FUSED.match(name):
        return "other"
    if _ATTENTION.search(name):
        return "attention"
    return "gemm" if _GEMM.search(name) or _SIMULATED.fullmatch(name) else "other"
