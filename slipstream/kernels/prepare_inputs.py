"""Where each token of a step stands and where its KV is written, from the sequences' sizes and block tables."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def prepare_inputs(
    query_starts: torch.Tensor,  # [num_seqs + 1]: sequence i owns tokens query_starts[i] : query_starts[i + 1]
    context_lens: torch.Tensor,  # [num_seqs]: tokens in the KV cache after this step
    block_tables: torch.Tensor,  # [num_seqs, max_blocks]
    block_size: int,
    num_tokens: int,  # at least query_starts[-1]; those beyond are padding
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and slots, int64 [num_tokens] each. A padding token stands at position 0 and has slot -1."""
    if fused(query_starts):
        from slipstream.kernels.gpu import prepare_inputs as gpu

        return gpu.prepare_inputs(query_starts, context_lens, block_tables, block_size, num_tokens)
    return prepare_inputs_reference(query_starts, context_lens, block_tables, block_size, num_tokens)


def prepare_inputs_reference(
    query_starts: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    block_size: int,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.arange(num_tokens, device=query_starts.device, dtype=query_starts.dtype)
    ends = query_starts[1:].contiguous()
    sequences = torch.searchsorted(ends, tokens, right=True)
    real = sequences < len(ends)
    sequences = sequences.clamp_max(len(ends) - 1)
    positions = torch.where(real, context_lens[sequences] - ends[sequences] + tokens, 0).long()
    slots = block_tables[sequences, positions // block_size] * block_size + positions % block_size
    return positions, torch.where(real, slots, -1)
