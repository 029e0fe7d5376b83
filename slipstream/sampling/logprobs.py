"""How likely the target's raw logits made the tokens that were decided. Knows no law and no noise: others decide.

Raw: before penalties, masks and temperature. Only the rows of sequences that asked cost anything. All of it is
launched behind the verdicts without waiting for them, so that one wait serves both: on a GPU some twenty small
operations, issued while the model's pass still runs, which go a few times over the rows that asked; the pass reads the
whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from slipstream.exchange import TokenLogprobs
from slipstream.sampling.check import SequenceCheck, Verdict

ROWS_AT_ONCE = 64  # bounds what is computed on the way: a few fp32 copies of so many rows of the vocabulary


@dataclass(frozen=True, slots=True)
class AskedRows:
    """The rows whose sequences asked, known before the target has run."""

    columns: torch.Tensor  # [4, num_asked] int64: row, sequence, draft tokens before it, draft token or 0
    num_top: int  # most that one of them asked for

    @classmethod
    def of(cls, checks: Sequence[SequenceCheck], device: torch.device) -> AskedRows | None:
        """None if nobody asked, which is then all that it costs."""
        if not any(check.sampling.logprobs for check in checks):
            return None
        rows = [
            (row, sequence, offset, token_id)
            for row, (sequence, offset, token_id) in enumerate(_rows(checks))
            if checks[sequence].sampling.logprobs
        ]
        num_top = max(check.sampling.num_top_logprobs for check in checks if check.sampling.logprobs)
        return cls(numbers_on(device, list(zip(*rows, strict=True))), num_top)

    def keep(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of the rows [num_asked, vocab]: what decides may write over the logits."""
        return logits.index_select(0, self.columns[0])

    def score(
        self,
        kept: torch.Tensor,  # [num_asked, vocab], from `keep`
        decided: torch.Tensor,  # [at least num_seqs, 2]: draft tokens accepted, and the token after them
    ) -> torch.Tensor:
        """For `with_logprobs`, [num_asked, 1 + 2 * num_top] int32; rows past a sequence's last token are idle."""
        _, sequences, offsets, draft_ids = self.columns
        last = decided[sequences].long()
        return score(kept, torch.where(offsets < last[:, 0], draft_ids, last[:, 1]), self.num_top)


def numbers_on(device: torch.device, numbers: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
    """A tensor of them. From pinned memory: a copy from elsewhere may wait for all that was launched before it."""
    return torch.tensor(numbers, pin_memory=device.type == "cuda").to(device, non_blocking=True)


def _rows(checks: Sequence[SequenceCheck]) -> list[tuple[int, int, int]]:
    """Of each row: the sequence, draft tokens before it, and the draft token there; 0 in a sequence's last row."""
    return [
        (sequence, offset, token_id)
        for sequence, check in enumerate(checks)
        for offset, token_id in enumerate((*(token.token_id for token in check.draft), 0))
    ]


def score(
    logits: torch.Tensor,  # [num_rows, vocab] fp32, raw
    token_ids: torch.Tensor,  # [num_rows] int64
    num_top: int,
) -> torch.Tensor:
    """Per row the token's log probability, those of the likeliest tokens, and these: [num_rows, 1 + 2 * num_top] int32.

    Floats lie there bit by bit, so that one copy brings all to the host.
    """
    parts = zip(torch.split(logits, ROWS_AT_ONCE), torch.split(token_ids, ROWS_AT_ONCE), strict=True)
    return torch.cat([_score(some, ids, num_top) for some, ids in parts])


def _score(logits: torch.Tensor, token_ids: torch.Tensor, num_top: int) -> torch.Tensor:
    normaliser = logits.logsumexp(-1, keepdim=True)
    top = logits.topk(min(num_top, logits.shape[1]), dim=-1)
    values = torch.cat((logits.gather(1, token_ids[:, None]), top.values), dim=1) - normaliser
    return torch.cat((values.view(torch.int32), top.indices.int()), dim=1)


def score_asked(
    logits: torch.Tensor,  # [num_rows, vocab] fp32, raw
    checks: Sequence[SequenceCheck],
    decided: torch.Tensor,  # [at least len(checks), 2]: draft tokens accepted, and the token after them
) -> torch.Tensor | None:
    """What `with_logprobs` reads, launched and not waited for; None if nobody asked."""
    asked = AskedRows.of(checks, logits.device)
    return None if asked is None else asked.score(asked.keep(logits), decided)


def read_scores(words: torch.Tensor) -> TokenLogprobs:
    """What `score` wrote."""
    table = words.cpu().numpy()
    num_top = table.shape[1] // 2
    values = np.ascontiguousarray(table[:, : 1 + num_top]).view(np.float32)
    return TokenLogprobs(values[:, 0], table[:, 1 + num_top :], values[:, 1:])


def with_logprobs(
    verdicts: list[Verdict], checks: Sequence[SequenceCheck], words: torch.Tensor | None
) -> list[Verdict]:
    """The verdicts, those that asked with the log probabilities in `words`."""
    if words is None:
        return verdicts
    told, first = read_scores(words), 0
    complete = []
    for verdict, check in zip(verdicts, checks, strict=True):
        if check.sampling.logprobs:
            ours = told[first : first + len(verdict.token_ids)]
            # Another sequence of the batch may have asked for more.
            verdict = replace(verdict, logprobs=ours.narrowed(check.sampling.num_top_logprobs))
            first += len(check.draft) + 1
        complete.append(verdict)
    return complete
