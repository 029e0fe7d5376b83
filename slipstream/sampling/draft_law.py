"""The law a draft token is drawn from, as integers, and guesses at what the verifier will draw. Knows no models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.exchange import LAW_TOTAL, SparseLaw
from slipstream.request import SamplingParams
from slipstream.sampling.noise import gumbel_noise_at, key_tensor
from slipstream.sampling.philox import DRAW_BITS, Stream, derive_keys, random_words

LAW_SHIFT = 32 - (LAW_TOTAL.bit_length() - 1)  # a word's top bits are uniform on 0..LAW_TOTAL - 1
NUM_CANDIDATES = 256  # a guess beyond the likeliest is too rare to pay for noise on the whole vocabulary


def sparse_laws(
    draft_logits: torch.Tensor,  # [num_rows, vocab] fp32, shaped
    num_kept: int,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16]]:
    """The num_kept likeliest tokens of each row and their counts of LAW_TOTAL: both [num_rows, m], likeliest first.

    Rounding goes down, what is left goes to the likeliest: the law is what the counts say, so no rounding is an error.
    A count may be 0; such a token is never drawn. Reads from the device.
    """
    kept = draft_logits.topk(min(num_kept, draft_logits.shape[-1]), dim=-1)
    counts = (kept.values.softmax(-1) * LAW_TOTAL).int()
    counts[:, 0] += LAW_TOTAL - counts.sum(-1)
    return kept.indices.int().cpu().numpy(), counts.cpu().numpy().astype(np.uint16)


def draw(
    token_ids: npt.NDArray[np.int32],  # [num_rows, m]
    counts: npt.NDArray[np.uint16],  # [num_rows, m]
    draft_keys: npt.ArrayLike,  # [num_rows], derive_key(seed, nonce) of the drafter's own nonce
    positions: npt.ArrayLike,  # [num_rows]
    sample_indices: npt.ArrayLike,  # [num_rows]
    draws: npt.ArrayLike,  # [num_rows], Draft.draw: never the same twice at one position
) -> npt.NDArray[np.int32]:
    """One token per row, drawn from exactly counts / LAW_TOTAL with DRAFT noise: [num_rows]."""
    numbers = np.asarray(draws, dtype=np.uint64)
    keys = derive_keys(np.asarray(draft_keys, dtype=np.uint64), numbers >> np.uint64(DRAW_BITS))
    low = numbers & np.uint64((1 << DRAW_BITS) - 1)
    marks = random_words(keys, positions, sample_indices, Stream.DRAFT, draws=low) >> np.uint32(LAW_SHIFT)
    columns = (counts.cumsum(axis=1) <= marks[:, None]).sum(axis=1)
    drawn: npt.NDArray[np.int32] = token_ids[np.arange(len(token_ids)), columns]
    return drawn


def as_law(token_ids: npt.NDArray[np.int32], counts: npt.NDArray[np.uint16]) -> SparseLaw:
    """One row of sparse_laws as it goes into a message: without the tokens of count 0."""
    possible = counts > 0
    return SparseLaw(token_ids=token_ids[possible], counts=counts[possible])


def guess_outcomes(
    draft_logits: torch.Tensor,  # [num_rows, vocab] fp32, shaped
    sampling: Sequence[SamplingParams],  # one per row
    seeds: Sequence[int],
    positions: Sequence[int],
    sample_indices: Sequence[int],
    num_guesses: int,
) -> list[list[int]]:
    """For each row, tokens that the verifier probably emits there, likeliest first: the largest draft logits + noise.

    The verifier adds the same RESIDUAL noise to the target's law. The first guess is also the draft token in coupled
    mode and at temperature 0 (there without noise). Never submit a guess as a draft in ratio mode. Impossible tokens
    are left out, so a row may have fewer. Reads from the device.
    """
    noisy = [row for row, params in enumerate(sampling) if not params.greedy]
    num_candidates = max(NUM_CANDIDATES, num_guesses) if noisy else num_guesses  # without noise none can overtake
    candidates = draft_logits.topk(min(num_candidates, draft_logits.shape[-1]), dim=-1)
    scores = candidates.values
    if noisy:
        device = draft_logits.device
        columns = ([values[row] for row in noisy] for values in (positions, sample_indices))
        row_positions, row_samples = (torch.tensor(column, device=device) for column in columns)
        keys = key_tensor([seeds[row] for row in noisy], device)
        scores[noisy] += gumbel_noise_at(keys, row_positions, row_samples, candidates.indices[noisy])
    best = scores.topk(min(num_guesses, scores.shape[-1]), dim=-1)
    token_ids = candidates.indices.gather(1, best.indices).tolist()
    possible = best.values.isfinite().sum(-1).tolist()
    return [row[:count] for row, count in zip(token_ids, possible, strict=True)]
