"""Draws a draft token for each row of logits, as its request asks. Knows laws and noise; no model, no KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drafter_svc.proposers.proposer import Proposal, Row
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels.draft_choice import NO_TOKEN, Drafting
from slipstream.kernels.token_mask import mask_tokens
from slipstream.kernels.token_rules import apply_token_rules
from slipstream.sampling.draft_law import as_law, draw, guess_outcomes, sparse_laws
from slipstream.sampling.rule_rows import RowContext
from slipstream.sampling.ruled_law import drafting_logits
from slipstream.sampling.target_law import shape_logits


class TokenChoice:
    """Each token is drawn from the drafter's own law, shaped as the request asks; coupled and greedy ones by match."""

    def __init__(
        self,
        *,
        vocab_size: int,
        num_target_ids: int,  # ids from here on are padding and never drafted
        num_kept: int,  # tokens that a law keeps
        target_ids: torch.Tensor | None,  # [draft vocab] int64: the token that each logit is for; None = its index
    ) -> None:
        self._vocab_size = vocab_size
        self._num_target_ids = num_target_ids
        self._num_kept = num_kept
        self._target_ids = target_ids

    def drafting(self, num_outcomes: int, device: torch.device) -> Drafting:
        """The same where the device chooses."""
        known = torch.arange(self._vocab_size, device=device) if self._target_ids is None else self._target_ids
        drafted = known.int().masked_fill(known >= self._num_target_ids, NO_TOKEN)
        return Drafting(drafted.to(device), self._target_ids is None, self._num_kept, num_outcomes)

    def choose(
        self,
        logits: torch.Tensor,  # [num_rows, draft vocab] fp32
        rows: Sequence[Row],
    ) -> list[Proposal]:
        return self._draw(self._over_target_ids(_numbers(logits)), rows) if rows else []

    def _over_target_ids(self, logits: torch.Tensor) -> torch.Tensor:
        """[num_rows, draft vocab] to [num_rows, target ids]: -inf where the drafter has no opinion."""
        if self._target_ids is not None:
            full = logits.new_full((len(logits), self._vocab_size), -torch.inf)
            logits = full.index_copy_(1, self._target_ids, logits)
        return logits[:, : self._num_target_ids]

    def _draw(
        self,
        logits: torch.Tensor,  # [num_rows, target ids] fp32
        rows: Sequence[Row],
    ) -> list[Proposal]:
        settings = [row.drawing for row in rows]
        contexts = [RowContext(row.rules, row.drafted) for row in rows]
        ruled = drafting_logits(logits, contexts, apply_token_rules, mask_tokens)
        shaped = shape_logits(ruled, [drawing.sampling for drawing in settings])
        outcomes = guess_outcomes(
            shaped,
            [drawing.sampling for drawing in settings],
            [drawing.seed for drawing in settings],
            [row.end for row in rows],
            [drawing.sample_index for drawing in settings],
            num_guesses=max(1, *(row.num_outcomes for row in rows)),
        )
        # Checked by match, so the best draft is the likeliest outcome itself.
        tokens = [DraftToken(guesses[0], LawKind.ONE_HOT) for guesses in outcomes]
        confidences = _probabilities(shaped, [token.token_id for token in tokens])
        with_law = [i for i, drawing in enumerate(settings) if drawing.carries_law]
        if with_law:
            drawn = self._draw_from_laws(shaped[with_law], [rows[i] for i in with_law])
            for i, token in zip(with_law, drawn, strict=True):
                tokens[i], confidences[i] = token, 1.0  # where laws decide, a token's value must not end its path
        return [
            Proposal(token, tuple(guesses[: row.num_outcomes]), confidence)
            for token, guesses, confidence, row in zip(tokens, outcomes, confidences, rows, strict=True)
        ]

    def _draw_from_laws(self, shaped: torch.Tensor, rows: Sequence[Row]) -> list[DraftToken]:
        token_ids, counts = sparse_laws(shaped, self._num_kept)
        drawn = draw(
            token_ids,
            counts,
            [row.drawing.draft_key for row in rows],
            [row.end for row in rows],
            [row.drawing.sample_index for row in rows],
            [row.draw for row in rows],
        )
        laws = (as_law(*row_law) for row_law in zip(token_ids, counts, strict=True))
        return [DraftToken(int(token_id), LawKind.SPARSE, law) for token_id, law in zip(drawn, laws, strict=True)]


def _numbers(logits: torch.Tensor) -> torch.Tensor:
    """A row that overflowed has no opinion, and drafts in vain; whoever shares the step does not go down with it."""
    broken = ~logits.amax(-1, keepdim=True).isfinite()
    return logits.masked_fill(broken, 0.0) if logits.is_cuda or bool(broken.any()) else logits


def _probabilities(shaped: torch.Tensor, token_ids: Sequence[int]) -> list[float]:
    """Of one token in each row. Reads from the device."""
    chosen = shaped.gather(1, torch.tensor(token_ids, device=shaped.device)[:, None])
    probabilities: list[float] = (chosen - shaped.logsumexp(-1, keepdim=True)).exp()[:, 0].tolist()
    return probabilities
