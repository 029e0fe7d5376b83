"""Takes tokens out of rows of logits on a GPU, by packed masks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096


@triton.jit
def _mask_tokens_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart, changed in place
    rows_ptr: tl.tensor,  # [num_masks] int32
    bits_ptr: tl.tensor,  # [num_masks, num_words] int32
    row_stride: int,
    num_words: int,
    vocab_size: int,
    TILE: tl.constexpr,
) -> None:
    """logits[rows[i], t] = -inf where bit t of bits[i] is 0. Only what is taken out is written."""
    index = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = tokens < vocab_size
    words = tl.load(bits_ptr + index * num_words + tokens // 32, mask=inside, other=-1)
    allowed = (words >> (tokens % 32)) & 1
    row = tl.load(rows_ptr + index).to(tl.int64)
    tl.store(logits_ptr + row * row_stride + tokens, float("-inf"), mask=inside & (allowed == 0))


def mask_tokens(
    logits: torch.Tensor,  # [num_rows, vocab], changed in place
    rows: torch.Tensor,  # [num_masks] int32
    bits: torch.Tensor,  # [num_masks, >= ceil(vocab / 32)] int32
) -> None:
    """Sets the logits of the tokens that may not come to -inf."""
    vocab_size, (num_masks, num_words) = logits.shape[1], bits.shape
    if num_words * 32 < vocab_size:
        raise ValueError(f"bits has {num_words} words a row; {vocab_size} tokens need {-(-vocab_size // 32)}")
    assert logits.stride(1) == 1
    assert bits.is_contiguous()
    if num_masks:
        _mask_tokens_kernel[(num_masks, triton.cdiv(vocab_size, TILE))](
            logits, rows, bits, logits.stride(0), num_words, vocab_size, TILE=TILE, num_warps=8
        )
