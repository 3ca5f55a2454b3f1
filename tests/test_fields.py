import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.fields import field_docs, replace


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate."""

    name: str
    """Its
    name."""
    value: float = 0.5
    """Fraction, 0 to 1."""

    def __post_init__(self):
        if not 0 <= self.value <= 1:
            raise InputError(f"value = {self.value:g} must be 0 to 1")


def test_docstrings_of_fields():
    assert field_docs(Rate) == {"name": "Its name.", "value": "Fraction, 0 to 1."}


def test_replace_keeps_the_other_fields():
    assert replace(Rate(name="a"), value=0.75) == Rate(name="a", value=0.75)


def test_replace_checks_bounds_under_every_version_of_msgspec():
    with pytest.raises(InputError, match=r"value = 1\.5 must be 0 to 1"):
        replace(Rate(name="a"), value=1.5)


def test_a_changed_cluster_is_checked():
    cluster = load_cluster("dgx-h100", 16)
    with pytest.raises(InputError, match=r"pue = 0\.9 must be at least 1"):
        cluster.with_(pue=0.9)
    assert cluster.with_(pue=1.3).fabric is cluster.fabric
