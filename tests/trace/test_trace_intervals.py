import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalewise.trace import intervals as module
from scalewise.trace.intervals import Intervals, merged, union

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30)


def collected(given_pairs, base=0.0):
    found = Intervals(base)
    for start, duration in given_pairs:
        found.add(base + start * 1e-3, duration * 1e-3)
    return found.spans()


def cells(given_pairs):
    """The nanoseconds that are covered, one by one."""
    return {t for start, duration in given_pairs for t in range(start, start + duration)}


def test_what_touches_is_one():
    spans = collected([(10, 5), (0, 4), (4, 2), (12, 1), (30, 1)])
    assert spans.starts.tolist() == [0, 10, 30]
    assert spans.ends.tolist() == [6, 15, 31]
    assert spans.length() == 12
    assert spans.length(5, 12) == 3
    assert spans.clipped(5, 12).starts.tolist() == [5, 10]


def test_nothing_covers_nothing():
    spans = merged()
    assert (spans.length(), spans.length(0, 9), spans.shared(spans)) == (0, 0, 0)
    assert union(spans, collected([(1, 2)])).length() == 2
    assert collected([(1, 2)]).shared(spans) == 0


def test_large_times_keep_nanoseconds():
    # As in traces: microseconds since 1970 leave a double no more than that.
    spans = collected([(0, 7), (8, 1)], base=4_458_676_522_690.0)
    assert spans.starts.tolist() == [0, 8]
    assert spans.length() == 8


@given(pairs, pairs, st.integers(0, 80), st.integers(0, 80))
def test_lengths_are_those_of_sets(one, other, low, high):
    low, high = min(low, high), max(low, high)
    a, b = collected(one), collected(other)
    x, y = cells(one), cells(other)
    window = set(range(low, high))
    assert a.length() == len(x)
    assert a.length(low, high) == len(x & window)
    assert a.shared(b) == b.shared(a) == len(x & y)
    assert union(a, b).length() == len(x | y)
    assert a.clipped(low, high).length() == len(x & window)
    assert (a.starts[1:] > a.ends[:-1]).all()


def test_folding_changes_nothing(monkeypatch):
    generator = np.random.default_rng(1)
    given_pairs = list(zip(generator.integers(0, 9000, 4000).tolist(),
                           generator.integers(0, 5, 4000).tolist(), strict=True))  # fmt: skip
    at_once = collected(given_pairs)
    monkeypatch.setattr(module, "FOLD", 7)
    folded = collected(given_pairs)
    assert folded.starts.tolist() == at_once.starts.tolist()
    assert folded.ends.tolist() == at_once.ends.tolist()
    assert folded.length() == len(cells(given_pairs))
