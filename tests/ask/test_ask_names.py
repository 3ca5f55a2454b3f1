"""Names of the catalog, spelled as people do."""

import pytest

from scalewise.ask.names import find_name
from scalewise.errors import InputError


@pytest.mark.parametrize("kind", ["models", "clusters", "optimizers"])
@pytest.mark.parametrize("text", ["?", ".", "~", "混元", "--", " "])
def test_what_has_no_letter_or_digit_is_no_name(kind, text):
    with pytest.raises(InputError, match=r"unknown .*: it has no letter or digit"):
        find_name(kind, text, also="accelerators" if kind == "clusters" else None)


def test_names_are_found_by_their_letters():
    assert find_name("models", "llama 2 7b") == "llama-2-7b"
    assert find_name("clusters", "DGX_H100") == "dgx-h100"
