"""The tables of terms and parts of memory: complete, in order, told apart."""

import re
from dataclasses import fields

import pytest

from scalewise.physics.power import DRAW
from scalewise.step.memory import MemoryParts
from scalewise.step.terms import CommTime, Terms
from scalewise.terms import COLORS, EXPOSED, GROUPS, MEMORY_PARTS, TERMS


def names(table):
    return [field.name for field in fields(table)]


def test_every_term_is_in_the_table_in_order():
    assert list(TERMS) == names(Terms)
    assert [term.key for term in TERMS.values()] == list(TERMS)


def test_every_part_of_memory_is_in_the_table_in_order():
    assert list(MEMORY_PARTS) == names(MemoryParts)
    assert [part.key for part in MEMORY_PARTS.values()] == list(MEMORY_PARTS)


def test_every_group_is_communication_of_a_step():
    assert list(GROUPS) == names(CommTime)
    assert {term.group for term in TERMS.values()} - {""} == set(GROUPS)


def test_exposed_terms_by_group():
    assert list(EXPOSED) == list(GROUPS)
    for group, keys in EXPOSED.items():
        assert keys
        assert all(TERMS[key].group == group for key in keys)
        assert all(TERMS[key].kind == "communication" for key in keys)


@pytest.mark.parametrize("table", [TERMS, MEMORY_PARTS], ids=["terms", "memory"])
def test_colors_and_labels_are_distinct(table):
    colors = [row.color for row in table.values()]
    assert all(re.fullmatch(r"#[0-9A-F]{6}", color) for color in colors)
    assert len(set(colors)) == len(colors)
    labels = [row.label for row in table.values()]
    assert all(labels)
    assert len(set(labels)) == len(labels)


def test_every_kind_has_a_color():
    assert {term.kind for term in TERMS.values()} == set(COLORS)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", color) for color in COLORS.values())
    assert len(set(COLORS.values())) == len(COLORS)


def test_every_activity_draws_power():
    assert {term.activity for term in TERMS.values()} == set(DRAW)


def test_useful_terms_are_compute_that_nothing_avoids():
    for term in TERMS.values():
        if term.useful:
            assert term.kind == "compute"
            assert not term.avoidable
