"""Calibrations: sustained fractions of a chip's datasheet.

    chip = load_chip("hopper")       # shared by every accelerator of the architecture
    chip.gemm["bf16"]                # fraction of peak that large GEMMs sustain

A few physical parameters per architecture, written by `scalewise calibrate` into
`catalog/calibrations`. An architecture without a file uses `UNCALIBRATED`, and outputs say so.
"""

from __future__ import annotations

import math

import msgspec

from scalewise.errors import InputError


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

    fitted_watts: float | None = None
    """Power limit of the accelerator on which `gemm` was fitted, watts; of several the one with the
    least power per FLOP/s. None leaves the clocks of all accelerators alone."""

    fitted_peak: float | None = None
    """Its dense 16-bit peak, FLOP/s: an accelerator with less power per FLOP/s sustains lower
    clocks."""

    gemm_shapes: tuple[tuple[float, float, float, float], ...] = ()
    """16-bit products timed on this very device: rows, columns, depth, and time over that of the
    smooth law; see `physics.shapes`."""

    head_lanes: float = 0.0
    """Width to which the matrix unit pads an attention head, elements: 128 on TPUs, whose unit
    multiplies 128 x 128 (Jouppi et al., arXiv 2304.01433); GPUs have narrow tiles."""

    early_until: str = ""
    """Date before which software has the first GEMM kernels of the architecture, YYYY-MM; empty if
    nothing is known of them."""

    early_gemm: dict[str, float] = {}
    """Their rate over that of later kernels, by precision. On Blackwell cuBLASLt of CUDA 12.8
    reaches 0.54 to 0.56 of the fp8 peak on cubes of 4,096 to 32,768 (Azure/AI-benchmarking-guide,
    results of GB200), of which training sustains 0.87: 0.49, against 0.57 in runs since 2025-09.
    Rounded with the runs of 2025-05 in view."""

    fitted_on: str = "not fitted"
    """Source of the numbers."""

    runs: dict[str, int] = {}
    """Published runs behind `gemm`, by precision. Fewer than 10 leave it near its prior: intervals
    are those of a chip without a calibration."""

    def __post_init__(self) -> None:
        """Check that every number is one."""
        numbers = [
            ("memory_efficiency", self.memory_efficiency),
            ("link_efficiency", self.link_efficiency),
            ("gemm_fill", self.gemm_fill),
            ("head_lanes", self.head_lanes),
            ("fitted_watts", self.fitted_watts or 0.0),
            ("fitted_peak", self.fitted_peak or 0.0),
            *((f"gemm.{name}", value) for name, value in self.gemm.items()),
            *((f"early_gemm.{name}", value) for name, value in self.early_gemm.items()),
            *(
                (f"attention.{name}", each)
                for name, pair in self.attention.items()
                for each in pair
            ),
            *(("gemm_shapes", each) for row in self.gemm_shapes for each in row),
        ]
        for name, value in numbers:
            if not 0.0 <= value < math.inf:
                raise InputError(
                    f"calibration {self.name}: {name} = {value:g} must be finite and not negative",
                    hint="run `scalewise calibrate` again, or edit the file",
                )

    def knows(self, family: str) -> bool:
        """Whether the share of a family of precisions is its own: by runs, or measured."""
        if family in ("tf32", "fp32") and family not in self.gemm:
            return False
        return self.calibrated and (not self.runs or self.runs.get(family, 0) >= FEWEST)

    def __hash__(self) -> int:
        # Tables by precision and kernel have no hash; the name and their values identify a chip.
        return hash((self.name, *self.gemm.values(), self.gemm_shapes))


FEWEST = 10
"""Runs from which the GEMM share of a chip is its own."""


# Datasheet default. GEMM: the median of what brute-force shape searches reach on ten boards is
# 0.79 of peak (0.51 to 0.97, maximum achievable matmul FLOPS in stas00/ml-engineering), and
# training steps sustain 0.81-0.91 of that; fp8 and fp4 are assumptions below it. Attention: flash2
# is the level of FlashAttention-2 on Hopper, the lowest published; the other kernels are assumed
# around it. Splash attention with its default blocks of 512 has 3/4 of the rate of blocks of 1,024
# (apple/axlearn pull request 958).
UNCALIBRATED = Calibration(
    name="datasheet",
    calibrated=False,
    gemm={"bf16": 0.65, "fp8": 0.58, "fp4": 0.45},
    attention={
        "flash1": (0.25, 0.20),
        "flash2": (0.36, 0.32),
        "cudnn": (0.45, 0.38),
        "splash": (0.40, 0.33),
        "splash-512": (0.30, 0.25),
        "unfused": (0.36, 0.32),
    },
    fitted_on="datasheet only: matmul and attention shares are those of other chips",
)


def load_chip(architecture: str) -> Calibration:
    """Return the calibration of an architecture, or the datasheet default under its name."""
    from scalewise.catalog import knows, load

    if knows("calibrations", architecture):
        return load("calibrations", architecture, Calibration)
    return msgspec.structs.replace(UNCALIBRATED, name=architecture)
