"""Embedding and head of one rank's tokens. Knows which tokens those are; nothing of the layers between."""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.models.config import ModelConfig
from slipstream.parallel.ranks import Ranks
from slipstream.sampling.vocabulary_slice import VocabularySlice


class VocabularyShare:
    """Rows of the vocabulary that one rank holds; all ranks have equally many, the last ones' end may be padding."""

    def __init__(self, config: ModelConfig, ranks: Ranks) -> None:
        self._tokens, self._ranks = ranks.shard.tokens(config), ranks
        self._vocab_size = config.vocab_size

    def embed(
        self,
        token_ids: torch.Tensor,  # [num_tokens], of the whole vocabulary
        embedding: torch.Tensor,  # [own tokens, hidden]
    ) -> torch.Tensor:
        """[num_tokens, hidden]: each token's row from the rank that has it, zeros from the others."""
        if self._ranks.shard.size == 1:
            return functional.embedding(token_ids, embedding)
        rows = token_ids - self._tokens.start
        own = (rows >= 0) & (rows < len(self._tokens))
        embedded = functional.embedding(rows.where(own, 0), embedding)
        return self._ranks.sum(embedded.masked_fill_(~own[:, None], 0))

    @property
    def slice(self) -> VocabularySlice:
        """What verification must know of the logits below."""
        return VocabularySlice(self._tokens.start, self._ranks.gather, self._vocab_size)

    def hide_padding(self, logits: torch.Tensor) -> torch.Tensor:
        """In place: padding is no token, so nothing may choose it. [..., own tokens]"""
        if len(self._tokens) < logits.shape[-1]:
            logits[..., len(self._tokens) :] = -torch.inf
        return logits
