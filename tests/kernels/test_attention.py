"""The plain attention: each token sees its own sequence up to itself."""

import math

import pytest
import torch

from slipstream.kernels.attention import paged_attention
from slipstream.kernels.batch import Chunk, ForwardBatch

BLOCK_SIZE = 4


def plain_attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One query token over the tokens it sees, head by head: query [heads, dim], keys and values [tokens, kv, dim]."""
    output = torch.empty_like(query)
    sharing = query.shape[0] // keys.shape[1]
    for head in range(query.shape[0]):
        scores = keys[:, head // sharing] @ query[head] / math.sqrt(query.shape[1])
        output[head] = scores.softmax(0) @ values[:, head // sharing]
    return output


def expected(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, chunks: list[Chunk]
) -> torch.Tensor:
    rows, token = [], 0
    for chunk in chunks:
        keys, values = (cache[list(chunk.block_ids)].flatten(0, 1) for cache in (key_cache, value_cache))
        for position in range(chunk.start, chunk.end):
            rows.append(plain_attention(query[token], keys[: position + 1], values[: position + 1]))
            token += 1
    return torch.stack(rows)


SHAPES = {
    "one query each": [(1, 5), (1, 0), (1, 11)],
    "a verify pass of different lengths": [(5, 6), (3, 4), (1, 7)],
    "a prefill": [(37, 0)],
    "prefill, its second chunk, decode and verify together": [(40, 0), (33, 9), (1, 30), (4, 2)],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (3, 3)])
@pytest.mark.parametrize("in_a_run", [False, True])
def test_every_token_sees_its_own_sequence_up_to_itself(shape: str, heads: tuple[int, int], in_a_run: bool) -> None:
    chunks, used = [], 0
    for length, start in SHAPES[shape]:
        num_blocks = -(-(start + length) // BLOCK_SIZE)
        blocks = range(used + 1, used + num_blocks + 1)
        chunks.append(Chunk([1] * length, start, list(blocks if in_a_run else reversed(blocks)), 0))
        used += num_blocks
    num_heads, kv_heads = heads
    query = torch.randn(sum(len(chunk.token_ids) for chunk in chunks), num_heads, 8)
    key_cache, value_cache = torch.randn(2, used + 1, BLOCK_SIZE, kv_heads, 8)
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, torch.device("cpu"))
    output = paged_attention(query, key_cache, value_cache, batch)
    torch.testing.assert_close(output, expected(query, key_cache, value_cache, chunks), atol=1e-5, rtol=0)


def test_what_lies_beyond_the_context_does_not_matter() -> None:
    query, (key_cache, value_cache) = torch.randn(1, 2, 8), torch.randn(2, 2, BLOCK_SIZE, 1, 8)
    batch = ForwardBatch.build([Chunk([1], 1, [1], 1)], BLOCK_SIZE, torch.device("cpu"))
    before = paged_attention(query, key_cache, value_cache, batch)
    key_cache[1, 2:], value_cache[1, 2:] = 99, 99
    assert torch.equal(paged_attention(query, key_cache, value_cache, batch), before)
