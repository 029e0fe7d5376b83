"""Attention over the paged cache and over whole sequences gives the same."""

from dataclasses import replace

import pytest
import torch

from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.layers.attention import Attention
from slipstream.layers.rotary import RotaryEmbedding
from slipstream.models.config import ModelConfig

CPU = torch.device("cpu")
CONFIG = ModelConfig(
    model_type="llama",
    vocab_size=8,
    hidden_size=12,
    intermediate_size=20,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
)
CONFIGS = {
    "plain": CONFIG,
    "with biases": replace(CONFIG, qkv_bias=True, output_bias=True),
    "with norms of queries and keys": replace(CONFIG, model_type="qwen3", qk_norm=True),
}


def make_attention(config: ModelConfig) -> Attention:
    attention = Attention(config, torch.float32)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention


@torch.no_grad()
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_paged_and_the_dense_form_agree(kind: str) -> None:
    attention, x = make_attention(CONFIGS[kind]), torch.randn(9, 12)
    cos_sin = RotaryEmbedding(CONFIG.rope, CONFIG.head_dim)(torch.arange(9), torch.float32)
    key_cache, value_cache = torch.zeros(2, 5, 4, 2, 6)
    batch = ForwardBatch.build([Chunk([1] * 9, 0, [4, 0, 2], 0)], 4, CPU)
    paged = attention(x, cos_sin, key_cache, value_cache, batch)
    torch.testing.assert_close(paged, attention.forward_dense(x[None], cos_sin, None)[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_padding_rows_are_carried_along_and_change_nothing() -> None:
    attention, x = make_attention(CONFIG), torch.randn(2, 12)
    cos_sin = RotaryEmbedding(CONFIG.rope, CONFIG.head_dim)(torch.arange(2), torch.float32)
    batch = ForwardBatch.build([Chunk([1] * 2, 0, [1], 0)], 4, CPU)

    def run(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        caches = torch.zeros(2, 5, 4, 2, 6)
        return attention(rows, cos_sin, *caches, batch), caches

    output, caches = run(x)
    padded_output, padded_caches = run(torch.cat((x, torch.ones(2, 12))))
    torch.testing.assert_close(padded_output[:2], output)
    torch.testing.assert_close(padded_caches, caches)


@torch.no_grad()
def test_a_mask_hides_tokens_and_none_is_causal() -> None:
    attention, x = make_attention(CONFIG), torch.randn(1, 6, 12)
    cos_sin = RotaryEmbedding(CONFIG.rope, CONFIG.head_dim)(torch.arange(6), torch.float32)
    causal = torch.ones(6, 6).tril().bool()
    torch.testing.assert_close(attention.forward_dense(x, cos_sin, causal), attention.forward_dense(x, cos_sin, None))
    alone = attention.forward_dense(x, cos_sin, torch.eye(6).bool())
    other = x.clone()
    other[:, :5] += 1
    torch.testing.assert_close(attention.forward_dense(other, cos_sin, torch.eye(6).bool())[:, 5], alone[:, 5])
