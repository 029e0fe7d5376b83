"""Verification on a GPU: which draft tokens stand and what follows them, token for token as sampling/verification.py.

The logits are read once for statistics; only the one row per sequence that needs a recovered or bonus token is read
again. Each GPU may hold a slice of the vocabulary: then statistics travel, logits do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from slipstream.kernels.gpu.check_table import CheckTable, pack_checks
from slipstream.kernels.gpu.row_limits import row_limits
from slipstream.kernels.gpu.row_statistics import RowParts, row_statistics, tile_size
from slipstream.kernels.gpu.second_look import decide_rows, second_look, verdicts
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import score_asked, with_logprobs
from slipstream.sampling.rule_rows import contexts_of
from slipstream.sampling.ruled_law import ruled_logits
from slipstream.sampling.token_masks import masked_logits


@dataclass(frozen=True, slots=True)
class VocabularySlice:
    """What one of several GPUs holds, and how it learns what the others found."""

    first_token: int  # of this slice, divisible by 4
    gather: Callable[[torch.Tensor], torch.Tensor]  # [rows, tiles, ...] of each GPU -> all of them along the tiles


def verify(
    target_logits: torch.Tensor,  # [sum of len(draft) + 1, vocab], given the draft tokens before each
    checks: Sequence[SequenceCheck],
) -> list[Verdict]:
    """One verdict per check. One copy to the device at the start, one from it at the end."""
    if not checks:
        return []
    table = pack_checks(checks, target_logits.shape[1], target_logits.device)
    lawful = masked_logits(ruled_logits(target_logits, contexts_of(checks)), checks)
    decided = verify_table(lawful, table)
    words = score_asked(target_logits, checks, decided)  # launched before the one read, which waits for both
    return with_logprobs(to_verdicts(checks, decided), checks, words)


def verify_table(
    target_logits: torch.Tensor,  # [num_rows, vocab], or this GPU's slice of it
    table: CheckTable,
    vocabulary: VocabularySlice | None = None,
) -> torch.Tensor:
    """[num_seqs, 2] int32: draft tokens accepted, and the token after them. Only launches, so a graph can hold it."""
    if vocabulary is not None and table.limited:
        raise ValueError("top_k, top_p and min_p need the whole vocabulary on one GPU; gather the logits first")
    first_token = vocabulary.first_token if vocabulary else 0
    parts = _gathered(row_statistics(target_logits, table, first_token), vocabulary)
    reach = row_limits(target_logits, table, parts, tile_size(*target_logits.shape)) if table.limited else None
    decided = decide_rows(table, parts, reach)
    if not table.drawn:
        return verdicts(table, decided, parts)
    return verdicts(
        table, decided, _gathered(second_look(target_logits, table, decided, reach, first_token), vocabulary)
    )


def _gathered(parts: RowParts, vocabulary: VocabularySlice | None) -> RowParts:
    if vocabulary is None:
        return parts
    return RowParts(vocabulary.gather(parts.values), vocabulary.gather(parts.tokens))


def to_verdicts(
    checks: Sequence[SequenceCheck],
    decided: torch.Tensor,  # [at least len(checks), 2] int32: draft tokens accepted, and the token after them
) -> list[Verdict]:
    return [_verdict(check, *numbers) for check, numbers in zip(checks, decided[: len(checks)].tolist(), strict=True)]


def _verdict(check: SequenceCheck, num_accepted: int, last_token: int) -> Verdict:
    accepted = (token.token_id for token in check.draft[:num_accepted])
    return Verdict((*accepted, last_token), num_accepted)
