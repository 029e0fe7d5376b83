"""Verification where each rank has the logits of a slice of the vocabulary. Decides as verification.py does on all.

Statistics travel, logits do not: each row's largest logit, then its total weight, what its slice would choose and the
drafted token's logit; then, of the row that ends a sequence, the slice's best recovered and bonus token. Noise belongs
to token ids, so slices need none of one another's. Only checks that ask for more than that have their rows gathered:
top-k and top-p, which rank tokens; penalties, biases and masks, which rank 0 alone knows; log probabilities. These rank
0 decides by itself. The plan alone says what travels, never a value, so that ranks cannot wait for one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from slipstream.request import SamplingParams
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.check_rows import CheckRows, lay_out
from slipstream.sampling.noise import gumbel_noise_of
from slipstream.sampling.target_law import SMALLEST_TEMPERATURE
from slipstream.sampling.verification import accepts, num_leading, verdict_of, verify
from slipstream.sampling.vocabulary_slice import VocabularySlice


@dataclass(frozen=True, slots=True)
class ElsewhereCheck:
    """A check that rank 0 decides alone, as the other ranks know it: how many rows it has."""

    num_rows: int


AnyCheck = SequenceCheck | ElsewhereCheck
Decide = Callable[[torch.Tensor, Sequence[SequenceCheck], VocabularySlice], list[Verdict]]


def needs_whole_vocabulary(check: SequenceCheck, vocab_size: int) -> bool:
    """Whether statistics of slices do not say enough."""
    sampling = check.sampling
    ranked = not sampling.greedy and (0 < sampling.top_k < vocab_size or sampling.top_p < 1)
    return ranked or check.rules is not None or check.fill_masks is not None or sampling.logprobs


def follower_checks(checks: Sequence[SequenceCheck], vocab_size: int) -> list[AnyCheck]:
    """The checks as the other ranks get them: of those that rank 0 decides alone, only their number of rows."""
    return [
        ElsewhereCheck(len(check.draft) + 1) if needs_whole_vocabulary(check, vocab_size) else check for check in checks
    ]


def verify_sliced(
    logits: torch.Tensor,  # [num_rows, slice] fp32, this rank's
    checks: Sequence[AnyCheck],  # rank 0: SequenceChecks; other ranks: what follower_checks made of them
    vocabulary: VocabularySlice,
    verify_whole: Callable[[torch.Tensor, Sequence[SequenceCheck]], list[Verdict]] = verify,
    decide: Decide | None = None,
) -> list[Verdict]:
    """One verdict per check on rank 0; on other ranks what they say is not to be used."""
    seen = [
        check if isinstance(check, ElsewhereCheck) else follower_checks([check], vocabulary.vocab_size)[0]
        for check in checks
    ]
    elsewhere = [index for index, check in enumerate(seen) if isinstance(check, ElsewhereCheck)]
    sliced = [(index, check) for index, check in enumerate(seen) if isinstance(check, SequenceCheck)]
    rows = _rows(seen)
    verdicts: dict[int, Verdict] = {}
    if elsewhere:
        gathered = vocabulary.whole(logits[_joined(rows, elsewhere)])
        asked = [(index, check) for index in elsewhere if isinstance(check := checks[index], SequenceCheck)]
        found = verify_whole(gathered, [check for _, check in asked]) if asked else []
        verdicts |= {index: verdict for (index, _), verdict in zip(asked, found, strict=True)}
    if sliced:
        indices, ours = zip(*sliced, strict=True)
        verdicts |= zip(
            indices, (decide or decide_sliced)(logits[_joined(rows, indices)], ours, vocabulary), strict=True
        )
    return [verdicts[index] for index in sorted(verdicts)]


def _rows(checks: Sequence[AnyCheck]) -> list[range]:
    """Which rows of the logits are whose."""
    rows, first = [], 0
    for check in checks:
        length = check.num_rows if isinstance(check, ElsewhereCheck) else len(check.draft) + 1
        rows.append(range(first, first + length))
        first += length
    return rows


def _joined(rows: Sequence[range], indices: Sequence[int]) -> list[int]:
    return [row for index in indices for row in rows[index]]


def decide_sliced(logits: torch.Tensor, checks: Sequence[SequenceCheck], vocabulary: VocabularySlice) -> list[Verdict]:
    """By statistics only."""
    decided = decide_by_statistics(logits, checks, vocabulary)
    return [verdict_of(check, *numbers) for check, numbers in zip(checks, decided.tolist(), strict=True)]


def decide_by_statistics(
    logits: torch.Tensor,  # [num_rows, slice] fp32
    checks: Sequence[SequenceCheck],
    vocabulary: VocabularySlice,
) -> torch.Tensor:
    """[num_seqs, 2] int64: draft tokens accepted, and the token after them."""
    rows = lay_out(checks, logits.device)
    shaped = _shaped(logits, rows.sampling, vocabulary)
    chosen, totals, drafted = _statistics(shaped, rows, vocabulary)
    stands = torch.zeros_like(rows.draft_ids, dtype=torch.bool)
    stands[rows.matched] = chosen[rows.matched] == rows.draft_ids[rows.matched]
    sparse = rows.sparse
    target_probs = drafted[sparse.rows].exp() / totals[sparse.rows]
    stands[sparse.rows] = accepts(sparse.uniforms, sparse.draft_probs, target_probs)
    num_accepted = num_leading(stands, rows)
    last_tokens = chosen[rows.first_rows + num_accepted]
    if len(rows.drawn):
        last = rows.first_rows[rows.drawn] + num_accepted[rows.drawn]
        last_tokens[rows.drawn] = _draw_last(shaped[last], totals[last], rows, last, vocabulary)
    return torch.stack((num_accepted, last_tokens), dim=1)


def _shaped(logits: torch.Tensor, params: Sequence[SamplingParams], vocabulary: VocabularySlice) -> torch.Tensor:
    """The slice of the shaped logits, bit for bit, greedy rows moved so that the largest is 0."""
    largest = vocabulary.gather(logits.amax(-1, keepdim=True)).amax(-1, keepdim=True)
    temperatures = [1.0 if row.greedy else max(row.temperature, SMALLEST_TEMPERATURE) for row in params]
    least = [math.log(row.min_p) if row.min_p and not row.greedy else -math.inf for row in params]
    shaped = (logits - largest).div_(logits.new_tensor(temperatures)[:, None])
    return shaped.masked_fill_(shaped < logits.new_tensor(least)[:, None], -torch.inf)


def _statistics(
    shaped: torch.Tensor, rows: CheckRows, vocabulary: VocabularySlice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each row: the token that greedy and matched rows choose, the total weight, the drafted token's logit."""
    scores = shaped
    if len(rows.noisy):
        scores = shaped.clone()
        scores[rows.noisy] += _noise(shaped, rows, rows.noisy, vocabulary)
    places = rows.draft_ids - vocabulary.first_token
    own = (places >= 0) & (places < shaped.shape[1])
    drafted = shaped.gather(1, places.where(own, 0)[:, None])[:, 0].where(own, -torch.inf)
    ours = (*_best(scores, vocabulary), shaped.exp().sum(-1).double(), drafted.double())
    found = vocabulary.gather(torch.stack(ours, dim=-1)[:, None])  # [num_rows, num_ranks, 4]
    best, tokens, totals, drafts = found.unbind(-1)
    return _token_of_best(best, tokens), totals.sum(1).float(), drafts.amax(1).float()


