"""Memory follows the number of gaps between kernels, not the size of the file."""

import gzip
import json
import subprocess
import sys

import pytest

import toy_traces as toy

MEGABYTE = 1_000_000

# The peak is that of a process of its own, measured from after the imports.
READER = """
import resource, sys
from scalewise.trace.read import read_trace
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = read_trace(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 / 1e6, found.ranks[0].events, found.overlap_pct, found.window_seconds)
"""

# One millisecond of a GPU: 30 operators and kernels with wide arguments, one collective. The
# kernels of a millisecond overlap or have gaps; those of two milliseconds never touch.
SHAPES = {
    "Input Dims": [[2, 4096, 4096], [4096, 11008]],
    "Input Strides": [[16777216, 4096, 1]] * 2,
}
MILLISECOND = [
    *(toy.operator(30 * n, 25) | {"args": SHAPES} for n in range(30)),
    *(toy.kernel(30 * n + 10, 20 + n % 2 * 10, grid=[132, 1, 1], **SHAPES) for n in range(30)),
    toy.all_gather(100, 700, **{"External id": 5}),
]


def write(path, size):
    """Repeat the millisecond, each time later, until the file has `size` bytes."""
    # Every start is written as an offset, and a constant is put before it: "ts": 1234 + 0090.
    parts = [json.dumps(event | {"ts": f"@{event['ts']:03d}"}, indent=2) for event in MILLISECOND]
    block = ",\n".join(parts).replace('"@', "1@").replace('",\n  "dur"', ',\n  "dur"')
    count = size // len(block) + 1
    zipped = path.suffix == ".gz"
    with gzip.open(path, "wt", compresslevel=1) if zipped else path.open("w") as file:
        file.write('{"traceEvents": [\n')
        for number in range(count):
            file.write(("," if number else "") + block.replace("1@", f"1{number:07d}"))
        file.write("]}")
    return count


def peak(path):
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=True
    )
    return tuple(map(float, done.stdout.split()))


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_four_times_the_file_is_not_four_times_the_memory(tmp_path):
    peaks = []
    for size in (55 * MEGABYTE, 220 * MEGABYTE):
        path = tmp_path / "trace.json"
        count = write(path, size)
        assert path.stat().st_size >= size
        grown, events, overlap, window = peak(path)
        path.unlink()
        assert events == 61 * count
        # Kernels leave 30-40, 90-100, ... free: 11 times 10 us of the collective's 100-800.
        assert window == pytest.approx(count * 1e-3, rel=1e-3)
        assert overlap == pytest.approx(100 * 590 / 700)
        peaks.append(grown)
    assert peaks[1] < 100
    assert peaks[1] - peaks[0] < 30


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_compressed_files_are_not_unpacked_as_a_whole(tmp_path):
    path = tmp_path / "trace.json.gz"
    write(path, 60 * MEGABYTE)
    assert path.stat().st_size < 6 * MEGABYTE
    assert peak(path)[0] < 60
