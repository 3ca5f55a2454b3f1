"""Calibrations: sustained fractions of a chip's datasheet.

    chip = load_chip("hopper")       # shared by every accelerator of the architecture
    chip.gemm["bf16"]                # fraction of peak that large GEMMs sustain

A few physical parameters per architecture, written by `scalewise calibrate` into
`catalog/calibrations`. An architecture without a file uses `UNCALIBRATED`, and outputs say so.
"""

from __future__ import annotations

import msgspec


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sustained fractions of the datasheet of one architecture."""

    name: str
    """The architecture, as accelerators name it."""

    calibrated: bool = True
    """False for the datasheet default."""

    gemm: dict[str, float]
    """Fraction of the dense peak that large GEMMs sustain in a training step, by precision (bf16 is
    for all 16-bit types, fp8 also for mxfp8)."""

    attention: dict[str, tuple[float, float]]
    """Fraction of the 16-bit peak that attention kernels reach on long sequences, forward and
    backward, by kernel generation. Published sweeps: flash2 and cudnn on Hopper, flash2 on Ampere;
    the rest is assumed."""

    memory_efficiency: float = 0.85
    """Fraction of memory bandwidth that streaming kernels reach (STREAM rows: 0.81-0.89)."""

    link_efficiency: float = 0.8
    """Fraction of one-way scale-up bandwidth that a ring reaches (A100 0.78, H100 0.81, B200 0.76).
    """

    gemm_fill: float = 128.0
    """Depth at which a GEMM tile reaches half of its rate, elements (GPUs: fitted on FSDP step
    times, 146 x/: 1.7); almost zero on CPUs."""

    interval: tuple[float, float] = (1.0, 1.0)
    """Factors by which the chip widens the 80% interval of the stack."""

    fitted_on: str = "not fitted"
    """Source of the numbers."""


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
    """Return the calibration of an architecture, or the datasheet default under its name."""
    from scalewise.catalog import knows, load

    if knows("calibrations", architecture):
        return load("calibrations", architecture, Calibration)
    return msgspec.structs.replace(UNCALIBRATED, name=architecture)
