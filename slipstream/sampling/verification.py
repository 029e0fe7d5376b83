"""Decides which draft tokens stand and what follows them. Knows nothing of models, trees or messages.

`verify_reference` is the rule, one token after the other; `verify` does the same for a batch at once. Both are proved
in docs/exactness.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.exchange import LAW_TOTAL, SparseLaw
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.check_rows import CheckRows, lay_out
from slipstream.sampling.logprobs import score_asked, with_logprobs
from slipstream.sampling.noise import gumbel_noise
from slipstream.sampling.philox import Stream, gumbel, random_words, uniform
from slipstream.sampling.rule_reference import rule_logits
from slipstream.sampling.rule_rows import contexts_of
from slipstream.sampling.ruled_law import ruled_logits
from slipstream.sampling.target_law import shape_logits
from slipstream.sampling.token_masks import masked_logits

Floats = npt.NDArray[np.float32]


def verify_reference(
    target_logits: torch.Tensor,  # [sum of len(draft) + 1, vocab] fp32, given the draft tokens before each
    checks: Sequence[SequenceCheck],
) -> list[Verdict]:
    """The rule, plainly: one token after the other, noise from numpy. What everything faster is tested against."""
    return [_verify_one(logits, check) for logits, check in _split(target_logits, checks)]


def _verify_one(logits: Floats, check: SequenceCheck) -> Verdict:
    accepted: list[int] = []
    for row, token in zip(logits, check.draft, strict=False):
        position = check.base + len(accepted)
        if check.is_matched(token):
            if _choose(row, check, position) != token.token_id:
                break  # the token after the accepted ones is chosen below, from the same row
        else:
            assert token.law is not None
            u = uniform(random_words(check.accept_key, position, check.sample_index, Stream.ACCEPT))
            draft_prob, target_probs = np.float32(token.law.probability(token.token_id)), _softmax(row)
            if not u * draft_prob < target_probs[token.token_id]:
                recovered = _choose(_residual(target_probs, token.law), check, position)
                return Verdict((*accepted, recovered), len(accepted))
        accepted.append(token.token_id)
    if check.last_token is not None and check.last_token.law is not None:
        recovered = _choose(_residual(_softmax(logits[-1]), check.last_token.law), check, check.base + len(accepted))
        return Verdict((*accepted, recovered), len(accepted))
    bonus = _choose(logits[len(accepted)], check, check.base + len(accepted))
    return Verdict((*accepted, bonus), len(accepted))


def _choose(log_weights: Floats, check: SequenceCheck, position: int) -> int:
    """What target and noise choose; the first of equals."""
    if check.sampling.greedy:
        return int(log_weights.argmax())
    token_ids = np.arange(len(log_weights))
    words = random_words(check.seed, position, check.sample_index, Stream.RESIDUAL, token_ids=token_ids)
    return int((log_weights + gumbel(words)).argmax())


def _residual(target_probs: Floats, law: SparseLaw) -> Floats:
    """log max(0, target_probs - draft_probs), or of target_probs where nothing is left."""
    draft_probs = np.zeros_like(target_probs)
    draft_probs[law.token_ids] = law.counts / np.float32(LAW_TOTAL)
    residual = np.maximum(target_probs - draft_probs, 0)
    with np.errstate(divide="ignore"):
        log_weights: Floats = np.log(residual if residual.any() else target_probs)
    return log_weights


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max())
    probs: Floats = weights / weights.sum()
    return probs


def _split(logits: torch.Tensor, checks: Sequence[SequenceCheck]) -> Iterator[tuple[Floats, SequenceCheck]]:
    logits, first = masked_logits(logits, checks), 0
    for check in checks:
        rows = _ruled_plainly(logits[first : first + len(check.draft) + 1], check)
        yield shape_logits(rows, [check.sampling] * len(rows)).cpu().numpy(), check
        first += len(rows)


def _ruled_plainly(logits: torch.Tensor, check: SequenceCheck) -> torch.Tensor:
    rules = check.rules
    if rules is None:
        return logits
    tokens = [*rules.token_ids, *(token.token_id for token in check.draft)]
    prompt, output = tokens[: rules.num_prompt_tokens], tokens[rules.num_prompt_tokens :]
    rows = [
        rule_logits(row, check.sampling, prompt, output[: rules.num_output_tokens + offset], rules.stop_token_ids)
        for offset, row in enumerate(logits.cpu().numpy())
    ]
    return torch.from_numpy(np.stack(rows))


def verify(
    target_logits: torch.Tensor,  # [sum of len(draft) + 1, vocab] fp32, given the draft tokens before each
    checks: Sequence[SequenceCheck],
) -> list[Verdict]:
    """One verdict per check. Reads from the device once, at its end. Noise is computed only for rows that need it."""
    num_rows = sum(len(check.draft) + 1 for check in checks)
    if len(target_logits) != num_rows:
        raise ValueError(f"target_logits has {len(target_logits)} rows; the checks need {num_rows}")
    if not checks:
        return []
    rows = lay_out(checks, target_logits.device)
    lawful = masked_logits(ruled_logits(target_logits, contexts_of(checks)), checks)
    shaped = shape_logits(lawful, rows.sampling)
    chosen = _choose_by_match(shaped, rows)
    num_accepted = _count_accepted(shaped, chosen, rows)
    last_tokens = chosen[rows.first_rows + num_accepted]
    if len(rows.drawn):
        last_tokens[rows.drawn] = _draw_last(shaped, rows, num_accepted[rows.drawn])
    decided = torch.stack((num_accepted, last_tokens), dim=1)
    verdicts = [verdict_of(check, *numbers) for check, numbers in zip(checks, decided.tolist(), strict=True)]
    return with_logprobs(verdicts, checks, score_asked(target_logits, checks, decided))


def verdict_of(check: SequenceCheck, num_accepted: int, last_token: int) -> Verdict:
    if not num_accepted:
        return Verdict((last_token,), 0)
    accepted = [token.token_id for token in check.draft[:num_accepted]]
    return Verdict((*accepted, last_token), num_accepted)


def _choose_by_match(shaped: torch.Tensor, rows: CheckRows) -> torch.Tensor:
    """What target and noise choose in each matched row: [num_rows] int64, 0 in the other rows."""
    scores = shaped
    if len(rows.noisy):
        scores = shaped.clone()
        scores[rows.noisy] += _residual_noise(shaped, rows, rows.noisy)
    chosen = torch.zeros_like(rows.draft_ids)
    chosen[rows.matched] = scores[rows.matched].argmax(-1)
    return chosen


def _count_accepted(shaped: torch.Tensor, chosen: torch.Tensor, rows: CheckRows) -> torch.Tensor:
    """Draft tokens before the first that does not stand: [num_seqs] int64."""
    stands = torch.zeros_like(rows.draft_ids, dtype=torch.bool)
    stands[rows.matched] = chosen[rows.matched] == rows.draft_ids[rows.matched]
    sparse = rows.sparse
    if len(sparse.rows):
        target_probs = shaped[sparse.rows].softmax(-1)
        drafted_probs = target_probs.gather(1, sparse.draft_ids[:, None])[:, 0]
        stands[sparse.rows] = accepts(sparse.uniforms, sparse.draft_probs, drafted_probs)
    return num_leading(stands, rows)


def num_leading(
    stands: torch.Tensor,  # [num_rows] bool: whether the row's draft token would be accepted
    rows: CheckRows,
) -> torch.Tensor:
    """Of each sequence, the draft tokens before the first that does not stand: [num_seqs] int64."""
    grid = stands.new_zeros(len(rows.first_rows), rows.max_rows)
    grid[rows.sequences, rows.offsets] = stands
    return grid.long().cumprod(-1).sum(-1)


def _draw_last(shaped: torch.Tensor, rows: CheckRows, num_accepted: torch.Tensor) -> torch.Tensor:
    """Recovered or bonus token of the sequences in rows.drawn: [num_drawn] int64.

    A row with a sparse law was rejected if it comes last, so its residual is drawn from; any other row's target is.
    """
    last = rows.first_rows[rows.drawn] + num_accepted
    log_weights = shaped[last]
    if len(rows.sparse.rows):
        slots = rows.sparse.law_slots[last]
        target_probs = log_weights.softmax(-1)
        draft_probs = torch.zeros_like(target_probs)
        draft_probs.scatter_add_(1, rows.sparse.law_token_ids[slots], rows.sparse.law_probs[slots])
        rejected = (slots < len(rows.sparse.rows))[:, None]
        log_weights = torch.where(rejected, recovery_weights(target_probs, draft_probs).log(), log_weights)
    return (log_weights + _residual_noise(shaped, rows, last)).argmax(-1)


def accepts(
    uniforms: torch.Tensor,  # [num_sparse] fp32, in (0, 1)
    draft_probs: torch.Tensor,  # [num_sparse] fp32, of the draft token under its law
    target_probs: torch.Tensor,  # [num_sparse] fp32, of the draft token
) -> torch.Tensor:
    """Whether each draft token stands: bool [num_sparse]. Strict, and no division: a token of target 0 never stands."""
    return uniforms * draft_probs < target_probs


def recovery_weights(
    target_probs: torch.Tensor,  # [num_rows, vocab] fp32
    draft_probs: torch.Tensor,  # [num_rows, vocab] fp32
) -> torch.Tensor:
    """What a rejected row draws from, not normalised: [num_rows, vocab].

    Nothing left over means that the laws are equal but for rounding; then the target's own is right.
    """
    residual = (target_probs - draft_probs).clamp_min_(0)
    return torch.where(residual.any(-1, keepdim=True), residual, target_probs)


def _residual_noise(shaped: torch.Tensor, rows: CheckRows, chosen_rows: torch.Tensor) -> torch.Tensor:
    """RESIDUAL noise of the chosen rows: [len(chosen_rows), vocab] fp32."""
    keys, positions, sample_indices = (
        rows.seeds[chosen_rows],
        rows.positions[chosen_rows],
        rows.sample_indices[chosen_rows],
    )
    return gumbel_noise(keys, positions, sample_indices, shaped.shape[-1])