def _draw_last(
    log_weights: torch.Tensor,  # [num_drawn, slice], shaped
    totals: torch.Tensor,  # [num_drawn]
    rows: CheckRows,
    last: torch.Tensor,  # [num_drawn], the rows drawn from
    vocabulary: VocabularySlice,
) -> torch.Tensor:
    """Recovered or bonus tokens: [num_drawn] int64. A residual that is empty on every rank leaves the target's law."""
    noise = _noise(log_weights, rows, last, vocabulary)
    residual = _log_residual(log_weights, totals, rows, last, vocabulary)
    ours = (*_best(residual + noise, vocabulary), *_best(log_weights + noise, vocabulary))
    best, tokens, target_best, target_tokens = vocabulary.gather(torch.stack(ours, dim=-1)[:, None]).unbind(-1)
    recovered, bonus = _token_of_best(best, tokens), _token_of_best(target_best, target_tokens)
    return torch.where(best.amax(1) == -torch.inf, bonus, recovered)


def _log_residual(
    log_weights: torch.Tensor, totals: torch.Tensor, rows: CheckRows, last: torch.Tensor, vocabulary: VocabularySlice
) -> torch.Tensor:
    """log max(0, target_probs - draft_probs) of rows with a law, -inf of the others."""
    sparse = rows.sparse
    slots = sparse.law_slots[last]
    places = sparse.law_token_ids[slots] - vocabulary.first_token
    own = (places >= 0) & (places < log_weights.shape[1])
    draft_probs = torch.zeros_like(log_weights)
    draft_probs.scatter_add_(1, places.where(own, 0), sparse.law_probs[slots].where(own, 0))
    residual = (log_weights.exp() / totals[:, None] - draft_probs).clamp_min_(0)
    return residual.masked_fill_((slots == len(sparse.rows))[:, None], 0).log_()


def _noise(like: torch.Tensor, rows: CheckRows, chosen_rows: torch.Tensor, vocabulary: VocabularySlice) -> torch.Tensor:
    """RESIDUAL noise of the slice's tokens: [len(chosen_rows), slice] fp32."""
    tokens = range(vocabulary.first_token, vocabulary.first_token + like.shape[1])
    keys, positions = rows.seeds[chosen_rows], rows.positions[chosen_rows]
    return gumbel_noise_of(tokens, keys, positions, rows.sample_indices[chosen_rows])


def _best(scores: torch.Tensor, vocabulary: VocabularySlice) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest score and its token, both as double, which holds either: [num_rows] each."""
    best, places = scores.max(-1)
    return best.double(), (places + vocabulary.first_token).double()


def _token_of_best(best: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[num_rows] int64 of [num_rows, num_ranks]; of equal scores the first, which is the least token's."""
    return tokens.gather(1, best.argmax(1, keepdim=True))[:, 0].long()
