"""Perfetto's trace processor, one process for all tests of traces."""

import pytest

from perfetto_wasm import Bridge


@pytest.fixture(scope="session")
def perfetto():
    with Bridge() as bridge:
        yield bridge
