"""The gated feed-forward block."""

import torch
from torch.nn.functional import linear, silu

from slipstream.layers.mlp import MLP
from slipstream.models.config import ModelConfig

CONFIG = ModelConfig(
    model_type="llama",
    vocab_size=8,
    hidden_size=12,
    intermediate_size=20,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=6,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    mlp_bias=True,
)


@torch.no_grad()
def test_the_gate_decides_what_passes() -> None:
    mlp = MLP(CONFIG, torch.float32)
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, 12)
    weight, bias = mlp.gate_up_proj.weight, mlp.gate_up_proj.bias
    assert bias is not None
    gate, up = linear(x, weight[:20], bias[:20]), linear(x, weight[20:], bias[20:])
    expected = linear(silu(gate) * up, mlp.down_proj.weight, mlp.down_proj.bias)
    torch.testing.assert_close(mlp(x), expected, atol=1e-4, rtol=1e-4)
