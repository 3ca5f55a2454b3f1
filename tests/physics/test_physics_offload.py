"""Offload: rates against published ones, and overlap of copies."""

import numpy as np
import pytest

from scalewise.physics.offload import (
    UPDATE_BYTES,
    cpu_update_rate,
    exposed_copy,
    link_rate,
)
from scalewise.physics.optimizer import update_bytes

pytestmark = pytest.mark.physics

# ZeRO-Offload (arXiv 2101.06840), table 4: CPU-Adam on two Xeon 8168 (48 cores, 12 channels of
# DDR4-2666, 256 GB/s), billions of parameters and seconds.
PUBLISHED = ((1, 0.22), (2, 0.51), (4, 1.03), (8, 2.41), (10, 2.57))


def test_an_update_moves_what_adamw_moves():
    assert update_bytes(8.0, 4.0) == UPDATE_BYTES == 30.0


@pytest.mark.parametrize(("billions", "seconds"), PUBLISHED)
def test_updates_take_as_long_as_published(billions, seconds):
    predicted = billions * 1e9 * UPDATE_BYTES / float(cpu_update_rate(255.9e9, 48.0))
    assert predicted == pytest.approx(seconds, rel=0.16)


def test_few_cores_bound_the_update():
    assert float(cpu_update_rate(614.4e9, 112.0)) == pytest.approx(282.6e9, rel=1e-3)
    assert float(cpu_update_rate(614.4e9, 4.0)) == 48e9


def test_copies_are_bound_by_the_link_or_the_memory_of_the_host():
    # PCIe 5.0 x16: NVIDIA measures 55.63 GB/s.
    assert float(link_rate(63e9, 614.4e9, 8.0)) == pytest.approx(55.63e9, rel=0.01)
    # Two GPUs of a Grace share 512 GB/s of LPDDR5X.
    assert float(link_rate(225e9, 512e9, 2.0)) == pytest.approx(198e9)
    assert float(link_rate(450e9, 512e9, 2.0)) == pytest.approx(204.8e9)


def test_exposed_copies_are_the_last_or_what_outlasts_the_rest():
    copy = np.array([3.0, 3.0, 3.0])
    assert exposed_copy(copy, 0.5, np.array([0.0, 2.0, 9.0])).tolist() == [3.0, 1.0, 0.5]
