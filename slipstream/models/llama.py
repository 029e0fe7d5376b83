"""The Llama family of models. Knows layers and shapes; nothing of files, requests or scheduling."""

from __future__ import annotations

from torch import nn


class LlamaModel(nn.Module):
    """Decoder of Llama, SmolLM2, Mistral, Qwen2 and Qwen3, by config."""
