"""Changes logits by a table of token rules: penalties, bias, bad words. Knows rows and entries; no requests."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused
from slipstream.sampling.rule_rows import RuleTable, Span


def apply_token_rules(
    logits: torch.Tensor,  # [at least num_rows, vocab] fp32, changed in place
    table: RuleTable,
) -> None:
    """x = (x / scale if x > 0 else x * scale) + addend for each entry of a row; its own win over shared ones."""
    if fused(logits):
        from slipstream.kernels.gpu import token_rules as gpu

        gpu.apply_token_rules(logits, table)
    else:
        apply_token_rules_reference(logits, table)


def apply_token_rules_reference(logits: torch.Tensor, table: RuleTable) -> None:
    own, own_entries = _pairs(table, Span.OWN_START, Span.OWN_END)
    shared, shared_entries = _pairs(table, Span.SHARED_START, Span.SHARED_END)
    own_logits = _changed(logits, own, table.entries[own_entries])  # of the logits before a shared entry changed them
    logits[shared, table.entries[shared_entries, 0].long()] = _changed(logits, shared, table.entries[shared_entries])
    logits[own, table.entries[own_entries, 0].long()] = own_logits


def _pairs(table: RuleTable, start: Span, end: Span) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row beside each of its entries: two tensors [num_pairs] int64."""
    starts = table.spans[:, start].long()
    lengths = table.spans[:, end].long() - starts
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    before = lengths.cumsum(0) - lengths
    entries = torch.arange(len(rows), device=rows.device) - before[rows] + starts[rows]
    return rows, entries


def _changed(
    logits: torch.Tensor,  # [num_rows, vocab]
    rows: torch.Tensor,  # [num_pairs]
    entries: torch.Tensor,  # [num_pairs, NUM_WORDS]
) -> torch.Tensor:
    values = logits[rows, entries[:, 0].long()]
    scales, addends = entries[:, 1].view(torch.float32), entries[:, 2].view(torch.float32)
    return torch.where(values > 0, values / scales, values * scales) + addends
