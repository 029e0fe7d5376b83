"""Draft laws are whole, integer and exactly what is drawn from; guesses follow the verifier's noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from slipstream.exchange import LAW_TOTAL
from slipstream.request import SamplingParams
from slipstream.sampling.draft_law import NUM_CANDIDATES, as_law, draw, guess_outcomes, sparse_laws
from slipstream.sampling.noise import gumbel_noise, key_tensor
from slipstream.sampling.philox import derive_key

SAMPLED, GREEDY = SamplingParams(), SamplingParams(temperature=0.0)


def random_logits(num_rows: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("num_kept", [1, 2, 16, 64, 1000])
@pytest.mark.parametrize("vocab_size", [2, 50, 5000])
def test_counts_are_whole_and_name_the_likeliest_tokens(num_kept: int, vocab_size: int) -> None:
    logits = random_logits(7, vocab_size)
    token_ids, counts = sparse_laws(logits, num_kept)
    kept = min(num_kept, vocab_size)
    assert (token_ids.dtype, counts.dtype, token_ids.shape) == (np.int32, np.uint16, (7, kept))
    assert counts.sum(axis=1, dtype=int).tolist() == [LAW_TOTAL] * 7
    assert token_ids.tolist() == logits.topk(kept).indices.tolist()


def test_counts_are_the_truncated_draft_law_up_to_rounding() -> None:
    logits = random_logits(5, 300)
    token_ids, counts = sparse_laws(logits, 16)
    truncated = logits.gather(1, torch.from_numpy(token_ids).long()).softmax(-1).numpy()
    assert np.abs(counts / LAW_TOTAL - truncated).max() <= 16 / LAW_TOTAL


def test_a_law_in_a_message_has_no_token_of_count_zero() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -50.0]])
    law = as_law(*(array[0] for array in sparse_laws(logits, 4)))
    assert sorted(law.token_ids.tolist()) == [0, 2]
    assert (law.counts > 0).all()
    assert law.counts.sum() == LAW_TOTAL


def test_draws_follow_exactly_the_counts() -> None:
    num_rows = 40000
    token_ids = np.tile(np.array([7, 3, 11, 5], dtype=np.int32), (num_rows, 1))
    counts = np.tile(np.array([20000, 10000, 2768, 0], dtype=np.uint16), (num_rows, 1))
    drawn = draw(token_ids, counts, [derive_key(1, 2)] * num_rows, [9] * num_rows, [0] * num_rows, range(num_rows))
    seen = [int((drawn == token).sum()) for token in (7, 3, 11, 5)]
    assert seen[3] == 0
    assert chisquare(seen[:3], counts[0, :3] / LAW_TOTAL * num_rows).pvalue > 1e-3


def test_every_value_of_the_random_bits_is_used_so_the_law_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    every_word = np.arange(LAW_TOTAL, dtype=np.uint32) << 17
    monkeypatch.setattr("slipstream.sampling.draft_law.random_words", lambda *args, **kwargs: every_word)
    token_ids, counts = sparse_laws(random_logits(1, 100, seed=5), 16)
    rows = np.zeros(LAW_TOTAL, dtype=int)
    drawn = draw(token_ids[rows], counts[rows], rows, rows, rows, rows)
    assert [int((drawn == token_id).sum()) for token_id in token_ids[0]] == counts[0].tolist()


def test_each_draw_position_and_sample_has_its_own_noise() -> None:
    token_ids, counts = sparse_laws(torch.zeros(1, 4096), 4096)

    def one(position: int = 0, sample_index: int = 0, number: int = 0, key: int = 5) -> int:
        return int(draw(token_ids, counts, [key], [position], [sample_index], [number])[0])

    tokens = {
        one(),
        one(position=1),
        one(sample_index=1),
        one(number=1),
        one(number=1 << 24),
        one(number=1 << 32),
        one(key=6),
    }
    assert len(tokens) == 7
    assert one(number=3 << 32 | 9) == one(number=3 << 32 | 9)


def test_guesses_are_what_the_verifier_draws_when_the_laws_are_equal() -> None:
    logits = random_logits(6, 500, seed=4)
    seeds, positions, samples = [3, 1 << 63, 5, 6, 7, 8], [10, 11, 12, 13, 14, 15], [0, 1, 2, 0, 0, 0]
    noise = gumbel_noise(key_tensor(seeds), torch.tensor(positions), torch.tensor(samples), 500)
    sampling = [SAMPLED, GREEDY, SAMPLED, SAMPLED, GREEDY, SAMPLED]
    guesses = guess_outcomes(logits, sampling, seeds, positions, samples, 3)
    for row, params in enumerate(sampling):
        scores = logits[row] if params.greedy else logits[row] + noise[row]
        assert guesses[row] == scores.topk(3).indices.tolist()


def test_guesses_may_be_more_than_the_usual_candidates() -> None:
    guesses = guess_outcomes(random_logits(1, 2000), [GREEDY], [0], [0], [0], NUM_CANDIDATES + 50)
    assert len(set(guesses[0])) == NUM_CANDIDATES + 50


def test_impossible_tokens_are_no_guesses() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -torch.inf], [0.0, 1.0, 2.0, 3.0]])
    guesses = guess_outcomes(logits, [SAMPLED, GREEDY], [0, 0], [0, 0], [0, 0], 4)
    assert sorted(guesses[0]) == [0, 2]
    assert guesses[1] == [3, 2, 1, 0]


def test_greedy_guesses_need_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("slipstream.sampling.draft_law.gumbel_noise_at")
    assert guess_outcomes(torch.tensor([[0.0, 2.0, 1.0]]), [GREEDY], [0], [0], [0], 2) == [[1, 2]]
