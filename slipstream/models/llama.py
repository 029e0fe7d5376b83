"""The Llama family of models. Knows layers and shapes; nothing of files, requests or scheduling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import ForwardBatch
from slipstream.layers.attention import Attention, CosSin
from slipstream.layers.linear import Linear, pack_weight, packed_linear, pad_rows, padded_size
from slipstream.layers.mlp import MLP
from slipstream.layers.norm import RMSNorm
from slipstream.layers.rotary import RotaryEmbedding
from slipstream.layers.vocabulary import VocabularyShare
from slipstream.models.config import ModelConfig
from slipstream.parallel.ranks import ALONE, Ranks
from slipstream.sampling.vocabulary_slice import VocabularySlice


class DecoderLayer(nn.Module):
    """Attention, then feed-forward, each on the normalised residual stream; `config` is one rank's share."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.input_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype)
        self.attention = Attention(config, dtype, ranks=ranks)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype)
        self.mlp = MLP(config, dtype, ranks)

    def forward(
        self,
        x: torch.Tensor,  # [num_tokens, hidden], what the layer before added
        residual: torch.Tensor,  # [num_tokens, hidden], the stream without it
        cos_sin: CosSin,
        kv: tuple[torch.Tensor, torch.Tensor],  # this layer's key cache and value cache
        batch: ForwardBatch,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self.input_norm.add(x, residual)
        x, residual = self.mlp_norm.add(self.attention(x, cos_sin, *kv, batch), residual)
        return self.mlp(x, batch.adapted), residual

    def forward_dense(self, hidden: torch.Tensor, cos_sin: CosSin, mask: torch.Tensor | None) -> torch.Tensor:
        hidden = hidden + self.attention.forward_dense(self.input_norm(hidden), cos_sin, mask)
        output: torch.Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return output


class LlamaModel(nn.Module):
    """Decoder of Llama, SmolLM2, Mistral, Qwen2 and Qwen3, by config. Weights are uninitialised until loaded.

    Of several ranks each holds its share of every layer and of the vocabulary, and computes the logits of that.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.config, self.dtype, self.ranks = config, dtype, ranks
        self.share = share = ranks.shard.share(config)
        self.embedding = nn.Parameter(torch.empty(share.vocab_size, config.hidden_size, dtype=dtype))
        self.layers = nn.ModuleList(DecoderLayer(share, dtype, ranks) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype)
        tied = config.tie_word_embeddings
        self.head = None if tied else nn.Parameter(torch.empty_like(self.embedding))  # [vocab, hidden]
        self._packed_head: torch.Tensor | None = None
        self.rotary = RotaryEmbedding(config.rope, config.head_dim)
        self._vocabulary = VocabularyShare(config, ranks)

    def forward(self, batch: ForwardBatch, kv_cache: KVCache) -> torch.Tensor:
        """Feeds the batch, writes its keys and values, and returns the hidden states [num_logits, hidden]."""
        return self.forward_tapped(batch, kv_cache, ())[0]

    def forward_tapped(
        self, batch: ForwardBatch, kv_cache: KVCache, layer_ids: Sequence[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Also the states [num_tokens, hidden] that enter the layers `layer_ids`, in that order.

        The number of layers stands for the state that leaves the last one, normalised.
        """
        num_tokens, tapped = len(batch.token_ids), dict[int, torch.Tensor]()
        residual = self._vocabulary.embed(batch.token_ids, self.embedding)
        if self._packed_head is not None:
            residual = pad_rows(residual, padded_size(num_tokens))  # once, not before every product
        x = torch.zeros_like(residual)
        cos_sin = self.rotary(batch.positions, self.embedding.dtype)
        caches = zip(kv_cache.keys, kv_cache.values, strict=True)
        for index, (layer, kv) in enumerate(zip(self.layers, caches, strict=True)):
            if index in layer_ids:
                tapped[index] = (x + residual)[:num_tokens]
            x, residual = layer(x, residual, cos_sin, kv, batch)
        rows = batch.logits_rows
        if len(self.layers) in layer_ids:
            tapped[len(self.layers)] = self.norm(x + residual)[:num_tokens]
        hidden = self.norm.add(x.index_select(0, rows), residual.index_select(0, rows))[0]
        return hidden, [tapped[index] for index in layer_ids]

    def forward_dense(
        self,
        token_ids: torch.Tensor,  # [batch, time]
        positions: torch.Tensor | None = None,  # [batch, time]; None = 0..time - 1
        attention_mask: torch.Tensor | None = None,  # [(batch,) time, time], True = may attend; None = causal
    ) -> torch.Tensor:
        """Hidden states [batch, time, hidden] of whole sequences, without a cache, differentiable."""
        return self.forward_dense_tapped(token_ids, (), positions, attention_mask)[0]

    def forward_dense_tapped(
        self,
        token_ids: torch.Tensor,
        layer_ids: Sequence[int],
        positions: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """As `forward_dense`, with the states that enter the layers `layer_ids` as `forward_tapped` has them."""
        tapped: dict[int, torch.Tensor] = {}
        if positions is None:
            positions = torch.arange(token_ids.shape[1], device=token_ids.device).expand_as(token_ids)
        if attention_mask is not None and attention_mask.dim() == 3:
            attention_mask = attention_mask[:, None]
        hidden = functional.embedding(token_ids, self.embedding)
        cos_sin = self.rotary(positions, hidden.dtype)
        for index, layer in enumerate(self.layers):
            if index in layer_ids:
                tapped[index] = hidden
            assert isinstance(layer, DecoderLayer)
            hidden = layer.forward_dense(hidden, cos_sin, attention_mask)
        normalised = tapped[len(self.layers)] = self.norm(hidden)
        return normalised, [tapped[index] for index in layer_ids]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """fp32 logits [..., vocab] of hidden states [..., hidden]; several ranks put theirs together."""
        if self.ranks.shard.size == 1:
            return self.slice_logits(hidden)
        return self._vocabulary.slice.whole(self.slice_logits(hidden))

    @property
    def vocabulary_slice(self) -> VocabularySlice:
        """Of which tokens `slice_logits` are."""
        return self._vocabulary.slice

    def slice_logits(self, hidden: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
        """The logits of this rank's share of the vocabulary, -inf beyond its end: [..., share], fp32, there if told."""
        if self._packed_head is not None:
            return self._vocabulary.hide_padding(packed_linear(hidden, self._packed_head, None).float())
        head = self.embedding if self.head is None else self.head
        product = functional.linear(hidden, head)
        return self._vocabulary.hide_padding(product.float() if into is None else into.copy_(product))

    def reduce_head(self, tokens: torch.Tensor) -> None:
        """From now on logits are those of `tokens` [draft vocab] alone, in that order."""
        head = self.embedding if self.head is None else self.head
        self.head = nn.Parameter(head.detach()[tokens], requires_grad=False)

    def pack(self) -> None:
        """Trades weights for what a CPU reads twice as fast, inference only. See layers/linear.py and norm.py."""
        self._packed_head = pack_weight(self.embedding if self.head is None else self.head)
        self.head = None
        for module in self.modules():
            if isinstance(module, Linear | RMSNorm):
                module.pack()
