"""Figure and transcript of the README, made by the tool itself.

    pip install -e '.[docs]' && python docs/make_figures.py

Writes docs/images/scaling.svg and the output block of README.md; the site draws its own copy of the
figure when it is built. The figure carries its numbers as text, so that a test finds an outdated
copy.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import scalewise as sw
from scalewise.terms import COLORS, TERMS

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"

# Okabe and Ito: distinct under every kind of color vision.
BLUE, GREEN, PURPLE, YELLOW, SKY = "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"

SIZES = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
PER_GPU = 2
LINES = 10
"""Lines of the output that the README shows."""

GROUPS = {
    "compute": (lambda t: (t.kind, t.activity) == ("compute", "compute"), BLUE),
    "memory-bound kernels, optimizer": (
        lambda t: (t.kind, t.activity) == ("compute", "memory"),
        SKY,
    ),
    "contention with communication": (lambda t: t.key == "contention", YELLOW),
    "exposed communication": (lambda t: bool(t.group), COLORS["communication"]),
    "launches, overhead, stragglers": (lambda t: t.kind == "waiting", COLORS["waiting"]),
}
"""Parts of the right panel: which terms they add up, and their color."""


def curve(spelling: str) -> list[sw.Estimate]:
    """Return weak scaling of Llama-2-7B on DGX H100, two sequences per GPU, default software."""
    model = sw.load_model("llama-2-7b")
    results = []
    for size in SIZES:
        cluster = sw.load_cluster("dgx-h100", size)
        workload = sw.Workload(seq_len=4096, global_batch=PER_GPU * size)
        shard = min(size, 64)
        text = spelling.format(n=size, half=size // 2, replicas=size // shard, shard=shard)
        results.append(sw.estimate(model, cluster, workload, sw.parse_strategy(text)))
    return results


def scaling(path: Path) -> None:
    """Draw throughput per GPU against size, and the parts of the step under FSDP."""
    mpl.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 10}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), constrained_layout=True)
    lines = (
        ("FSDP", "fsdp{n}-mb2", BLUE, "o"),
        ("HSDP, groups of 64", "hsdp{replicas}x{shard}-mb2", GREEN, "s"),
        ("FSDP, TP 2", "fsdp{half}-tp2-mb4", PURPLE, "^"),
    )
    full: list[sw.Estimate] = []
    numbers: list[str] = []
    for label, spelling, color, marker in lines:
        points = curve(spelling)
        full = full or points
        rate = [p.tokens_per_second_per_accelerator for p in points]
        numbers.append(f"{label}: {' '.join(f'{value:.0f}' for value in rate)}")
        left.plot(SIZES, rate, color=color, marker=marker, markersize=4, label=label)
        left.fill_between(
            SIZES, [p.low for p in points], [p.high for p in points], color=color, alpha=0.12,
            linewidth=0,
        )  # fmt: skip
    left.set_xscale("log", base=2)
    left.set_xticks(SIZES, [f"{s:,}" for s in SIZES], rotation=45)
    left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.set_xlabel("H100 GPUs (DGX, InfiniBand)")
    left.set_ylabel("tokens/s per GPU")
    left.set_title(f"Llama-2-7B, 2 x 4,096 tokens per GPU, stack {full[0].stack.name}")
    left.legend(frameon=False, loc="lower left", title="80% prediction interval shaded")
    left.grid(alpha=0.25)

    bottom = np.zeros(len(SIZES))
    place = np.arange(len(SIZES))
    for name, (belongs, color) in GROUPS.items():
        terms = [key for key, term in TERMS.items() if belongs(term)]
        part = np.array([sum(p.terms[t] for t in terms) / p.step_seconds * 100 for p in full])
        right.bar(place, part, bottom=bottom, color=color, width=0.8, label=name)
        bottom += part
    right.set_xticks(place, [f"{s:,}" for s in SIZES], rotation=45)
    right.set_ylim(0, 100)
    right.set_xlabel("H100 GPUs")
    right.set_ylabel("% of step")
    right.set_title("Step time, FSDP")
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


def with_transcript(readme: str) -> str:
    """Return the README with the first lines that its main command prints now."""
    from click.testing import CliRunner

    from scalewise.cli.main import cli

    words = re.search(r"^```sh main\n.*/scalewise (.*)$", readme, flags=re.M)
    assert words, "README.md has no main command"
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"})
    output = runner.invoke(cli, words[1].split()).stdout.splitlines()[:LINES]
    text = "\n".join(line.rstrip() for line in output).rstrip()
    return re.sub(
        r"^```text output\n.*?^```$",
        lambda _: f"```text output\n{text}\n```",
        readme,
        flags=re.M | re.S,
    )


if __name__ == "__main__":
    draw(IMAGES)
    page = ROOT / "README.md"
    page.write_text(with_transcript(page.read_text(encoding="utf-8")), encoding="utf-8")
