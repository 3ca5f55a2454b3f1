"""Draw the pictures of the README and the docs from the tool itself.

    pip install -e '.[docs]' && python docs/make_figures.py

Writes docs/images/*.svg, which the README shows; the site draws its own copies when it is built.
Nothing is drawn that `scalewise estimate` would not say. A figure carries its numbers as text, so
that a test can tell when the copy in the repository is out of date.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import scalewise as sw

IMAGES = Path(__file__).parent / "images"

# Okabe and Ito, colour-blind-safe.
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999",
)  # fmt: skip

SIZES = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
PER_GPU = 2

GROUPS = {
    "compute": (("gemm", "attention", "head"), BLUE),
    "memory-bound work": (("memory_bound", "optimizer"), SKY),
    "contention with communication": (("contention",), YELLOW),
    "exposed communication": (
        ("data_parallel_gather", "data_parallel_reduce", "tensor_parallel"),
        ORANGE,
    ),
    "host, overhead, stragglers": (("host", "overhead", "straggler"), GREY),
}


def curve(spelling: str) -> list[sw.Estimate]:
    """Weak scaling of Llama-2-7B on DGX H100: two sequences per GPU at every size."""
    model = sw.load_model("llama-2-7b")
    results = []
    for size in SIZES:
        cluster = sw.load_cluster("dgx-h100", size)
        workload = sw.Workload(sequence=4096, global_batch=PER_GPU * size)
        shard = min(size, 64)
        text = spelling.format(n=size, half=size // 2, replicas=size // shard, shard=shard)
        results.append(
            sw.estimate(model, cluster, workload, sw.parse_strategy(text), stack="llm-foundry")
        )
    return results


def scaling(path: Path) -> None:
    """Draw throughput per GPU against size, and where the step goes under full sharding."""
    mpl.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 10}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), constrained_layout=True)
    lines = (
        ("fully sharded (fsdp{n}-mb2)", "fsdp{n}-mb2", BLUE, "o"),
        ("in groups of 64 (hsdp{replicas}x{shard}-mb2)", "hsdp{replicas}x{shard}-mb2", GREEN, "s"),
        ("with tensor parallelism (fsdp{half}-tp2-mb4)", "fsdp{half}-tp2-mb4", PURPLE, "^"),
    )
    full: list[sw.Estimate] = []
    numbers: list[str] = []
    for label, spelling, colour, marker in lines:
        points = curve(spelling)
        full = full or points
        rate = [p.tokens_per_second_per_accelerator for p in points]
        name = label.split(" (")[0]
        numbers.append(f"{name}: {' '.join(f'{value:.0f}' for value in rate)}")
        left.plot(SIZES, rate, color=colour, marker=marker, markersize=4, label=name)
        left.fill_between(
            SIZES, [p.low for p in points], [p.high for p in points], color=colour, alpha=0.12,
            linewidth=0,
        )  # fmt: skip
    left.set_xscale("log", base=2)
    left.set_xticks(SIZES, [f"{s:,}" for s in SIZES], rotation=45)
    left.set_ylim(bottom=0)
    left.set_xlabel("H100 GPUs (DGX, InfiniBand)")
    left.set_ylabel("tokens/s per GPU")
    left.set_title("Llama-2-7B, 2 sequences of 4,096 tokens per GPU")
    left.legend(frameon=False, loc="lower left", title="80 % interval shaded")
    left.grid(alpha=0.25)

    bottom = np.zeros(len(SIZES))
    place = np.arange(len(SIZES))
    for name, (terms, colour) in GROUPS.items():
        share = np.array([sum(p.terms[t] for t in terms) / p.step_seconds * 100 for p in full])
        right.bar(place, share, bottom=bottom, color=colour, width=0.8, label=name)
        bottom += share
    right.set_xticks(place, [f"{s:,}" for s in SIZES], rotation=45)
    right.set_ylim(0, 100)
    right.set_xlabel("H100 GPUs")
    right.set_ylabel("share of the step, %")
    right.set_title("Where the step goes, fully sharded")
    handles, labels = right.get_legend_handles_labels()
    right.legend(
        handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2,
        frameon=False, fontsize=9,
    )  # fmt: skip
    figure.savefig(path, metadata={"Date": None, "Description": "; ".join(numbers)})
    plt.close(figure)


def draw(folder: Path) -> list[Path]:
    """Draw every figure of the README into a folder."""
    mpl.use("svg")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scaling.svg"
    scaling(path)
    return [path]


if __name__ == "__main__":
    draw(IMAGES)
