"""Precisions of GEMMs: what each costs in casts, and saves in bytes and time.

    RECIPES["fp8block"].peak, RECIPES["fp8block"].scale_bytes        # 'fp8', 0.03125

Those of 16 bits and less keep attention, LM head, embedding and optimizer in 16 or 32 bits;
attention in fp8 and all-gathers of parameters in fp8 are choices of a strategy. tf32 and fp32 have
32 bits everywhere: weights, gradients, activations, attention and LM head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

Precision = Literal[
    "bf16", "fp16", "fp8", "fp8row", "fp8block", "mxfp8", "nvfp4", "tf32", "fp32"
]  # fmt: skip

PRECISIONS: tuple[str, ...] = get_args(Precision)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How the inputs of GEMMs are quantized, and what follows."""

    words: str
    """What it is."""

    peak: str
    """Datasheet column that bounds its GEMMs."""

    operand_bytes: float = 1.0
    """Bytes per GEMM operand element."""

    copies: float = 1.0
    """How often a GEMM input is quantized: 2 where rows and columns are quantized apart."""

    launches: float = 1.5
    """Kernel launches of a layer relative to 16 bits: a count of casts."""

    rate: float = 1.0
    """Rate of its GEMMs relative to scales per tensor."""

    mx_rate: float = 1.0
    """The same on tensor cores that scale blocks themselves: those with 4-bit types."""

    scans: bool = True
    """Whether scales need the largest value of the whole tensor before the cast. MX formats do not;
    their casts are counted as the runs show them."""

    more_bytes: float = 0.0
    """Bytes per element that casts move besides: what is read again, and scales."""

    scale_bytes: float = 0.0
    """Bytes of scales per element of a kept GEMM input."""

    gathers: bool = False
    """Whether quantized weights can be all-gathered."""

    activation_bytes: float = 2.0
    """Bytes per element of activations and of what is sent of them."""

    @property
    def family(self) -> str:
        """Key of the chip's efficiency: all 16-bit types have one."""
        return "bf16" if self.peak == "fp16" else self.peak

    @property
    def wide(self) -> bool:
        """Whether everything has 32 bits: weights, gradients, activations, attention, LM head."""
        return self.activation_bytes > 2.0

    def rate_on(self, peaks: Mapping[str, float]) -> float:
        """Rate of its GEMMs on a chip with these peaks, relative to scales per tensor.

        >>> [RECIPES["fp8block"].rate_on(peaks) for peaks in ({"fp8": 2e15}, {"fp4": 9e15})]
        [0.95, 1.0]
        """
        return self.mx_rate if "fp4" in peaks else self.rate


BLOCK = 128.0
"""Elements along a row that share a scale of 4 bytes in blockwise fp8; weights have one per 128 x
128 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2)."""

BLOCKWISE_RATE = 0.95
"""Rate of blockwise GEMMs where CUDA cores scale what tensor cores have added up over 128 of K
(arXiv 2412.19437, section 3.3.2). catalog/runs/kernels.csv: the median of 9 DeepGEMM products on
H800 with at least 4,096 rows and 1,536 of K is 0.659 of peak under the law of `physics.compute`, of
10 cuBLASLt products with scales per tensor 0.693."""

ROWWISE_RATE = 0.95
"""Rate of GEMMs with row-wise scales: an assumption. CUTLASS's row-wise kernel takes 1.00 to 1.10
times as long as cuBLAS with one scale (four products on H100, pytorch/FBGEMM#2764); torchao has
cuBLAS and a rescaling kernel instead, which is as fast (pytorch/ao#2185)."""

