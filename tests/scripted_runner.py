"""A model runner whose model is a function of the tokens so far, read back out of its KV blocks.

Tokens are written to the slots that the chunk names and the history is read from there, so that wrong bookkeeping
(a stale block, a block used twice, KV of rejected drafts) shows up as other text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch

from slipstream.engine.scoring import ScoredChunk, divided
from slipstream.exchange import TokenLogprobs
from slipstream.kernels.batch import Chunk
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import read_scores, score
from slipstream.sampling.verification import verify

Law = Callable[[tuple[int, ...]], np.ndarray]  # tokens so far -> logits [vocab]


class ScriptedRunner:
    can_follow = False

    def __init__(
        self,
        law: Law,
        vocab_size: int,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_model_len: int = 64,
        eos_token_ids: tuple[int, ...] = (),
    ) -> None:
        self.config = SimpleNamespace(vocab_size=vocab_size, eos_token_ids=eos_token_ids)
        self.kv_cache = SimpleNamespace(num_blocks=num_blocks, block_size=block_size)
        self.max_model_len = max_model_len
        self.expected_end = 0.0
        self.chunks: list[list[Chunk]] = []  # of every step
        self._law = law
        self._slots = np.full((num_blocks, block_size), -1)

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        self.chunks.append([Chunk(tuple(c.token_ids), c.start, tuple(c.block_ids), c.num_logits) for c in chunks])
        rows = [row for chunk in chunks for row in self._feed(chunk)]
        return torch.tensor(np.array(rows).reshape(len(rows), self.config.vocab_size), dtype=torch.float32)

    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        return lambda: self.verify(chunks, checks)

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        logits = self.forward(chunks)
        return verify(logits, checks) if checks else []

    def score(self, prompts: Sequence[ScoredChunk]) -> Callable[[], list[TokenLogprobs]]:
        logits = self.forward([one.chunk for one in prompts])
        next_ids = torch.tensor([token_id for one in prompts for token_id in one.next_ids])
        words = score(logits, next_ids, max(one.num_top for one in prompts))
        return lambda: divided(read_scores(words), prompts)

    def _feed(self, chunk: Chunk) -> list[np.ndarray]:
        size = self.kv_cache.block_size
        for position, token_id in enumerate(chunk.token_ids, start=chunk.start):
            self._slots[chunk.block_ids[position // size], position % size] = token_id
        history = tuple(self._slots[list(chunk.block_ids)].reshape(-1)[: chunk.end].tolist())
        assert -1 not in history, "a slot was read that nobody wrote"
        return [self._law(history[:end]) for end in range(chunk.end - chunk.num_logits + 1, chunk.end + 1)]


def random_law(vocab_size: int, *, seed: int = 0, spread: float = 2.0) -> Law:
    """Logits that depend on the whole history."""

    @cache
    def law(history: tuple[int, ...]) -> np.ndarray:
        words = np.random.SeedSequence([seed, len(history), *history])
        return np.random.default_rng(words).normal(scale=spread, size=vocab_size)

    return law


def chain_law(vocab_size: int, successor: Callable[[tuple[int, ...]], int]) -> Law:
    """Almost certain of one token: `successor` of the history."""

    def law(history: tuple[int, ...]) -> np.ndarray:
        logits = np.zeros(vocab_size)
        logits[successor(history)] = 50.0
        return logits

    return law
