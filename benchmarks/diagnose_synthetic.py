"""Diagnosis of synthetic runs whose cause is known: ranks, calibration, false alarms.

    python benchmarks/diagnose_synthetic.py --damaged 500 --healthy 200 --seed 1

Questions are drawn over models, clusters, sizes, strategies and stacks. A damaged run gets a cause
and a value from the prior of `diagnosis.causes` (loss of 5% or more), every run a level and noise.
The same model damages and judges, so the scores are a ceiling: they show whether the inference is
right, not whether the list and the model are. Printed: how often the true cause is first and among
the first three, by data and loss; calibration of stated odds; healthy runs; causes struck from the
list; the same with errors twice as large as assumed; and which causes are taken for which. Below
each row stands what no method can exceed: the mean odds of the first cause and of the first three
if the loss were known, with the standard error of the row above.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.diagnosis.answer import Posterior, infer
from scalewise.diagnosis.causes import CAUSES
from scalewise.diagnosis.evidence import NODE_NOISE, PROFILE_NOISE, Evidence
from scalewise.diagnosis.measured import Measurement
from scalewise.diagnosis.next_measurement import (
    MATMUL_NOISE,
    Candidate,
    candidates,
    expected_bits,
)
from scalewise.diagnosis.parts import COARSE, DETAILED, PER_NODE, shares
from scalewise.diagnosis.posterior import entropy, normalized
from scalewise.diagnosis.predict import HEALTHY_KEY, OTHER_KEY, Table, predict
from scalewise.diagnosis.runs import Run
from scalewise.errors import InputError
from scalewise.step.result import Estimate

LEVEL, NOISE = 0.15, 0.05
"""Assumed errors (log)."""

SETTINGS = {
    "llama-3-8b": ("fsdp-mb1", "fsdp-mb2-acfull", "zero1-tp2-mb1", "hsdp8-mb1"),
    "llama-2-7b": ("fsdp-mb2", "ddp-tp4-mb1", "zero1-tp4-mb2", "hsdp8-mb2"),
    "llama-2-13b": ("fsdp-mb1", "zero1-tp4-mb1", "zero1-tp2-pp2-mb1", "fsdp-mb2-acfull"),
    "llama-3-70b": ("fsdp-mb1-acfull", "zero1-tp8-pp4-mb1", "zero1-tp4-pp4-mb1-acfull"),
    "gpt3-1.3b": ("ddp-mb4", "fsdp-mb8", "zero1-mb4"),
}  # fmt: skip
CLUSTERS = ("dgx-h100", "dgx-a100", "aws-p5", "a100-sxm-40gb")
SIZES = (16, 32, 64, 128, 256)
STACKS = ("pytorch", "pytorch-compiled", "megatron", "llm-foundry")
ODDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.01)
"""Bins of stated odds."""

DATA: dict[str, tuple[str, ...]] = {
    "nothing": (), "one number": (), "two sizes": ("quarter",), "other sharding": ("sharding",),
    "micro-batch x2": ("micro_batch",), "one node": ("node",), "profile": (), "nccl-tests": (),
    "one node and profile": ("node",), "trace": (), "traces per node": (),
    "one node and trace": ("node",),
}  # fmt: skip
"""Candidate runs that are measured besides, by the name of the data."""

LOSSES = (1.05, 1.25, 1.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One question with a true cause."""

    estimate: Estimate
    listed: list[Candidate]
    table: Table
    """Of the run, and behind it the candidate runs."""
    point: int
    """True hypothesis."""
    level: float
    noise: np.ndarray
    """Noise of the run and of all candidate runs."""
    parts: dict[str, float]
    """Profile as measured: compute, exposed and idle, and what a trace has."""
    node_rate: float
    matmul: float

    @property
    def key(self) -> str:
        """The true cause."""
        return self.table.keys[int(self.table.cause[self.point])]

    @property
    def loss(self) -> float:
        """Factor that the cause costs in the run."""
        return float(np.exp(self.table.log_rate[0, 0] - self.table.log_rate[0, self.point]))

    def run(self, row: int, e: Estimate, *, scale: float = 1.0) -> Run:
        """Return a measured run; `scale` multiplies its errors."""
        error = self.level + self.noise[row]
        rate = float(np.exp(self.table.log_rate[row, self.point] + scale * error))
        number = Measurement(key="", value=rate, unit="tok/s", text=f"{rate:.0f} tok/s")
        return Run(estimate=e, measurement=number, rate=rate)

    def runs(self, *keys: str, scale: float = 1.0) -> list[Run] | None:
        """Return the run, and those of candidates by key; None where one cannot be."""
        further = [each for each in self.listed if each.estimate is not None]
        found = [self.run(0, self.estimate, scale=scale)]
        for key in keys:
            places = [place for place, each in enumerate(further) if each.key == key]
            if not places:
                return None
            e = further[places[0]].estimate
            assert e is not None
            found.append(self.run(places[0] + 1, e, scale=scale))
        return found

    def profile(self, names: Sequence[str]) -> dict[str, float]:
        """Return some parts of the profile."""
        return {name: self.parts[name] for name in names}


