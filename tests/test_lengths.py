"""Lengths of documents: their means, the longest of several, and how they fill sequences."""

import numpy as np
import pytest

from scalewise.errors import InputError
from scalewise.lengths import (
    BATCHINGS,
    BINS,
    filled,
    is_lengths_file,
    padded_length,
    padded_square,
    read_lengths,
)
from scalewise.model import load_model
from toys import toy_model


def test_words_of_lengths():
    assert read_lengths("600").tokens == (600.0,)
    assert read_lengths(" 4k ").tokens == (4000.0,)
    assert read_lengths("600..600").tokens == (600.0,)
    uniform = read_lengths("100..2000")
    assert len(uniform.tokens) == BINS
    assert uniform.mean == 1050.0
    # (b^3 - a^3) / 3 (b - a)
    assert np.mean(np.square(uniform.tokens)) == pytest.approx(1_403_333.33, rel=1e-6)


def test_a_lognormal_distribution_has_its_mean_and_its_square():
    tokens = read_lengths("lognormal:mean=600,sigma=0.8").tokens
    assert np.mean(tokens) == pytest.approx(600.0, rel=1e-9)
    # E[l^2] = mean^2 exp(sigma^2); bins cut the end of the tail.
    assert np.mean(np.square(tokens)) == pytest.approx(600.0**2 * np.exp(0.64), rel=0.01)
    assert list(tokens) == sorted(tokens)


def test_a_file_of_lengths(tmp_path):
    table = tmp_path / "lengths.csv"
    table.write_text("length,id\n300,a\n100,b\n\n200,c\n")
    lengths = read_lengths(str(table))
    assert lengths.tokens == (100.0, 200.0, 300.0)
    long = tmp_path / "long.txt"
    long.write_text("\n".join(str(1 + i % 1000) for i in range(100_000)))
    assert len(read_lengths(str(long)).tokens) == BINS
    assert read_lengths(str(long)).mean == pytest.approx(500.5, rel=1e-9)
    assert is_lengths_file("lengths.csv")
    assert is_lengths_file("/etc/passwd")
    assert not is_lengths_file("100..2000")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lengths = : nothing is not a number of tokens"),
        ("many", "lengths = many: many is not a number of tokens"),
        ("0", "lengths = 0: lengths must be between 1 and 134,217,728"),
        ("100..", "lengths = 100..: nothing is not a number of tokens"),
        ("200..100", "lengths = 200..100: the range ends below its start"),
        ("lognormal:mean=600", "a lognormal distribution has a mean and a sigma"),
        ("lognormal:mean=600,sigma=9", "sigma must be above 0 and at most 4"),
        ("lognormal:mean=600,sigma=x", "sigma must be above 0 and at most 4"),
        ("nowhere.csv", "lengths = nowhere.csv: no such text file"),
    ],
)
def test_wrong_lengths_are_refused(text, message):
    with pytest.raises(InputError, match="lengths = ") as raised:
        read_lengths(text)
    assert message in str(raised.value)
    assert "100..2000" in raised.value.hint


def test_a_wrong_line_of_a_file_is_named(tmp_path):
    for text, message in (
        ("12\nx\n", "line 2 is not a number"),
        ("12\n0\n", "line 2 is not between 1 and 134,217,728"),
        ("length\n", "it has no lengths"),
    ):
        file = tmp_path / f"{len(message)}.csv"
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_lengths(str(file))


@pytest.mark.parametrize(
    ("draws", "expected"),
    # k / (k + 1) of a uniform distribution from 0; here it starts at 1.
    [(1, 1500.5), (2, 1 + 2999 * 2 / 3), (4, 1 + 2999 * 4 / 5), (64, 1 + 2999 * 64 / 65)],
)
def test_longest_of_several_uniform_lengths(draws, expected):
    assert read_lengths("1..3000").longest_of(draws) == pytest.approx(expected, rel=1e-3)


def test_longest_of_a_pair():
    # Of 1 and 3: three of four pairs hold a 3.
    pair = read_lengths("600").up_to(400)
    assert pair.tokens == (400.0,)
    two = type(pair)(text="", tokens=(1.0, 3.0))
    assert two.longest_of(2.0) == 0.25 * 1 + 0.75 * 3
    assert two.longest_of(2.0, 2) == 0.25 * 1 + 0.75 * 9


def test_ranks_wait_for_the_longest_document():
    two = type(read_lengths("600"))(text="", tokens=(1.0, 3.0))
    one = np.array([1.0])
    assert padded_length(two, one, one, one)[0] == 2.0
    # Two ranks that wait for each other at every micro-batch, or after every fourth.
    assert padded_length(two, one, 2.0 * one, one)[0] == 2.5
    assert padded_length(two, one, 2.0 * one, 4.0 * one)[0] == 2.25
    assert padded_square(two, one, 2.0 * one, one)[0] == 7.0


@pytest.mark.parametrize(
    ("text", "batching", "useful"),
    [
        # Six documents in a sequence of 4,096.
        ("600", "packed", 3600 / 4096),
        ("2049", "packed", 2049 / 4096),
        # Two pieces of 4,096 and a rest of 1,808, of which two share a sequence.
        ("10000", "packed", 10_000 / (2.5 * 4096)),
        ("4096", "packed", 1.0),
        ("8192", "packed", 1.0),
        ("600", "padded", 600 / 4096),
        ("600", "bucketed", 600 / 4096),
        ("10000", "padded", 1.0),
        # Uniform from 1 to 8191 cut at 4096: half of them are whole.
        ("1..8191", "padded", 0.75),
    ],
)
def test_useful_fraction(text, batching, useful):
    assert filled(text, batching, 4096).useful == pytest.approx(useful, rel=1e-3)


def test_documents_of_many_lengths_leave_almost_no_room():
    for text in ("100..2000", "lognormal:mean=600,sigma=0.8", "lognormal:mean=2000,sigma=1.2"):
        assert 0.999 < filled(text, "packed", 4096).useful <= 1.0


def test_span_is_the_mean_of_squares_over_twice_the_mean():
    model = toy_model()
    assert filled("600", "packed", 4096).span(model) == 300.0
    # E[l^2] / 2 E[l] = 1403333 / 2100 of a uniform distribution from 100 to 2000.
    assert filled("100..2000", "packed", 4096).span(model) == pytest.approx(668.254, rel=1e-5)
    assert filled("100..2000", "packed", 4096).document == pytest.approx(1336.508, rel=1e-5)
    # Cut to 4,096: pieces of 4,096, 4,096 and 1,808.
    squares = 2 * 4096**2 + 1808**2
    assert filled("10000", "packed", 4096).span(model) == pytest.approx(squares / 20_000)


def test_windows_shorten_the_span_of_documents_too():
    model = toy_model(window=128, windowed_layers=4)
    # w - w^2 / 2 l
    assert filled("600", "packed", 4096).span(model) == pytest.approx(128 - 128**2 / 1200)


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("name", ["llama-3-8b", "mistral-7b", "gpt-oss-20b"])
def test_documents_as_long_as_the_sequence_change_nothing(name, batching):
    model = load_model(name)
    for seq_len in (1, 1000, 4096, 131_072):
        found = filled(str(seq_len), batching, seq_len)
        assert (found.useful, found.document) == (1.0, float(seq_len))
        assert found.span(model) == model.attention_span(seq_len)
