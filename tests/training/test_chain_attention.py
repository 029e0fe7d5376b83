"""One softmax over a text's keys and a row's own, as if they all stood in one matrix."""

from __future__ import annotations

import torch

from slipstream.training.chain_attention import KeyValue, chain_attention

BATCH, HEADS, KV_HEADS, ROWS, PLACES, WIDTH = 2, 6, 2, 5, 9, 8


def keys_and_values(places: int, seed: int) -> KeyValue:
    generator = torch.Generator().manual_seed(seed)
    key, value = torch.randn(2, BATCH, KV_HEADS, places, WIDTH, generator=generator, dtype=torch.float64)
    return key.requires_grad_(), value.requires_grad_()


def plainly(query: torch.Tensor, text: KeyValue, own: list[KeyValue], last: torch.Tensor) -> torch.Tensor:
    """Row by row."""
    rows = []
    for row in range(ROWS):
        seen = torch.arange(PLACES) <= last[row]
        key = torch.cat([text[0][:, :, seen], *(key[:, :, row : row + 1] for key, _ in own)], 2)
        value = torch.cat([text[1][:, :, seen], *(value[:, :, row : row + 1] for _, value in own)], 2)
        key, value = (tensor.repeat_interleave(HEADS // KV_HEADS, 1) for tensor in (key, value))
        weights = (query[:, :, row, None] @ key.transpose(-1, -2) / WIDTH**0.5).softmax(-1)
        rows.append(weights @ value)
    return torch.cat(rows, 2)


def test_it_is_attention_over_what_each_row_sees_and_so_are_its_gradients() -> None:
    query = torch.randn(BATCH, HEADS, ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    text, own = keys_and_values(PLACES, 1), [keys_and_values(ROWS, 2), keys_and_values(ROWS, 3)]
    last = torch.tensor([0, 7, 3, 8, 2])
    leaves = [query, *text, *(tensor for pair in own for tensor in pair)]
    results = [attend(query, text, own, last) for attend in (chain_attention, plainly)]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(result.square().sum(), leaves) for result in results]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