def question(draw: random.Random) -> Estimate | None:
    """Draw a run; None if it cannot run, or does not fit."""
    model = draw.choice(list(SETTINGS))
    asked = Question(
        model=model,
        on=draw.choice(CLUSTERS),
        gpus=draw.choice(SIZES),
        strategy=draw.choice(SETTINGS[model]),
        seq=draw.choice((2048, 4096, 8192)),
        stack=draw.choice(STACKS),
        batch=draw.choice((256, 512, 1024)),
    )
    try:
        e = resolve(asked).estimate()
    except InputError:
        return None
    return e if e.feasible else None


def trial(draw: random.Random, noise: np.random.Generator, *, damaged: bool) -> Trial:
    """Draw a question with a cause."""
    while True:
        e = question(draw)
        if e is None:
            continue
        listed = candidates(e, [e])
        further = [each.estimate for each in listed if each.estimate is not None]
        table = predict([e, *further], judged=1)
        on_list = (table.cause > 0) & (table.cause < len(table.keys) - 1)
        weights = normalized(np.where(on_list, table.log_prior, -np.inf))
        point = int(noise.choice(len(weights), p=weights)) if damaged else 0
        return Trial(
            estimate=e,
            listed=listed,
            table=table,
            point=point,
            level=LEVEL * noise.normal(),
            noise=NOISE * noise.normal(size=1 + len(further)),
            parts={
                name: float(shares(table.parts[0, point], name)) + PROFILE_NOISE * noise.normal()
                for name in dict.fromkeys((*COARSE, *DETAILED, *PER_NODE))
            },
            node_rate=float(np.exp(table.log_node_rate[point] + NODE_NOISE * noise.normal())),
            matmul=float(table.log_matmul[point] + MATMUL_NOISE * noise.normal()),
        )


def judge(trial: Trial, data: str, **options: object) -> Posterior | None:
    """Return the odds from some data; None where these cannot be measured."""
    scale = float(options.pop("scale", 1.0))  # type: ignore[arg-type]
    extra = DATA[data]
    runs = trial.runs(*extra, scale=scale)
    if runs is None:
        return None
    names = COARSE if "profile" in data else DETAILED if "trace" in data else ()
    names = PER_NODE if "per node" in data else names
    evidence = Evidence(
        profile=trial.profile(names) if names else None,
        node_rate=trial.node_rate if data == "nccl-tests" else None,
    )
    found = infer(runs, evidence, errors=(LEVEL, NOISE), **options)  # type: ignore[arg-type]
    if data == "nothing":
        prior = normalized(found.state.table.log_prior)
        causes = found.state.table.of_causes(prior)
        return replace(found, state=replace(found.state, weights=prior), causes=causes)
    return found


