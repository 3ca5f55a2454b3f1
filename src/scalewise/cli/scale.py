"""`scalewise scale`: what does each added accelerator buy, and from where is another split better?

    scalewise scale llama-2-7b --on dgx-h100 --gpus 8..2048 --strategy fsdp,hsdp64,tp2,best
    scalewise scale llama-2-7b --on dgx-h100,dgx-a100 --gpus 16..256 --strong --batch 1024
    scalewise scale llama-2-7b,llama-2-13b --on dgx-h100 --gpus 8..512 --seq 4096,16384 -o x.svg

Exit code 0: some point can run; 1: none can; 2: wrong usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    plan_option,
    put,
    show,
    switch_options,
    to_json,
)
from scalewise.cli.curve_files import as_dict, save
from scalewise.cli.sweeping import sweep_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.cli.inputs import Question
    from scalewise.cli.sweeping import Runner
    from scalewise.explore.points import Curves
    from scalewise.explore.sizes import Rule
    from scalewise.model import Model
    from scalewise.stack import Stack

BATCH_PER_GPU = 2
"""Sequences of one accelerator when nobody says, in weak scaling."""

SWITCHES = ("power_cap", "algorithm", "protocol")
"""Options that change the cluster."""


@click.command(short_help="Draw weak and strong scaling over sizes.")
@click.argument("model", metavar="MODEL,...")
@plan_option(leave=("gpus", "strategy"))
@click.option("--on", required=True, metavar="CLUSTER,...", help="Clusters or accelerators.")
@click.option("--gpus", required=True, metavar="N..M", help="8..2048 doubles; or 8,64,512.")
@click.option(
    "--strategy",
    default="fsdp",
    show_default=True,
    metavar="S,...",
    help="Without sizes: fsdp, hsdp64, ddp, zero1, tp8-pp8-zero1; or best, best-tp2.",
)
@click.option(
    "--by", default="time", show_default=True, metavar="WHAT", help="Of best: time, cost, energy."
)
@click.option("--weak", is_flag=True, help="The batch grows with the cluster. [unless --batch]")
@click.option("--batch-per-gpu", metavar="N", help="Sequences per accelerator, if weak. [2]")
@click.option("--strong", is_flag=True, help="The batch stays the same.")
@click.option("--batch", metavar="N", help="Sequences per step over all accelerators, if strong.")
@click.option("--seq", metavar="N,...", help="Tokens per sequence; batches stay as said. [4096]")
@click.option("--precision", metavar="P", help="bf16, fp16, fp8, mxfp8 or nvfp4. [bf16]")
@click.option("--stack", metavar="NAME", help="Software, see `scalewise stacks`.")
@switch_options
@click.option(
    "--knee",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=0.5,
    show_default=True,
    metavar="SHARE",
    help="Share of the first return that is still enough.",
)
@sweep_options
@click.option("--json", "as_json", is_flag=True, help="Print all points as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all points as CSV.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write a .json, .csv, .parquet, .html, .svg or .png file.",
)
def scale(
    model: str,
    on: str,
    gpus: str,
    strategy: str,
    by: str,
    output: str | None,
    knee: float,
    sets: tuple[str, ...],
    *,
    runner: Runner,
    weak: bool,
    strong: bool,
    as_json: bool,
    as_csv: bool,
    **flags: str | None,
) -> int:
    """Show what each added accelerator buys when MODEL is trained on more and more of them.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file; commas join several. Strategies are spelled without sizes: the
    data-parallel part takes the ranks that are left. `best` is searched for at each size.

    The knee is the first size whose added accelerators each bring less than the share --knee of
    what each accelerator brings at the smallest size.
    """
    ending = ending_of(output, FORMATS)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    light_numpy()
    check_library(ending)
    from scalewise.catalog import load_cluster
    from scalewise.cli.inputs import require_text
    from scalewise.explore.scale import scale as price
    from scalewise.explore.sizes import parse_sizes
    from scalewise.explore.tasks import Priced
    from scalewise.model import load_model

    for flag, value in (("MODEL", model), ("--on", on), ("--gpus", gpus), ("--strategy", strategy)):
        require_text(value, flag)
    for name, text in flags.items():
        require_text(text, "--" + name.replace("_", "-"))
    chosen: list[str] = []
    models = [load_model(name.strip()) for name in model.split(",")]
    sizes = parse_sizes(gpus)
    rules = _rules(models, flags, weak=weak, strong=strong, chosen=chosen)
    # At the largest size, so that a chip without a known network is refused there and then.
    clusters = [load_cluster(name.strip(), accelerators=sizes[-1]) for name in on.split(",")]
    stack: Stack | str | None = flags["stack"]
    if sets or any(flags[name] for name in SWITCHES):
        question = _changed(model, on, str(sizes[-1]), flags, sets)
        models, clusters, stack = [question.model], [question.cluster], question.stack
        rules = [_changed_rule(rules[0], question)]
        chosen += question.changed
    curves = price(
        models,
        clusters,
        rules,
        strategy.split(","),
        sizes,
        by=by.lower(),
        stack=stack,
        run=lambda tasks, function: runner(tasks, function, Priced),
    )
    chosen += _chosen(curves, flags, strategy)
    if output is not None and ending is not None:
        save(curves, output, ending, share=knee, chosen=chosen)
    if as_csv:
        from scalewise.report.curves_data import curves_csv

        put(None, curves_csv(curves).rstrip("\n"))
    elif as_json:
        put(None, to_json(as_dict(curves, share=knee, chosen=chosen)))
    elif output is None:
        from scalewise.report.curves import print_curves

        show(lambda out: print_curves(curves, out, share=knee, chosen=chosen))
    if any(curve.feasible for curve in curves.curves):
        return 0
    click.echo("no strategy can run at any of these sizes", err=True)
    return 1


def _rules(
    models: Sequence[Model],
    flags: dict[str, str | None],
    *,
    weak: bool,
    strong: bool,
    chosen: list[str],
) -> list[Rule]:
    """Read what a step trains as the cluster grows: one rule for each sequence length."""
    from scalewise.cli.inputs import SEQUENCE
    from scalewise.explore.sizes import Rule

    batch, each = flags["batch"], flags["batch_per_gpu"]
    if weak and strong:
        raise InputError("--weak and --strong exclude each other", hint="keep one of the two")
    strong = strong or (batch is not None and not weak)
    if strong and each is not None:
        raise InputError("--batch-per-gpu belongs to weak scaling", hint="give --batch instead")
    if strong and batch is None:
        raise InputError("--strong needs a batch", hint="for example --batch 1024")
    if weak and batch is not None:
        raise InputError("--batch belongs to strong scaling", hint="give --batch-per-gpu instead")
    fields: dict[str, Any] = {}
    if batch is not None:
        fields |= {"kind": "strong", "batch": _number("--batch", batch, "count")}
    elif each is not None:
        fields |= {"kind": "weak", "batch": _fraction(each)}
    else:
        fields |= {"kind": "weak", "batch": BATCH_PER_GPU}
        chosen.append(f"weak scaling, {BATCH_PER_GPU} sequences per accelerator (--batch-per-gpu)")
    if flags["tokens"] is not None:
        fields["tokens"] = _number("--tokens", flags["tokens"], "tokens")
    if flags["precision"] is not None:
        fields["precision"] = flags["precision"].lower()
    if flags["seq"] is not None:
        lengths = [int(_number("--seq", text, "count")) for text in flags["seq"].split(",")]
    else:
        # The same for all models, or they could not be compared.
        tables = [each.max_positions for each in models if each.positions == "learned"]
        lengths = [min([SEQUENCE, *tables])]
        chosen.append(f"sequence {lengths[0]:,} tokens (--seq)")
    return [Rule(**fields, sequence=length) for length in lengths]


def _changed(
    model: str, on: str, gpus: str, flags: dict[str, str | None], sets: Sequence[str]
) -> Question:
    """The nouns with what switches and `--set` change; every size has the same change.

    Raises:
        InputError: If several models, clusters or lengths are compared: whose field would it be?
    """
    from scalewise.cli.inputs import ask

    for flag, text in (("MODEL", model), ("--on", on), ("--seq", flags["seq"] or "")):
        if "," in text:
            raise InputError(
                f"{flag} {text}: what is changed must be of one model, one cluster, one length",
                hint="draw one curve at a time, or leave out --set and the switches",
            )
    if any(text.strip().startswith("strategy.") for text in sets):
        raise InputError(
            "--set strategy.* changes nothing: curves are drawn for each of --strategy",
            hint="spell it there, such as --strategy fsdp-tp2",
        )
    names = ("seq", "batch", "precision", "stack", "tokens", *SWITCHES)
    given: dict[str, Any] = {name: flags[name] for name in names}
    return ask(model.strip(), on.strip(), gpus=gpus, sets=sets, **given)


def _changed_rule(rule: Rule, question: Question) -> Rule:
    """The rule with what `--set workload.*` changes."""
    import msgspec

    w = question.workload
    batch = float(w.global_batch) if rule.kind == "strong" else rule.batch
    return msgspec.structs.replace(
        rule, sequence=w.sequence, precision=w.precision, tokens=w.tokens, batch=batch
    )


def _number(flag: str, text: str, kind: str) -> float:
    from scalewise.units import parse

    try:
        return parse(text, kind)
    except InputError as error:
        raise InputError(f"{flag}: {error}", hint=error.hint) from error


def _fraction(text: str) -> float:
    """Read sequences per accelerator, which may be less than one: tp8 shares a sequence."""
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--batch-per-gpu: {text[:40]!r} is no number", hint="for example 2 or 0.5"
        ) from None


def _chosen(curves: Curves, flags: dict[str, str | None], strategy: str) -> list[str]:
    """Say what was chosen for the user beside the batch and the sequence."""
    told: list[str] = []
    if flags["precision"] is None:
        precisions = sorted({curve.precision for curve in curves.curves})
        told.append(f"precision {', '.join(precisions)} (--precision)")
    if flags["stack"] is None:
        stacks = sorted({curve.stack for curve in curves.curves})
        told.append(f"software stack {', '.join(stacks)} (--stack)")
    labels = [each.strip().lower() for each in strategy.split(",")]
    if any("-mb" not in "-" + each and not each.startswith("best") for each in labels):
        told.append(
            "micro batch (mb): the largest that reaches the batch and fits the memory, where a "
            "strategy names none"
        )
    return told
