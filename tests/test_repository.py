"""Files beside the code agree with it: constraints, markers, workflow, issue forms, citation."""

import re
import tomllib
from pathlib import Path

import pytest

import scalewise

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name):
    """Exact versions of a constraint file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text, flags=re.MULTILINE))


def bounds(requirements):
    """Lower bounds by package."""
    return dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(requirements), flags=re.MULTILINE))


def padded(version):
    return tuple(int(part) for part in [*version.split("."), "0", "0"][:3])


def test_oldest_versions_are_the_lower_bounds():
    oldest = {name: padded(version) for name, version in pins("constraints-oldest.txt").items()}
    required = bounds(PROJECT["dependencies"])
    assert set(required) == {"numpy", "msgspec", "click", "rich"}
    assert oldest == {name: padded(version) for name, version in required.items()}


def test_tested_versions_are_within_the_bounds():
    tested = pins("constraints.txt") | pins("constraints-newest.txt")
    extras = [text for name in PROJECT["optional-dependencies"].values() for text in name]
    allowed = bounds([*PROJECT["dependencies"], *extras])
    assert {"numpy", "msgspec", "click", "rich", "torch"} <= set(tested) & set(allowed)
    for name in set(tested) & set(allowed):
        assert padded(tested[name]) >= padded(allowed[name]), name


def test_torch_is_pinned_everywhere():
    for name in ("constraints.txt", "constraints-oldest.txt"):
        assert "-c constraints-newest.txt\n" in (ROOT / name).read_text(encoding="utf-8")
    assert pins("constraints-newest.txt")["torch"] == "2.13.0"


def test_every_marker_is_registered_once():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    markers = [text.partition(":")[0] for text in options["ini_options"]["markers"]]
    assert markers == ["physics", "slow", "browser", "slurm", "frameworks", "torch"]


def test_slow_tests_exist():
    """Entries of SLOW in tests/conftest.py that match no test would silently do nothing."""
    text = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    entries = re.findall(r'"([\w/]+\.py)(?:::(\w+))?",', text.partition("SLOW = (")[2])
    assert len(entries) >= 10
    for name, test in entries:
        source = (ROOT / "tests" / name).read_text(encoding="utf-8")
        assert f"def {test or 'test_'}" in source, name


def documents(*patterns):
    """YAML files by name."""
    yaml = pytest.importorskip("yaml")
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}


def test_citation_has_the_version_and_the_license():
    citation = documents("CITATION.cff")["CITATION.cff"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == scalewise.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert {"message", "title", "type", "abstract"} <= set(citation)


def test_workflow_runs_everything_on_every_supported_python():
    jobs = documents(".github/workflows/*.yml")["ci.yml"]["jobs"]
    pythons = jobs["check"]["strategy"]["matrix"]["python"]
    assert [f"Programming Language :: Python :: {v}" for v in pythons] == [
        c for c in PROJECT["classifiers"] if "Python :: 3." in c
    ]
    assert jobs["check"]["steps"][-1]["run"] == "bash .ci/run"
    tested = {row["versions"] for row in jobs["dependencies"]["strategy"]["matrix"]["include"]}
    assert all((ROOT / f"constraints-{name}.txt").is_file() for name in tested)
    assert tested == {"oldest", "newest"}


def test_issue_forms_are_complete():
    forms = documents(".github/ISSUE_TEMPLATE/*.yml")
    assert forms.pop("config.yml")["blank_issues_enabled"] is True
    assert sorted(forms) == ["bug.yml", "feature.yml", "wrong-prediction.yml"]
    for form in forms.values():
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert {"name", "description", "labels"} <= set(form)
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)
