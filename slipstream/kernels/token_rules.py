"""Changes logits by a table of token rules: penalties, bias, bad words. Knows rows and entries; no requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

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