def named(trial: Trial) -> tuple[Posterior, str, float, float]:
    """Measure what the tool names; return the odds after it, its key, promised and had bits."""
    further = [each.estimate for each in trial.listed if each.estimate is not None]
    runs = trial.runs()
    assert runs is not None
    before = infer(runs, Evidence(), further, errors=(LEVEL, NOISE))
    bits = expected_bits(before.state, trial.listed)
    best = max(trial.listed, key=lambda each: bits[each.key])
    if best.kind == "run":
        after = infer(trial.runs(best.key) or runs, Evidence(), errors=(LEVEL, NOISE))
    elif best.kind == "profile":
        after = infer(runs, Evidence(profile=trial.profile(PER_NODE)), errors=(LEVEL, NOISE))
    elif best.kind == "nccl":
        after = infer(runs, Evidence(node_rate=trial.node_rate), errors=(LEVEL, NOISE))
    else:
        table = before.state.table
        away = (trial.matmul - table.log_matmul) / MATMUL_NOISE
        weights = before.state.weights * np.exp(-0.5 * away**2)
        weights = weights / weights.sum()
        state = replace(before.state, weights=weights)
        after = replace(before, state=state, causes=table.of_causes(weights))
    gain = float(entropy(before.causes) - entropy(after.causes))
    return after, best.key, bits[best.key], gain


def order(found: Posterior) -> list[str]:
    """Return causes of the list, the most likely first."""
    keys = found.state.table.keys
    places = np.argsort(-found.causes)
    return [keys[place] for place in places if keys[place] not in (HEALTHY_KEY, OTHER_KEY)]


def rank_line(name: str, pairs: Sequence[tuple[Trial, Posterior]]) -> str:
    """Return how often the true cause is first, and among the first three, by loss."""
    cells, bounds = [], []
    for least in LOSSES:
        chosen = [(t, p) for t, p in pairs if t.key != HEALTHY_KEY and t.loss >= least]
        ranks = np.array([order(p).index(t.key) for t, p in chosen])
        cells.append(f"{_share(ranks == 0)},{_share(ranks < 3)} ({len(ranks)})")
        best = np.array([bound(p, least) for _, p in chosen]).reshape(-1, 2)
        error = 50.0 / np.sqrt(max(len(ranks), 1))
        bounds.append(f"{_share(best[:, 0])},{_share(best[:, 1])} +-{error:.0f}")
    healthy = np.array([_first(p) == HEALTHY_KEY for t, p in pairs if t.key == HEALTHY_KEY])
    line = f"{name:24s}" + "".join(f"{cell:>17s}" for cell in cells) + f"{_share(healthy):>9s}"
    return line + "\n" + f"{'  no method above':24s}" + "".join(f"{each:>17s}" for each in bounds)


def bound(found: Posterior, least: float) -> tuple[float, float]:
    """Return the odds of the first cause and of the first three, knowing the loss is `least`.

    Their means are what the best method can reach: questions are drawn from the prior, errors are
    those assumed, and of causes that lose less nothing is asked.
    """
    state = found.state
    lost = state.table.log_rate[0, 0] - state.table.log_rate[0]
    on_list = (state.table.cause > 0) & (state.table.cause < len(state.table.keys) - 1)
    points = np.where(on_list & (lost >= np.log(least) - 1e-9), state.weights, 0.0)
    causes = np.sort(state.table.of_causes(points / max(points.sum(), 1e-300)))[::-1]
    return float(causes[0]), float(causes[:3].sum())


def _first(found: Posterior) -> str:
    return found.state.table.keys[int(np.argmax(found.causes))]


def _share(hits: np.ndarray) -> str:
    return f"{100.0 * hits.mean():3.0f}" if len(hits) else "  -"


