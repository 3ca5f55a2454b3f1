"""What a chip sustains, as opposed to what its datasheet says.

    chip = load_chip("hopper")       # shared by every accelerator of the architecture
    chip.gemm["bf16"]                # share of peak that large products sustain

Few, physical, named parameters per architecture, written by `scalewise calibrate` into
`catalog/calibrations`. An architecture without a file works from `UNCALIBRATED` and says so.
"""

from __future__ import annotations

import msgspec


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Efficiencies of one architecture against its datasheet."""

    name: str
    """The architecture, as accelerators name it."""

    calibrated: bool = True
    """False for the datasheet default."""

    gemm: dict[str, float]
    """Share of the dense peak that large matrix products sustain in a training step, by
    precision (bf16 stands for all 16-bit types, fp8 for mxfp8 too)."""

    attention: dict[str, tuple[float, float]]
    """Share of the 16-bit peak that attention kernels reach on long sequences, forward and
    backward, by kernel generation. Published sweeps: flash2 and cudnn on Hopper, flash2 on Ampere;
    the rest is assumed."""

    memory_efficiency: float = 0.85
    """Share of memory bandwidth that streaming kernels reach (STREAM rows: 0.81-0.89)."""

    link_efficiency: float = 0.8
    """Share of one-way scale-up bandwidth that a ring reaches (A100 0.78, H100 0.81, B200 0.76)."""

    gemm_fill: float = 128.0
    """Depth at which a tile of a product begins to pay, elements (GPUs: fitted on FSDP step times,
    146 x/: 1.7); next to none on CPUs."""

    interval: tuple[float, float] = (1.0, 1.0)
    """What the chip adds to the 80 % interval of the stack, as factors."""

    fitted_on: str = "not fitted"
    """What the numbers came from."""


# Datasheet default. GEMM: the median of what brute-force shape searches reach on ten boards is
# 0.79 of peak (0.51 to 0.97, maximum achievable matmul FLOPS in stas00/ml-engineering), and
# training steps sustain 0.81-0.91 of that; fp8 and fp4 are assumptions below it. Attention: flash2
# is the level of FlashAttention-2 on Hopper, the lowest published; the other kernels are assumed
# around it.
UNCALIBRATED = Calibration(
    name="datasheet",
    calibrated=False,
    gemm={"bf16": 0.65, "fp8": 0.58, "fp4": 0.45},
    attention={
        "flash1": (0.25, 0.20),
        "flash2": (0.36, 0.32),
        "cudnn": (0.45, 0.38),
        "splash": (0.40, 0.33),
        "unfused": (0.36, 0.32),
    },
    interval=(0.75, 1.3),
    fitted_on="datasheet only: matmul and attention shares are those of other chips",
)


def load_chip(architecture: str) -> Calibration:
    """Return what an architecture sustains, or the datasheet default under its name."""
    from scalewise.catalog import knows, load

    if knows("calibrations", architecture):
        return load("calibrations", architecture, Calibration)
    return msgspec.structs.replace(UNCALIBRATED, name=architecture)
