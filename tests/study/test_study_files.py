import re

import msgspec
import pytest
from studies import CASES, SMALL

from scalewise.errors import InputError
from scalewise.study.files import load_study, read_study, shipped
from scalewise.study.plan import plan, points_of
from scalewise.study.template import new_study


def test_defaults_fill_what_an_experiment_does_not_say():
    study = read_study(SMALL, name="small")
    assert [each.id for each in study.experiments] == ["weak", "rings", "buy"]
    assert study.name == "small"
    assert study.experiments[2].models == ("llama-2-7b",)
    assert study.experiments[0].sizes == [128, 2048]
    assert study.text == SMALL


def test_the_table_shows_what_figures_and_claims_use():
    weak = read_study(SMALL).experiments[0]
    assert weak.shown == ("tokens_per_second_per_accelerator", "mfu")


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("question =", "qestion =", "study: unknown key `qestion`", "`question`"),
        ("strategies =", "strategy =", "study: experiment weak: unknown key `strategy`",
         "`strategies`"),
        ("caption =", "captain =", "study: experiment weak: figures 1: unknown key `captain`",
         "`caption`"),
        ("why =", "wy =", "study: experiment weak: claims 1: unknown key `wy`", "`why`"),
        ("stacks =", "stack =", "study: defaults: unknown key `stack`", "`stacks`"),
        ('"mfu"]', '"mfuu"]', "study: experiment weak: unknown metric `mfuu`", "`mfu`"),
        ('x = "nodes"', 'x = "node"', "study: experiment rings: unknown axis `node`",
         "`nodes`"),
        ("where = {strategy", "where = {strategie", "experiment weak: unknown axis `strategie`",
         "`strategy`"),
        ('x = "nodes"', 'x = "nodes"\nkind = "map"', "experiment rings: a figure of kind map needs",
         "series"),
        ('id = "rings"', 'id = "weak"', "experiment weak: the id must be its own", "weak-scaling"),
        ("published = -0.3722", "", "needs one of published, at_least and at_most", "one of the"),
        ('measure = "change"', 'measure = "chance"', "Invalid enum value 'chance'", "study new"),
        ('clusters = ["dgx-h100"]', "", "experiment weak: `clusters` is missing", "at least one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(old, new, message, hint):
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        read_study(SMALL.replace(old, new, 1))
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('scaling = "strong"', 'scalling = "strong"', "case fixed batch: `scalling` cannot be",
         "`scaling`"),
        ('best_over = ["strategy", "tp"]', "sizes = [8]", "case swept: `sizes` cannot be", ""),
        ("sizes = [128, 1024, 2048]", 'sizes = [128]\nbest_over = ["model"]',
         "best_over: model is not part of a strategy", "strategy, tp, pp or cp"),
        ("band = {variant =", "band = {stack = [1], variant =", "a band has one axis", "variant"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_cases_is_named(old, new, message, hint):
    assert old in CASES
    with pytest.raises(InputError) as caught:
        read_study(CASES.replace(old, new, 1))
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_no_toml_and_no_experiment():
    with pytest.raises(InputError, match="is not valid TOML"):
        read_study("title = ")
    with pytest.raises(InputError, match="missing required field `experiment`"):
        read_study('title = "x"')


def test_unknown_names_and_files():
    with pytest.raises(InputError, match="there is no study `hardware-scaling`") as caught:
        load_study("hardware-scaling")
    assert "`hardware-scaling-trends`" in caught.value.hint
    with pytest.raises(InputError, match="there is no file nowhere"):
        load_study("nowhere.toml")


def test_shipped_ones_are_listed_and_own_ones_come_first(tmp_path, monkeypatch):
    assert shipped() == [
        "compare-clusters", "hardware-scaling-trends", "moe-scaling", "scaling-on-this-machine",
        "what-to-buy",
    ]  # fmt: skip
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "what-to-buy.toml").write_text(SMALL)
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    assert load_study("what-to-buy").title == "Small"


def test_the_papers_study_is_complete():
    study = load_study("hardware-scaling-trends")
    numbers = [each.title.partition(".")[0].rstrip("b") for each in study.experiments]
    assert sorted(set(map(int, numbers))) == list(range(1, 14))
    for each in study.experiments:
        assert each.figures, each.id
        for claim in each.claims:
            assert "arXiv" in claim.source
        for point in each.published:
            assert point.source


def test_the_template_loads_and_explains_every_key():
    text = new_study("mine")
    study = read_study(text)
    assert study.experiments[0].strategies == ("fsdp", "hsdp64", "best")
    for key in ("batch_tokens", "algorithms", "precisions", "relative_to", "tolerance", "log_y"):
        assert f"# {key} =" in text
    # Every key stands under its own explanation.
    lines = text.splitlines()
    assert lines[lines.index("# reoptimize = false") - 1].startswith("# Kind sensitivity")
    assert "One of: weak, strong." in text
    assert max(map(len, lines)) <= 100


def test_the_templates_comments_can_be_uncommented():
    text = new_study("mine")
    start = text.index("# [[experiment.variants]]")
    end = text.index("# Axes, for x")
    lines = text[start:end].splitlines()
    body = [line[2:] for line in lines if re.match(r"# (\w+ = |\[\[)", line)]
    study = read_study(text[:start] + "\n".join(body))
    experiment = study.experiments[0]
    assert experiment.variants[0].set == {"scale_out_bandwidth": "800Gbit/s"}
    assert experiment.published[0].value == 0.4
    assert experiment.claims[0].at_least == 0.35


def test_more_points_than_can_be_run_are_refused_before_any_is_made():
    experiment = read_study(SMALL).experiments[0]
    huge = msgspec.structs.replace(
        experiment, tp=tuple(range(1, 1001)), sequences=tuple(range(1, 1001))
    )
    with pytest.raises(InputError, match=r"its axes make up to [\d,]+ points, more than 100,000"):
        plan(huge)
    for each in load_study("hardware-scaling-trends").experiments:
        assert len(plan(each)) <= points_of(each) <= 2 * len(plan(each))
