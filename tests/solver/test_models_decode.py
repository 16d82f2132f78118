"""Sampling, row by row."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import tiny_model

from reharness.solver.models import decode
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.decode import DecodingBatch, draw, nucleus


def test_tokens_are_drawn_in_proportion():
    p = torch.tensor([0.5, 0.0, 0.3, 0.2])
    generator = np.random.default_rng(0)
    counts = np.bincount([int(draw(p, generator)) for _ in range(4000)], minlength=4) / 4000
    assert counts[1] == 0
    assert np.abs(counts - p.numpy()).max() < 0.03  # 4 standard errors


def test_the_seed_decides_and_the_last_bits_do_not():
    p = torch.rand(5000, generator=torch.Generator().manual_seed(1))
    noisy = p * (1 + 1e-6 * torch.randn(5000, generator=torch.Generator().manual_seed(2)))
    first, again, other = (
        [int(draw(q, g)) for _ in range(50)] for q, g in zip((p, noisy, p), map(np.random.default_rng, (7, 7, 8)), strict=True)
    )
    assert first == again != other


def test_no_token_of_a_large_vocabulary_is_drawn_by_rounding() -> None:
    """Noise of exactly 0 would let any token win: it does in single precision, once in 2**23 numbers."""
    p = torch.full((49_152,), 1e-12)
    p[7] = 1 - p.sum() + p[7]
    generator = np.random.default_rng(0)
    assert {int(draw(p, generator)) for _ in range(2000)} == {7}


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=40), st.floats(0.01, 1))
def test_a_nucleus_is_the_smallest_set_of_likeliest_tokens(weights, top_p):
    p = torch.tensor(weights, dtype=torch.float64)
    p = p / p.sum()
    kept = nucleus(p, top_p)
    chosen = kept > 0
    assert torch.equal(kept[chosen], p[chosen]) and chosen.any()
    assert p[chosen].min() >= p[~chosen].max() if (~chosen).any() else True
    assert kept.sum() >= top_p - 1e-9
    assert chosen.sum() == 1 or kept.sum() - p[chosen].min() < top_p


def test_a_flat_distribution_needs_the_whole_sort():
    p = torch.full((4000,), 1 / 4000, dtype=torch.float64)
    assert int((nucleus(p, 0.9) > 0).sum()) == pytest.approx(3600, abs=1)


def test_a_cache_with_room_changes_no_bit(tmp_path, monkeypatch):
    """Rows of unlike prompts and lengths, more tokens than a room holds: as with transformers' own cache, which is copied per token."""
    from transformers import AutoModelForCausalLM

    folder = tiny_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chat = ChatTokenizer(folder)
    prompts = [list(range(10, 10 + n)) for n in (40, 7, 40, 23)]
    lengths = (90, 3, 41, 90, 12, 70)
    requests = [
        (i, {"ids": prompts[i % 4], "seed": i, "max_tokens": n, "temperature": 1.0 if i else 0.0, "top_p": 0.9, "stop": []}) for i, n in enumerate(lengths)
    ]

    def decoded():
        batch, done = DecodingBatch(model, chat, 0, requests), {}
        while batch.rows:
            for row, finish in batch.step():
                done[row.request] = row.ids, row.logps, finish
        return done

    monkeypatch.setattr(decode, "ROOM", 16)
    roomy = decoded()
    monkeypatch.setattr(decode, "with_room", lambda cache: None)
    assert roomy == decoded() and len(roomy[0][0]) == 90 and {len(ids) for ids, _, _ in roomy.values()} > {3, 12}
