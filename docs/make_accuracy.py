"""Accuracy in the README and in docs/accuracy.md, as `scalewise validate --markdown` prints it.

    python docs/make_accuracy.py

Run it after every fit: a test compares both files with the command.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from scalewise.evidence.runs import read_runs
from scalewise.evidence.validate import validate
from scalewise.report.validate_markdown import (
    accuracy_paragraph,
    accuracy_tables,
    expert_tables,
)

if TYPE_CHECKING:
    from scalewise.evidence.validate import Validation

ROOT = Path(__file__).resolve().parents[1]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "accuracy.md"


def with_paragraph(readme: str, result: Validation) -> str:
    """Return the README with the errors of now in its paragraph of accuracy."""
    text = accuracy_paragraph(result)
    return re.sub(r"^\*\*Accuracy\.\*\*.*?(?=\n\n)", lambda _: text, readme, flags=re.M | re.S)


def with_tables(page: str, result: Validation) -> str:
    """Return the page with the tables of now, dense and of experts, between their marks."""
    for mark, tables in (("validate", accuracy_tables), ("experts", expert_tables)):
        text = f"<!-- {mark} -->\n\n{tables(result)}\n\n<!-- end -->"
        page = re.sub(
            rf"<!-- {mark} -->.*?<!-- end -->", lambda _, text=text: text, page, flags=re.S
        )
    return page


if __name__ == "__main__":
    now = validate(read_runs())
    for path, rewritten in ((README, with_paragraph), (PAGE, with_tables)):
        path.write_text(rewritten(path.read_text(encoding="utf-8"), now), encoding="utf-8")
