"""What is kept of a stream of strategies, with literal values and against brute force."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewise.explore.ranking import ParetoFront, Rows, TopK, candidates, nondominated, smallest
from scalewise.strategies import FIELDS, Strategies

# Few different values, so that there are ties; infinity stands for what cannot run.
VALUES = st.lists(st.sampled_from((1.0, 2.0, 2.5, 3.0, 7.0, np.inf)), max_size=30)
MICRO_BATCH = FIELDS.index("micro_batch")
POINTS = st.lists(st.tuples(*[st.integers(1, 6)] * 3), min_size=1, max_size=40)


def rows_of(*values, start=0):
    """Rows of one objective; the micro-batch says which row it was."""
    micro = np.arange(start, start + len(values)) + 1.0
    codes = np.ones((len(FIELDS), len(values)))
    codes[MICRO_BATCH] = micro
    return Rows(values=np.array([values], dtype=float), codes=codes)


def places(rows):
    return (rows.codes[MICRO_BATCH] - 1).astype(int).tolist()


def test_smallest_in_order_with_the_first_of_equals_first():
    values = np.array([5.0, 1.0, 3.0, 1.0, 2.0, np.inf])
    assert smallest(values, 3).tolist() == [1, 3, 4]
    assert smallest(values, 1).tolist() == [1]
    assert smallest(values, 10).tolist() == [1, 3, 4, 2, 0]
    assert smallest(values, 10, below=3.0).tolist() == [1, 3, 4]
    assert smallest(np.full(4, np.inf), 2).tolist() == []


@given(VALUES, st.integers(1, 12), st.sampled_from((2.0, 3.0, np.inf)))
def test_smallest_is_what_sorting_gives(values, maximum, below):
    wanted = sorted((v, place) for place, v in enumerate(values) if v < below)[:maximum]
    assert smallest(np.array(values), maximum, below).tolist() == [place for _, place in wanted]


def test_kept_holds_the_best_and_says_what_is_needed_to_get_in():
    kept = TopK(3)
    assert kept.bound == np.inf
    kept.add(rows_of(4.0, 2.0))
    assert kept.bound == np.inf
    kept.add(rows_of(3.0, 9.0, start=2))
    assert kept.rows.values.tolist() == [[2.0, 3.0, 4.0]]
    assert places(kept.rows) == [1, 2, 0]
    assert kept.bound == 4.0
    # An equal that comes later stays behind the one that was there.
    kept.add(rows_of(4.0, 2.0, start=4))
    assert kept.rows.values.tolist() == [[2.0, 2.0, 3.0]]
    assert places(kept.rows) == [1, 5, 2]
    kept.add(Rows.none())
    assert places(kept.rows) == [1, 5, 2]


@given(st.lists(VALUES, max_size=5), st.integers(1, 6))
def test_kept_of_many_pieces_is_kept_of_all(pieces, maximum):
    kept, start = TopK(maximum), 0
    for values in pieces:
        array = np.array(values, dtype=float)
        found = smallest(array, maximum, kept.bound)
        kept.add(rows_of(*values, start=start).take(found))
        start += len(values)
    joined = [v for values in pieces for v in values]
    wanted = sorted((v, place) for place, v in enumerate(joined) if v < np.inf)[:maximum]
    assert places(kept.rows) == [place for _, place in wanted]


def test_nondominated():
    # (2, 3) is beaten by (2, 2); of two equal points the first is enough.
    values = np.array([[1.0, 2.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.0, 3.0, 3.0]])
    assert nondominated(values).tolist() == [0, 1, 2]
    assert nondominated(np.array([[3.0, 1.0, 2.0]])).tolist() == [1]
    assert nondominated(np.zeros((2, 0))).tolist() == []


def front_by_hand(points):
    """Points that no other is at least as good as everywhere and better somewhere."""
    return {
        p
        for p in points
        if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    }


@given(POINTS)
def test_nondominated_is_the_front(points):
    found = nondominated(np.array(points, dtype=float).T)
    lines = [points[place] for place in found]
    assert set(lines) == front_by_hand(points)
    assert len(lines) == len(set(lines))


def test_candidates_leave_out_what_the_front_beats_and_what_cannot_run():
    values = np.array([[1.0, 2.0, 3.0, 0.5], [4.0, 1.0, 2.0, 0.5]])
    nobody = np.zeros((2, 0))
    assert candidates(values, np.array([0, 1, 2]), nobody).tolist() == [0, 1]
    assert candidates(values, np.array([0, 1, 2]), np.array([[1.5], [0.5]])).tolist() == [0]
    # As good as a point of the front is not enough: that one was there first.
    assert candidates(values, np.array([1]), np.array([[2.0], [1.0]])).tolist() == []
    assert candidates(values, np.array([], dtype=int), nobody).tolist() == []


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(65, 400))
def test_candidates_of_many_points_hold_the_front(seed, objectives, count):
    rng = np.random.default_rng(seed)
    points = rng.integers(1, 40, size=(objectives, count)).astype(float)
    feasible = np.flatnonzero(rng.random(count) < 0.8)
    found = candidates(points, feasible, np.zeros((objectives, 0)))
    assert set(found) <= set(feasible)
    answer = {tuple(points[:, place]) for place in found}
    assert answer == front_by_hand({tuple(points[:, place]) for place in feasible})


@given(POINTS, st.integers(1, 10))
def test_front_of_many_pieces_is_the_front_of_all(points, size):
    front = ParetoFront(3)
    for start in range(0, len(points), size):
        values = np.array(points[start : start + size], dtype=float).T
        rows = rows_of(*values[0], start=start)
        rows = Rows(values=values, codes=rows.codes)
        found = candidates(values, np.arange(values.shape[1]), front.rows.values)
        front.add(rows.take(found))
    assert set(map(tuple, front.rows.values.T)) == front_by_hand(points)
    assert [points[place] for place in places(front.rows)] == [
        tuple(point) for point in front.rows.values.T
    ]


def test_rows_of_a_product_are_strategies_again():
    columns = {name: np.ones((1, 1)) for name in FIELDS} | {"sharding": np.full((1, 1), 3.0)}
    columns |= {"tp": np.array([[1.0, 2.0, 4.0]]), "dp_shard": np.array([[8.0], [16.0]])}
    # Codes: schedule 1 is 1f1b, recompute 1 selective, cp_method 1 allgather.
    columns |= {name: np.zeros((1, 1)) for name in ("recompute", "cp_method", "precision")}
    columns |= {
        name: np.zeros((1, 1)) for name in ("compiled", "reduce_precision", "num_microbatches")
    }
    absent = (
        "first_stage_layers", "last_stage_layers", "recompute_modules", "attention_precision",
        "gather_precision", "backward_shard", "replica_sync", "hierarchical_gather", "reduce_each",
        "bucket_mb", "offload",
    )  # fmt: skip
    columns |= {name: np.zeros((1, 1)) for name in absent}
    piece = Strategies(columns)
    values = np.arange(6.0)[None]
    rows = Rows.of(values, piece, np.array([5, 1]))
    assert [str(s) for s in rows.strategies()] == ["fsdp16-tp4-mb1", "fsdp8-tp2-mb1"]
    assert rows.values.tolist() == [[5.0, 1.0]]
    both = rows.with_(Rows.of(values, piece, np.array([0])))
    assert [str(s) for s in both.strategies()][-1] == "fsdp8-mb1"
    assert both.values.tolist() == [[5.0, 1.0, 0.0]]
    assert Rows.none().strategies() == []


def test_every_pair_of_a_front_is_a_trade():
    rng = np.random.default_rng(7)
    points = rng.random((2, 300))
    found = points[:, nondominated(points)].T
    for (a, b), (c, d) in itertools.combinations(found.tolist(), 2):
        assert (a < c) == (b > d)
