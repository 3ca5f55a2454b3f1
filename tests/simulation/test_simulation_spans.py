from scalewise.simulation.spans import outside, overlap, total, union


def test_union_joins_what_touches():
    assert union([(3, 4), (0, 2), (1, 3), (7, 7), (5, 6)]) == [(0, 4), (5, 6)]


def test_overlap_counts_what_both_have():
    assert overlap([(0, 2), (3, 4)], [(1, 3.5)]) == 1.5
    assert overlap([], [(0, 1)]) == 0.0


def test_outside_counts_once_what_runs_twice():
    assert outside([(0, 4), (1, 2)], [(3, 10)]) == 3.0
    assert total([(0, 1), (2, 5)]) == 4
