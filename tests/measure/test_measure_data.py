# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

from scalewise.errors import InputError
from scalewise.measure.data import Synthetic, TextFile, batch, sequences_of


def test_targets_are_the_next_tokens():
    inputs, targets = batch(Synthetic(100, seed=0), step=2, sequences=[0, 3], length=16)
    assert inputs.shape == targets.shape == (2, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_each_token_follows_its_predecessor_closely():
    tokens = Synthetic(100, seed=0).seq_len(0, 0, 500)
    hops = (tokens[1:] - tokens[:-1]) % 100
    assert sorted(hops.unique().tolist()) == list(range(8))


@pytest.mark.parametrize("place", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_sequences_depend_on_seed_step_and_place(place):
    seed, step, index = place
    other = Synthetic(1000, seed).seq_len(step, index, 32)
    assert torch.equal(other, Synthetic(1000, seed).seq_len(step, index, 32))
    assert not torch.equal(other, Synthetic(1000, 0).seq_len(0, 0, 32))


@pytest.mark.parametrize(
    ("ranks", "micro_batch", "num_microbatches"), [(1, 8, 1), (2, 2, 2), (4, 1, 2)]
)
def test_ranks_share_the_batch_without_overlap(ranks, micro_batch, num_microbatches):
    parts = [
        sequences_of(r, ranks, micro_batch=micro_batch, num_microbatches=num_microbatches)
        for r in range(ranks)
    ]
    assert sorted(i for part in parts for i in part) == list(range(8))


def test_text_is_read_as_bytes(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"abcdefghij" * 10)
    tokens = TextFile(str(file), 256, 0, 20).seq_len(0, 0, 21)
    text = bytes(tokens.tolist())
    assert text in b"abcdefghij" * 10
    assert len(text) == 21


@pytest.mark.parametrize(
    ("size", "vocab", "said"),
    [
        (10, 256, "has 10 bytes, fewer than one sequence of 20 + 1"),
        (100, 255, "a vocabulary of 255 has no room for the 256 bytes of a text file"),
    ],
)
def test_text_that_will_not_do_is_refused(tmp_path, size, vocab, said):
    file = tmp_path / "text"
    file.write_bytes(b"x" * size)
    with pytest.raises(InputError, match=said.replace("+", r"\+")):
        TextFile(str(file), vocab, 0, 20)
