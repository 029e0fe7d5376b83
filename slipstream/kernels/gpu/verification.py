"""Verification on a GPU: which draft tokens stand and what follows them, token for token as sampling/verification.py.

The logits are read once for statistics; only the one row per sequence that needs a recovered or bonus token is read
again. Each GPU may hold a slice of the vocabulary: then statistics travel, logits do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from slipstream.kernels.gpu.check_table import NUM_COLUMNS, CheckTable, Column, pack_checks
from slipstream.kernels.gpu.decided_rows import decide_rows
from slipstream.kernels.gpu.row_limits import row_limits
from slipstream.kernels.gpu.row_statistics import RowParts, row_statistics, tile_size
from slipstream.kernels.gpu.second_look import second_look, verdicts
from slipstream.kernels.token_mask import mask_tokens
from slipstream.kernels.token_rules import apply_token_rules
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import score_asked, with_logprobs
from slipstream.sampling.rule_rows import contexts_of
from slipstream.sampling.ruled_law import ruled_logits
from slipstream.sampling.token_masks import masked_logits
from slipstream.sampling.verification import verdict_of
from slipstream.sampling.vocabulary_slice import VocabularySlice


def verify(
    target_logits: torch.Tensor,  # [sum of len(draft) + 1, vocab], given the draft tokens before each
    checks: Sequence[SequenceCheck],
) -> list[Verdict]:
    """One verdict per check. One copy to the device at the start, one from it at the end."""
    if not checks:
        return []
    table = pack_checks(checks, target_logits.shape[1], target_logits.device)
    ruled = ruled_logits(target_logits, contexts_of(checks), apply_token_rules)
    lawful = masked_logits(ruled, checks, mask_tokens)
    decided = verify_table(lawful, table)
    words = score_asked(target_logits, checks, decided)  # launched before the one read, which waits for both
    return with_logprobs(to_verdicts(checks, decided), checks, words)


def verify_slice(
    logits: torch.Tensor,  # [num_rows, slice], this GPU's
    checks: Sequence[SequenceCheck],  # that statistics of slices decide, at least one
    vocabulary: VocabularySlice,
) -> list[Verdict]:
    """One verdict per check, from what every GPU's slice says."""
    table = pack_checks(checks, vocabulary.vocab_size, logits.device)
    return to_verdicts(checks, verify_table(logits, table, vocabulary))


def without_unlikely(
    logits: torch.Tensor,  # [num_rows, slice]
    table: CheckTable,  # limited by min_p at most
    vocabulary: VocabularySlice,
) -> tuple[torch.Tensor, CheckTable]:
    """Logits without what min_p removes, for which the largest of all slices is enough, and a table without limits."""
    largest = vocabulary.gather(logits.amax(1, keepdim=True)).amax(1, keepdim=True)
    floats = table.words[:, :NUM_COLUMNS].contiguous().view(torch.float32)
    distances = (largest - logits) / floats[:, Column.TEMPERATURE, None]
    words = table.words.clone()
    words[:, Column.LIMITED] = 0
    kept = logits.masked_fill(distances > floats[:, Column.MIN_P_REACH, None], -torch.inf)
    return kept, replace(table, words=words, limited=False)


def verify_table(
    target_logits: torch.Tensor,  # [num_rows, vocab], or this GPU's slice of it
    table: CheckTable,
    vocabulary: VocabularySlice | None = None,
    into: torch.Tensor | None = None,  # where to write the result, which is new memory otherwise
) -> torch.Tensor:
    """[num_seqs, 2] int32: draft tokens accepted, and the token after them. Only launches, so a graph can hold it."""
    if vocabulary is not None and table.limited:
        if table.searched:
            raise ValueError("top_k and top_p need the whole vocabulary on one GPU; gather the logits first")
        target_logits, table = without_unlikely(target_logits, table, vocabulary)
    first_token = vocabulary.first_token if vocabulary else 0
    parts = _gathered(row_statistics(target_logits, table, first_token), vocabulary)
    reach = row_limits(target_logits, table, parts, tile_size(*target_logits.shape)) if table.limited else None
    decided = decide_rows(table, parts, reach)
    if table.drawn:
        parts = _gathered(second_look(target_logits, table, decided, reach, first_token), vocabulary)
    return verdicts(table, decided, parts, into)


def _gathered(parts: RowParts, vocabulary: VocabularySlice | None) -> RowParts:
    if vocabulary is None:
        return parts
    return RowParts(vocabulary.gather(parts.values), vocabulary.gather(parts.tokens))


def to_verdicts(
    checks: Sequence[SequenceCheck],
    decided: torch.Tensor,  # [at least len(checks), 2] int32: draft tokens accepted, and the token after them
) -> list[Verdict]:
    return [verdict_of(check, *numbers) for check, numbers in zip(checks, decided[: len(checks)].tolist(), strict=True)]
