# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
import msgspec
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

from measure_jobs import SMALL, TIED
from scalewise.catalog import names
from scalewise.measure.check import stage_bounds
from scalewise.measure.decoder import Decoder, loss_of, materialize, rotary_angles, rotate
from scalewise.model import load_model

# One of each kind of block in the catalog, and the three that are made to be measured.
KINDS = (
    "tiny", "tiny-19m", "tiny-65m", "llama-2-7b", "llama-3-8b", "llama-3.2-1b", "gpt2",
    "gemma-2-9b", "gemma-3-4b", "qwen2.5-7b", "qwen3-8b", "olmo-2-7b", "palm-540b",
    "pythia-1.4b", "falcon-7b", "phi-3-mini", "mpt-7b", "starcoder2-7b", "opt-1.3b",
    "nemotron4-15b", "mixtral-8x7b", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "llama-4-maverick",
)  # fmt: skip


def built(model, seq_len=32, seed=0, **stage):
    with torch.device("meta"):
        decoder = Decoder(model, seq_len=seq_len, **stage)
    materialize(decoder, "", device=torch.device("cpu"), seed=seed)
    decoder.tie()
    return decoder


def distinct(module):
    return sum(p.numel() for p in dict.fromkeys(module.parameters()))


@pytest.mark.parametrize("name", KINDS)
def test_parameters_are_those_of_the_model(name):
    model = load_model(name)
    with torch.device("meta"):
        decoder = Decoder(model, seq_len=128)
    assert distinct(decoder) == model.parameters


def test_every_model_of_the_catalog_without_latent_attention_can_be_built():
    """Two layers of each: their number is the only thing that differs from the whole."""
    for name in names("models"):
        model = load_model(name)
        if model.mla or model.attention_sinks:
            continue
        windowed = min(2, model.windowed_layers)
        moe = model.moe and msgspec.structs.replace(
            model.moe, layers=1 if model.dense_layers else 2
        )
        short = msgspec.structs.replace(model, layers=2, windowed_layers=windowed, moe=moe)
        with torch.device("meta"):
            assert distinct(Decoder(short, seq_len=128)) == short.parameters, name


def test_small_has_the_counted_parameters():
    # Twice 256 x 64; four layers of 64 x (64 + 32 + 32 + 64) + 3 x 64 x 128 + 2 norms; a norm.
    assert distinct(built(SMALL)) == 2 * 16_384 + 4 * (12_288 + 24_576 + 128) + 64 == 180_800
    assert distinct(built(TIED)) == 180_800 - 16_384


def test_later_tokens_do_not_change_earlier_logits():
    decoder = built(SMALL)
    tokens = torch.arange(32)[None]
    changed = tokens.clone()
    changed[0, 20] = 200
    with torch.no_grad():
        difference = (decoder(tokens) - decoder(changed)).abs().amax(dim=(0, 2))
    assert difference[:20].max() < 1e-6
    assert difference[20:].min() > 1e-4


def test_order_of_tokens_matters():
    """Without rotary angles attention to the first two tokens would not know which came first."""
    decoder = built(SMALL, seq_len=3)
    with torch.no_grad():
        for parameter in decoder.layers.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10.0)
        a = decoder(torch.tensor([[5, 9, 7]]))
        b = decoder(torch.tensor([[9, 5, 7]]))
    assert (a[0, 2] - b[0, 2]).abs().max() > 1e-3


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    cos, sin = rotary_angles(16, 64, "cpu")
    x = torch.randn(1, 64, 1, 16, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, cos, sin)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    same = x[:, :1].expand(1, 64, 1, 16)
    turned = rotate(same, cos, sin)[0, :, 0]
    torch.testing.assert_close(turned[3] @ turned[10], turned[43] @ turned[50])


def test_stages_put_together_are_the_model():
    tokens = torch.arange(64).view(2, 32)
    bounds = stage_bounds(4, 2, None, None)
    first = built(SMALL, layers=bounds[0], last=False)
    second = built(SMALL, layers=bounds[1], first=False)
    with torch.no_grad():
        torch.testing.assert_close(second(first(tokens)), built(SMALL)(tokens), rtol=0, atol=0)


def test_selective_recompute_changes_nothing_but_memory():
    tokens = torch.arange(64).view(2, 32)
    grads = []
    for recomputed in (False, True):
        decoder = built(SMALL)
        for block in decoder.layers.values():
            block.attention.recomputed = recomputed
        loss_of(decoder(tokens), tokens).backward()
        grads.append([p.grad for p in decoder.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_weights_depend_on_seed_and_name():
    a, b, c = built(SMALL), built(SMALL), built(SMALL, seed=1)
    assert torch.equal(a.head.weight, b.head.weight)
    assert not torch.equal(a.head.weight, c.head.weight)
    assert not torch.equal(a.layers["0"].mlp.w1.weight, a.layers["1"].mlp.w1.weight)
    assert a.head.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(a.layers["0"].mlp_norm.weight, torch.ones(64))


@pytest.mark.parametrize(
    ("layers", "stages", "first", "last", "expected"),
    [
        (4, 2, None, None, [2, 2]),
        (8, 3, None, None, [3, 3, 2]),
        (4, 2, 1, None, [1, 3]),
        (10, 4, None, 1, [3, 3, 3, 1]),
        (5, 4, None, None, [1, 2, 1, 1]),
    ],
)
def test_stages_share_the_layers(layers, stages, first, last, expected):
    bounds = stage_bounds(layers, stages, first, last)
    assert [len(b) for b in bounds] == expected
    assert [i for b in bounds for i in b] == list(range(layers))
