"""Token rules on a GPU: a program per row changes the logits that its entries name; without entries it ends at once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.sampling.rule_rows import NUM_SPANS, RuleTable, Span
from slipstream.sampling.token_rules import NUM_WORDS

SHARED_START, SHARED_END = tl.constexpr(int(Span.SHARED_START)), tl.constexpr(int(Span.SHARED_END))
OWN_START, OWN_END = tl.constexpr(int(Span.OWN_START)), tl.constexpr(int(Span.OWN_END))
SPANS, WORDS = tl.constexpr(NUM_SPANS), tl.constexpr(NUM_WORDS)
ONE = tl.constexpr(0x3F800000)  # the bits of 1.0
BLOCK = 512  # entries at once


@triton.jit
def _changed(row_ptr: tl.tensor, entry_ptr: tl.tensor, inside: tl.tensor) -> tuple[tl.tensor, ...]:
    """Where each entry's logit lies, and what it becomes."""
    at = row_ptr + tl.load(entry_ptr, mask=inside, other=0)
    scale = tl.load(entry_ptr + 1, mask=inside, other=ONE).to(tl.float32, bitcast=True)
    addend = tl.load(entry_ptr + 2, mask=inside, other=0).to(tl.float32, bitcast=True)
    logit = tl.load(at, mask=inside, other=0.0)
    return at, tl.where(logit > 0, tl.div_rn(logit, scale), logit * scale) + addend


@triton.jit
def _apply_token_rules_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size] fp32, rows row_stride apart, changed
    spans_ptr: tl.tensor,  # [num_rows, NUM_SPANS] int32
    entries_ptr: tl.tensor,  # [num_entries, NUM_WORDS] int32
    own_ptr: tl.tensor,  # [num_entries] fp32, scratch
    row_stride: int,
    BLOCK: tl.constexpr,
) -> None:
    """x = (x / scale if x > 0 else x * scale) + addend; where both name a token, the row's own entry alone counts."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * row_stride
    span_ptr = spans_ptr + row * SPANS
    shared_end, own_end = tl.load(span_ptr + SHARED_END), tl.load(span_ptr + OWN_END)
    own_start = tl.load(span_ptr + OWN_START)
    for start in range(own_start, own_end, BLOCK):  # of the logits before a shared entry changed them
        index = start + tl.arange(0, BLOCK)
        inside = index < own_end
        _, value = _changed(row_ptr, entries_ptr + index * WORDS, inside)
        tl.store(own_ptr + index, value, mask=inside)
    tl.debug_barrier()
    for start in range(tl.load(span_ptr + SHARED_START), shared_end, BLOCK):
        index = start + tl.arange(0, BLOCK)
        inside = index < shared_end
        at, value = _changed(row_ptr, entries_ptr + index * WORDS, inside)
        tl.store(at, value, mask=inside)
    tl.debug_barrier()
    for start in range(own_start, own_end, BLOCK):
        index = start + tl.arange(0, BLOCK)
        inside = index < own_end
        token = tl.load(entries_ptr + index * WORDS, mask=inside, other=0)
        tl.store(row_ptr + token, tl.load(own_ptr + index, mask=inside, other=0.0), mask=inside)


def apply_token_rules(
    logits: torch.Tensor,  # [at least num_rows, vocab] fp32, changed in place
    table: RuleTable,
) -> None:
    """x = (x / scale if x > 0 else x * scale) + addend for each entry of a row; only launches."""
    num_rows = len(table.spans)
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    assert all(part.is_contiguous() for part in (table.spans, table.entries))
    own = torch.empty(len(table.entries), device=logits.device)
    _apply_token_rules_kernel[(num_rows,)](
        logits, table.spans, table.entries, own, logits.stride(0), BLOCK=BLOCK, num_warps=4
    )
