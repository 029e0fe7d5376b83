"""An EAGLE-3 head gives the logits of its equations, written out here in plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.models.eagle3_checkpoint import load_eagle3, load_projection
from tests.models.eagle3_heads import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCAB, head_config, head_weights, write_head

CPU = torch.device("cpu")
DRAFT_IDS = list(range(3, 300, 3))


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * weight


def rotated(x: torch.Tensor) -> torch.Tensor:
    """[heads, time, head_dim] by its positions 0, 1, 2..."""
    half = HEAD_DIM // 2
    angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()), -1)


def transcription(
    weights: dict[str, torch.Tensor], states: torch.Tensor, token_ids: torch.Tensor, *, norm_before_residual: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """z and logits for features of `states` [time, 3 * target hidden] and the tokens after them, [time]."""
    w = {name.removeprefix("midlayer.").removesuffix(".weight"): tensor for name, tensor in weights.items()}
    feature = states @ w["fc"].T if "fc" in w else states
    e, s = normed(w["embed_tokens"][token_ids], w["input_layernorm"]), normed(feature, w["hidden_norm"])
    x = torch.cat((e, s), -1)
    time = len(token_ids)
    query, key, value = (
        (x @ w[f"self_attn.{name}_proj"].T).view(time, heads, HEAD_DIM).transpose(0, 1)
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    )
    key, value = (tensor.repeat_interleave(HEADS // KV_HEADS, 0) for tensor in (rotated(key), value))
    scores = rotated(query) @ key.transpose(1, 2) / HEAD_DIM**0.5
    scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -torch.inf)
    attended = (scores.softmax(-1) @ value).transpose(0, 1).reshape(time, -1) @ w["self_attn.o_proj"].T
    h = (s if norm_before_residual else feature) + attended
    m = normed(h, w["post_attention_layernorm"])
    gate = m @ w["mlp.gate_proj"].T
    z = h + (gate * torch.sigmoid(gate) * (m @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return z, normed(z, w["norm"]) @ w["lm_head"].T


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("norm_before_residual", [False, True])
@pytest.mark.parametrize("draft_ids", [None, DRAFT_IDS])
@pytest.mark.parametrize("target_hidden, aux", [(HIDDEN, True), (24, True), (HIDDEN, False)])
def test_logits_are_those_of_the_equations(
    target_hidden: int, aux: bool, draft_ids: list[int] | None, norm_before_residual: bool, packed: bool, tmp_path: Path
) -> None:
    config = head_config(
        len(draft_ids or range(VOCAB)),
        target_hidden_size=target_hidden,
        norm_before_residual=norm_before_residual,
        eagle_config={"use_aux_hidden_state": aux},
    )
    weights = head_weights(draft_ids, target_hidden=target_hidden, aux=aux)
    folder = write_head(tmp_path / "head", config, weights)
    states = torch.randn(11, target_hidden * (3 if aux else 1), generator=torch.Generator().manual_seed(1))
    token_ids = torch.arange(40, 51)
    expected_z, expected = transcription(weights, states, token_ids, norm_before_residual=norm_before_residual)

    model, target_ids = load_eagle3(folder, torch.float32, CPU)
    features = load_projection(folder, torch.float32, CPU)(states.split(target_hidden, -1))
    if packed:
        model.pack()
    cache = KVCache(model.config.layer, 4, 4, torch.float32, CPU)
    parts = []
    for start, end in ((0, 6), (6, 7), (7, 11)):  # as prompts and drafts are fed: in pieces, over a paged cache
        chunk = Chunk(token_ids[start:end].tolist(), start, [2, 0, 3], num_logits=end - start)
        batch = ForwardBatch.build([chunk], 4, CPU)
        parts.append(model(batch, features[start:end], cache))
    z = torch.cat(parts)
    torch.testing.assert_close(z, expected_z, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.logits(z), expected, rtol=1e-4, atol=1e-4)
    assert (None if target_ids is None else target_ids.tolist()) == draft_ids
