"""Money: hours times price."""

import numpy as np
import pytest

from scalewise.physics.cost import dollars, usd_per_token


def test_dollars_per_token():
    # 3.6 dollars an hour are a tenth of a cent per second.
    assert usd_per_token(3.6, 1000.0) == pytest.approx(1e-6)
    assert usd_per_token(2.95, 9000.0) * 1e6 == pytest.approx(0.0910494, rel=1e-6)


def test_dollars():
    assert dollars(2.0, 1024.0, 86400.0) == pytest.approx(49_152.0)


def test_arrays():
    assert usd_per_token(3.6, np.array([1e3, 1e4])).tolist() == pytest.approx([1e-6, 1e-7])
