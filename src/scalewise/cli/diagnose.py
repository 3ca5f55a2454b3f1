"""`scalewise diagnose`: from a measured number to ranked causes.

    scalewise diagnose llama-3-8b --on h100 --gpus 32 --strategy fsdp32-mb1 --measured "1,786 tok/s"
    scalewise diagnose llama-3-8b --on h100 --strategy fsdp-mb1 --measured 8=7000,32=1786
    scalewise diagnose llama-3-8b --on h100 --gpus 32 --strategy fsdp32-mb1 --from traces/
    scalewise diagnose ... --measured "31% MFU" --profile compute=0.62,exposed=0.30,idle=0.08
    scalewise diagnose llama-3-8b --on h100 --gpus 32 --strategy fsdp32-mb1 --from train.log
    scalewise diagnose train.log --on h100

Exit code 0: answered; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from scalewise.cli.answer import answer_options
from scalewise.cli.estimate import CONVENTIONS
from scalewise.cli.options import complete, question_options

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.cli.answer import Answer
    from scalewise.model import Convention


@click.command(short_help="Rank the causes of a slow run by a measured number.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Log of the run or its folder, export of its metrics (.csv, .jsonl; FILE:COLUMN=tok/s "
    "names a column), configuration, profiler trace (one or several ranks), or table of runs; "
    "8=FILE for a run on 8 GPUs. Repeatable.",
)
@click.option(
    "--measured",
    multiple=True,
    metavar="X",
    help="Measured number: 1786 tok/s (per GPU), 57152 tok/s total, 41% MFU, 0.86 s/step, "
    "864 ms or 407 TFLOP/s; or several by GPUs or strategy, such as 8=7000,32=1786. Repeatable.",
)
@click.option(
    "--profile",
    metavar="PARTS",
    help="Fractions of a step in a profile: compute=0.62,exposed=0.30,idle=0.08.",
)
@click.option(
    "--nccl",
    metavar="RATE",
    help="Bus bandwidth of nccl-tests between two nodes, per node, such as 3.2GB/s.",
)
@click.option(
    "--convention",
    "--mfu-convention",
    type=click.Choice(CONVENTIONS),
    default="causal",
    show_default=True,
    help="Convention by which the FLOPs of a measured MFU or TFLOP/s are counted.",
)
@click.option(
    "--software-differs",
    is_flag=True,
    help="Runs with software of their own each: they share no level.",
)
@answer_options()
@question_options(partial=True)
def diagnose(
    words: dict[str, Any],
    sources: tuple[str, ...],
    measured: tuple[str, ...],
    profile: str | None,
    nccl: str | None,
    convention: str,
    *,
    software_differs: bool,
    answer: Answer,
) -> int:
    """Rank what may explain a measured throughput of MODEL, and name the test that decides.

    MODEL may be a log that states its model. The flags describe the run that was measured. Odds
    follow from the prediction, its interval and a list of causes; one measurement more, such as
    another size, a profile or nccl-tests, makes them sharper.
    """
    from scalewise.diagnosis.answer import diagnose as diagnosed
    from scalewise.diagnosis.evidence import Evidence, parse_node_rate, parse_profile
    from scalewise.diagnosis.measured import parse_measured
    from scalewise.diagnosis.sources import diagnose_found, from_sources, names_source

    if names_source(str(words.get("model", ""))):
        sources = (str(words.pop("model")), *sources)
    evidence = Evidence(
        profile=None if profile is None else parse_profile(profile),
        node_rate=None if nccl is None else parse_node_rate(nccl),
    )
    counted = cast("Convention", convention)
    if sources:
        given = parse_measured(measured) if measured else ()
        read = from_sources(sources, words, given, convention=counted)
        found = diagnose_found(read, evidence, apart=software_differs)
    else:
        found = diagnosed(
            complete(words), parse_measured(measured), evidence=evidence, convention=counted,
            apart=software_differs,
        )  # fmt: skip

    def file(ending: str) -> bytes:
        from scalewise.report.diagnose_figure import diagnose_file

        return diagnose_file(found, ending)

    def data() -> object:
        from scalewise.report.diagnose_figure import diagnose_dict

        return diagnose_dict(found)

    def table(console: Console) -> None:
        from scalewise.report.diagnose_table import print_diagnosis

        print_diagnosis(found, console)

    answer.give(file=file, data=data, table=table)
    return 0
