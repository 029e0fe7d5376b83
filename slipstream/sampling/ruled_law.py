"""Logits under the token rules of their rows: penalties, bias, bad words. Knows no drafts, no noise, no grammar.

Whoever has faster ways to change logits in place hands them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np
import torch

from slipstream.sampling.rule_rows import RowContext, RuleTable, Span, pack_rules, to_device
from slipstream.sampling.token_masks import mask_tokens

Apply = Callable[[torch.Tensor, RuleTable], None]
Mask = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def apply_token_rules(
    logits: torch.Tensor,  # [at least num_rows, vocab] fp32, changed in place
    table: RuleTable,
) -> None:
    """x = (x / scale if x > 0 else x * scale) + addend for each entry of a row; its own win over shared ones."""
    own_rows, own = _own_pairs(table)
    places = own_rows, own[:, 0].long()
    own_logits = _changed(logits[places], own)  # of the logits before a shared entry changed them
    for rows, entries in _shared_runs(table):
        token_ids = entries[:, 0].long()
        logits[rows].index_copy_(1, token_ids, _changed(logits[rows].index_select(1, token_ids), entries))
    logits[places] = own_logits


def _own_pairs(table: RuleTable) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row beside each of its own entries: [num_pairs] int64, [num_pairs, NUM_WORDS]."""
    starts = table.spans[:, Span.OWN_START].long()
    lengths = table.spans[:, Span.OWN_END].long() - starts
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    before = lengths.cumsum(0) - lengths
    places = torch.arange(len(rows), device=rows.device) - before[rows] + starts[rows]
    return rows, table.entries[places]


def _shared_runs(table: RuleTable) -> Iterator[tuple[slice, torch.Tensor]]:
    """Rows one after another that share entries, which are then looked up once: most are of one sequence."""
    first = 0
    for (start, end), run in groupby(table.spans[:, [Span.SHARED_START, Span.SHARED_END]].tolist()):
        last = first + len(list(run))
        if end > start:
            yield slice(first, last), table.entries[start:end]
        first = last


def _changed(
    logits: torch.Tensor,  # [..., num_entries]
    entries: torch.Tensor,  # [num_entries, NUM_WORDS]
) -> torch.Tensor:
    scales, addends = entries[:, 1].view(torch.float32), entries[:, 2].view(torch.float32)
    return torch.where(logits > 0, logits / scales, logits * scales) + addends


def ruled_logits(
    logits: torch.Tensor,  # [num_rows, vocab] fp32; left as it is
    rows: Sequence[RowContext],  # one per row, or none at all
    apply: Apply = apply_token_rules,
) -> torch.Tensor:
    """[num_rows, vocab]: penalties, bias and bad words applied; the very tensor if no row has rules.

    Allowed ids are not: the verifier has them in its token masks.
    """
    words = pack_rules(rows, logits.shape[1])
    if words is None:
        return logits
    ruled = logits.clone()
    apply(ruled, to_device(words, logits.device))
    return ruled


def drafting_logits(
    logits: torch.Tensor,  # [num_rows, vocab] fp32, of a draft model; left as it is
    rows: Sequence[RowContext],  # one per row
    apply: Apply = apply_token_rules,
    mask: Mask = mask_tokens,
) -> torch.Tensor:
    """The same with allowed ids, for a drafter. A row that has no token left keeps its logits: it drafts in vain."""
    ruled = ruled_logits(logits, rows, apply)
    if ruled is logits:
        return logits
    allowed = [(row, context.rules.mask(logits.shape[1])) for row, context in enumerate(rows) if context.rules]
    masked = [(row, bits) for row, bits in allowed if bits is not None]
    if masked:
        bits = torch.from_numpy(np.stack([bits for _, bits in masked]))
        chosen = torch.tensor([row for row, _ in masked], dtype=torch.int32)
        mask(ruled, chosen.to(logits.device), bits.to(logits.device))
    return torch.where(ruled.isinf().all(-1, keepdim=True), logits, ruled)
