"""What a draft loop's steps are fed, from the words that the host wrote. The torch reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from slipstream.kernels.dispatch import fused


@dataclass(frozen=True, slots=True)
class LoopWords:
    """As the host writes them, int32."""

    token_ids: torch.Tensor  # [num_tokens]
    context_lens: torch.Tensor  # [num_tokens]: position + 1, 0 for padding
    token_rows: torch.Tensor  # [num_tokens]: whose they are
    last_tokens: torch.Tensor  # [num_rows]: each row's last of them
    num_steps: torch.Tensor  # [num_rows]: tokens that each is to draw, 0 for padding
    block_tables: torch.Tensor  # [num_rows, max_blocks]


@dataclass(frozen=True, slots=True)
class LoopPlaces:
    """As steps take them, int64."""

    token_ids: torch.Tensor  # [num_tokens], of the first step
    context_lens: torch.Tensor  # [num_tokens]
    token_tables: torch.Tensor  # [num_tokens, max_blocks]
    block_tables: torch.Tensor  # [num_rows, max_blocks], of the steps after it
    last_tokens: torch.Tensor  # [num_rows]
    positions: torch.Tensor  # [num_steps, num_rows]: where each token that is drawn is to stand
    contexts: torch.Tensor  # [num_steps, num_rows]: context lengths of what is fed; 0 once a row has all it wants


def place_loop(words: LoopWords, num_steps: int) -> LoopPlaces:
    if fused(words.token_ids):
        from slipstream.kernels.gpu import loop_rows as gpu

        return gpu.place_loop(words, num_steps)
    return place_loop_reference(words, num_steps)


def place_loop_reference(words: LoopWords, num_steps: int) -> LoopPlaces:
    tables, last_tokens, contexts = words.block_tables.long(), words.last_tokens.long(), words.context_lens.long()
    steps = torch.arange(num_steps, device=contexts.device)[:, None]
    positions = contexts.index_select(0, last_tokens) + steps
    return LoopPlaces(
        token_ids=words.token_ids.long(),
        context_lens=contexts,
        token_tables=tables.index_select(0, words.token_rows.long()),
        block_tables=tables,
        last_tokens=last_tokens,
        positions=positions,
        contexts=positions.masked_fill(steps >= words.num_steps, 0),
    )
