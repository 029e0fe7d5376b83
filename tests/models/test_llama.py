"""The model's logits are those of transformers, for every family and layout."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.cache.kv_cache import KVCache
from slipstream.config import default_model_dir
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.layers.linear import can_pack
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from tests.models.reference import reference_logits
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied, biased": {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "llama, llama3 rope": {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE},
    "llama, linear rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama, new rope style": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5}, "rope_theta": None},
    "llama, one KV head, wide heads": {"num_key_value_heads": 1, "head_dim": 16},
    "llama, no sharing of heads": {"num_key_value_heads": 4},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 24},
}
TOKENS = [int(token) for token in torch.randint(3, 320, (100,), generator=torch.Generator().manual_seed(7))]


def load(path: Path, *, pack: bool = False) -> LlamaModel:
    model = load_model(path, torch.float32, CPU)
    if pack:
        model.pack()
    return model


@torch.inference_mode()
def dense_logits(model: LlamaModel, token_ids: list[int]) -> torch.Tensor:
    return model.logits(model.forward_dense(torch.tensor([token_ids])))[0]


@torch.inference_mode()
def paged_logits(model: LlamaModel, kv_cache: KVCache, chunks: list[Chunk]) -> torch.Tensor:
    return model.logits(model(ForwardBatch.build(chunks, kv_cache.block_size, CPU), kv_cache))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, seed=3, **FAMILIES[family])
    expected = reference_logits(path, TOKENS)
    model = load(path)
    kv_cache = KVCache(model.config, 10, 16, torch.float32, CPU)
    paged = paged_logits(model, kv_cache, [Chunk(TOKENS, 0, [8, 2, 5, 1, 9, 0, 4], len(TOKENS))])
    assert expected.std() > 1
    torch.testing.assert_close(dense_logits(model, TOKENS), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(paged, expected, atol=1e-4, rtol=0)


def test_another_rope_would_be_noticed(tmp_path: Path) -> None:
    expected = reference_logits(make_checkpoint(tmp_path / "a", **FAMILIES["llama, llama3 rope"]), TOKENS)
    other = load(make_checkpoint(tmp_path / "b", rope_theta=500000.0))
    assert (dense_logits(other, TOKENS) - expected).abs().max() > 1e-2


def test_packed_weights_change_nothing_but_speed(tmp_path: Path) -> None:
    assert can_pack(CPU, torch.float32)
    path = make_checkpoint(tmp_path, attention_bias=True, tie_word_embeddings=True)
    plain, packed = dense_logits(load(path), TOKENS), dense_logits(load(path, pack=True), TOKENS)
    torch.testing.assert_close(packed, plain, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def shared_model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return load(make_checkpoint(tmp_path_factory.mktemp("model"), seed=11), pack=True)


def random_passes(lengths: list[int], random: Random) -> Iterator[list[tuple[int, int, int]]]:
    """Passes that feed every sequence bit by bit: lists of (sequence, from, to)."""
    fed = [0] * len(lengths)
    while fed != lengths:
        sizes = [random.randint(0, min(40, length - done)) for length, done in zip(lengths, fed, strict=True)]
        yield [(i, fed[i], fed[i] + size) for i, size in enumerate(sizes) if size]
        fed = [done + size for done, size in zip(fed, sizes, strict=True)]


@settings(max_examples=40, deadline=None)
@given(
    block_size=st.sampled_from([1, 4, 16]),
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    seed=st.integers(0, 1 << 32),
)
def test_any_chunking_batching_and_block_table_gives_the_dense_logits(
    block_size: int, lengths: list[int], seed: int, shared_model: LlamaModel
) -> None:
    random = Random(seed)
    sizes = [-(-length // block_size) for length in lengths]
    blocks = iter(random.sample(range(sum(sizes)), sum(sizes)))
    tables = [list(islice(blocks, size)) for size in sizes]
    prompts = [TOKENS[i : i + length] for i, length in enumerate(lengths)]
    kv_cache = KVCache(shared_model.config, sum(sizes), block_size, torch.float32, CPU)
    rows: list[list[torch.Tensor]] = [[] for _ in prompts]
    for parts in filter(None, random_passes(lengths, random)):
        chunks = [Chunk(prompts[i][start:end], start, tables[i], end - start) for i, start, end in parts]
        logits = paged_logits(shared_model, kv_cache, chunks).split([chunk.num_logits for chunk in chunks])
        for (i, _, _), part in zip(parts, logits, strict=True):
            rows[i].append(part)
    for prompt, parts_of_it in zip(prompts, rows, strict=True):
        torch.testing.assert_close(torch.cat(parts_of_it), dense_logits(shared_model, prompt), atol=1e-4, rtol=0)


def test_a_rejected_drafts_keys_are_overwritten(shared_model: LlamaModel) -> None:
    kv_cache = KVCache(shared_model.config, 8, 4, torch.float32, CPU)
    table = [3, 1, 6, 0, 7]
    paged_logits(shared_model, kv_cache, [Chunk(TOKENS[:10], 0, table, 1)])
    paged_logits(shared_model, kv_cache, [Chunk([99, 98, 97, 96], 10, table, 4)])  # all four rejected
    logits = paged_logits(shared_model, kv_cache, [Chunk(TOKENS[10:12], 10, table, 2)])
    torch.testing.assert_close(logits, dense_logits(shared_model, TOKENS[:12])[10:], atol=1e-4, rtol=0)


def test_the_dense_forward_takes_masks_and_positions_and_has_gradients(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path))
    token_ids = torch.tensor([TOKENS[:6] + TOKENS[20:26]])
    blocks = torch.block_diag(torch.ones(6, 6), torch.ones(6, 6)).bool()
    positions = torch.arange(6).repeat(2)[None]
    hidden = model.forward_dense(token_ids, positions, blocks & torch.ones(12, 12).tril().bool())
    alone = [dense_logits(model, TOKENS[:6]), dense_logits(model, TOKENS[20:26])]
    logits = model.logits(hidden)
    torch.testing.assert_close(logits[0], torch.cat(alone), atol=1e-4, rtol=0)
    logits.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.model
def test_the_real_models_logits_equal_those_of_transformers() -> None:
    path = default_model_dir() / "smollm2-135m-instruct"
    token_ids = [
        1,
        9690,
        198,
        2683,
        359,
        253,
        5356,
        5646,
        11173,
        2,
        198,
        1,
        4093,
        198,
        26843,
        2,
        198,
        1,
        520,
        9531,
        198,
    ]
    logits = dense_logits(load(path, pack=True), token_ids)
    torch.testing.assert_close(logits, reference_logits(path, token_ids), atol=5e-4, rtol=0)