def calibration(pairs: Sequence[tuple[Trial, Posterior]], size: int = 100) -> list[str]:
    """Return stated odds of the first answer against how often it is right, in bins.

    The list is closed: all causes here are on it.
    """
    stated, right = [], []
    for t, p in pairs:
        keys = p.state.table.keys
        closed = np.where(np.array(keys) == OTHER_KEY, 0.0, p.causes)
        closed = closed / closed.sum()
        best = int(np.argmax(closed))
        stated.append(float(closed[best]))
        right.append(keys[best] == t.key)
    places = np.argsort(stated)
    lines = []
    for start in range(0, len(places) - size // 2, size):
        here = places[start : start + size]
        said, is_so = np.mean(np.array(stated)[here]), np.mean(np.array(right)[here])
        lines.append(f"{said:.2f} -> {is_so:.2f} ({is_so - said:+.2f})")
    return lines


def all_odds(pairs: Sequence[tuple[Trial, Posterior]]) -> str:
    """Return stated odds of all causes of at least 2% against how often each is true."""
    stated, right = [], []
    for t, p in pairs:
        keys = p.state.table.keys
        closed = np.where(np.array(keys) == OTHER_KEY, 0.0, p.causes)
        for key, value in zip(keys, closed / closed.sum(), strict=True):
            if value >= ODDS[0]:
                stated.append(value)
                right.append(key == t.key)
    said, true = np.array(stated), np.array(right)
    cells = []
    for low, high in pairwise(ODDS):
        here = (said >= low) & (said < high)
        if here.any():
            cells.append(f"{said[here].mean():.2f} -> {true[here].mean():.2f} ({here.sum()})")
    return ", ".join(cells)


def main() -> None:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damaged", type=int, default=500)
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", type=int, default=100, help="Questions of a bin of calibration.")
    given = parser.parse_args()
    start = time.process_time()
    draw, noise = random.Random(given.seed), np.random.default_rng(given.seed)
    trials = [trial(draw, noise, damaged=True) for _ in range(given.damaged)]
    trials += [trial(draw, noise, damaged=False) for _ in range(given.healthy)]
    print(f"{given.damaged} damaged, {given.healthy} healthy, level {LEVEL}, noise {NOISE}")
    print("true cause first, among the first three (questions), %, by loss; healthy first, %")
    head = "".join(f"{f'>= {least:g}x':>17s}" for least in LOSSES)
    print(f"{'data':24s}{head}{'healthy':>9s}")
    everything: dict[str, list[tuple[Trial, Posterior]]] = {}
    for data in DATA:
        pairs = [(t, p) for t in trials if (p := judge(t, data)) is not None]
        everything[data] = pairs
        print(rank_line(data, pairs), flush=True)
    after = [(t, named(t)) for t in trials]
    print(rank_line("named by the tool", [(t, found[0]) for t, found in after]))
    keys = Counter(found[1] for _, found in after)
    print("named:", ", ".join(f"{key} {count}" for key, count in keys.most_common()))
    promised, had = (np.mean([found[place] for _, found in after]) for place in (2, 3))
    print(f"promised {promised:.2f} bits, had {had:.2f}")
    error = 0.5 / np.sqrt(given.bin)
    print(f"calibration, stated -> right, in bins of {given.bin} (standard error {error:.2f})")
    for data in ("one number", "two sizes", "one node", "profile", "trace"):
        print(f"  {data}: " + ", ".join(calibration(everything[data], given.bin)))
        print(f"    all stated odds: {all_odds(everything[data])}")
    struck_causes(trials)
    print("errors twice as large as assumed")
    for data in ("one number", "one node", "profile"):
        pairs = [(t, p) for t in trials if (p := judge(t, data, scale=2.0)) is not None]
        print(rank_line(data, pairs), flush=True)
    confusion(everything["one number"])
    print(f"{time.process_time() - start:.0f} s of CPU")


def struck_causes(trials: Sequence[Trial]) -> None:
    """Print how often a wrong cause is named at 80% or more if the true one is not on the list."""
    print("true cause struck from the list: another one named at 80% or more, %")
    for data in ("one number", "one node", "profile"):
        wrong = []
        for t in trials:
            if t.key == HEALTHY_KEY:
                continue
            left = {key: cause for key, cause in CAUSES.items() if key != t.key}
            found = judge(t, data, causes=left)
            if found is not None:
                best = int(np.argmax(found.causes))
                name = found.state.table.keys[best]
                wrong.append(name in left and found.causes[best] >= 0.8)
        print(f"  {data}: {_share(np.array(wrong))}", flush=True)


def confusion(pairs: Sequence[tuple[Trial, Posterior]]) -> None:
    """Print what causes are taken for, from one number."""
    print("one number: true cause (questions): first answers")
    for key in CAUSES:
        answers = Counter(order(p)[0] for t, p in pairs if t.key == key)
        if answers:
            said = ", ".join(f"{name} {count}" for name, count in answers.most_common(5))
            print(f"  {key} ({sum(answers.values())}): {said}")


if __name__ == "__main__":
    main()