RECIPES: dict[str, Recipe] = {
    "bf16": Recipe(
        words="16 bits", peak="bf16", operand_bytes=2.0, copies=0.0, launches=1.0, scans=False
    ),
    "fp16": Recipe(
        words="16 bits", peak="fp16", operand_bytes=2.0, copies=0.0, launches=1.0, scans=False
    ),
    "fp8": Recipe(words="8 bits, one scale per tensor", peak="fp8", gathers=True),
    # Scales of rows serve forward, those of columns wgrad: the input is read for each.
    "fp8row": Recipe(
        words="8 bits, a scale per row or column",
        peak="fp8",
        launches=2.0,
        rate=ROWWISE_RATE,
        mx_rate=ROWWISE_RATE,
        scans=False,
        more_bytes=2.0,
    ),
    # A tile of 128 x 128 is read once and written along rows and along columns.
    "fp8block": Recipe(
        words="8 bits, a scale per 128 activations and per 128 x 128 weights",
        peak="fp8",
        rate=BLOCKWISE_RATE,
        scans=False,
        more_bytes=2.0 * 4.0 / BLOCK,
        scale_bytes=4.0 / BLOCK,
        gathers=True,
    ),
    "mxfp8": Recipe(words="8 bits, a scale per 32", peak="fp8", copies=2.0, launches=2.0),
    "nvfp4": Recipe(
        words="4 bits, a scale per 16", peak="fp4", operand_bytes=0.5, copies=2.0, launches=2.0
    ),
    "tf32": Recipe(
        words="32 bits, products in TensorFloat-32",
        peak="tf32",
        operand_bytes=4.0,
        copies=0.0,
        launches=1.0,
        scans=False,
        activation_bytes=4.0,
    ),
    "fp32": Recipe(
        words="32 bits",
        peak="fp32",
        operand_bytes=4.0,
        copies=0.0,
        launches=1.0,
        scans=False,
        activation_bytes=4.0,
    ),
}
"""By word. Weights are gathered as quantized only where their transpose has the same scales: one
per tensor or per square block. torchao refuses it for row-wise scales (torchao/float8/config.py);
Megatron-LM gathers mxfp8 weights in 16 bits, or rows and columns both (NVIDIA/Megatron-LM#4987,
#7584), which is as many bytes."""

WIDE_ATTENTION = {"flash2": "flash1", "cudnn": "flash1"}
"""Attention kernel of 32 bits in place of a fused one of 16: FlashAttention and cuDNN take 16 bits
alone, so PyTorch runs its memory-efficient kernel, which is as fast as the first FlashAttention in
16 bits (Dao, arXiv 2307.08691, section 4.1). That it reaches the same fraction of the 32-bit peak
is an assumption."""

ATTENTION_RATE = 1.8
"""Rate of forward attention in fp8 over 16 bits: the median of six sequence lengths of cuDNN on
H100 with heads of 256 (catalog/runs/kernels.csv, figures of arXiv 2407.08608: 1.46 at 512 tokens,
1.96 at 16,384, if both are without a causal mask, which the fp8 figure does not say). Backward
stays in 16 bits: Transformer Engine can run it in fp8, and nobody has published how fast."""

ATTENTION_CAST_BYTES = 3.0
"""Bytes to quantize an element of queries, keys and values: 2 read, 1 written; nothing but forward
reads them."""

TRANSPOSE_BYTES = 2.0
"""Bytes to transpose an element of a weight that arrives quantized, for dgrad: 1 read, 1 written
(Hopper's tensor cores take 8-bit operands in one layout alone)."""


def quantize_bytes(recipe: Recipe, cast_bytes: float, scan_bytes: float) -> float:
    """Return the bytes moved to quantize one element of a GEMM input, all copies.

        copies * (cast_bytes - scan_bytes, unless scales need a scan) + more_bytes

    Args:
        recipe: Precision.
        cast_bytes: Bytes that the software moves per element with one scale per tensor.
        scan_bytes: Those of them that find the largest value.

    >>> [quantize_bytes(RECIPES[name], 8.0, 2.0) for name in ("fp8", "fp8row", "fp8block", "bf16")]
    [8.0, 8.0, 6.0625, 0.0]
    """
    spared = 0.0 if recipe.scans else scan_bytes
    return recipe.copies * (cast_bytes - spared) + recipe.more_bytes
