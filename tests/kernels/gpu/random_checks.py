"""Makes checks of every sort over random logits. Knows no kernel."""

from __future__ import annotations

import numpy as np
import torch

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

PLAIN = (SamplingParams(temperature=0.0), SamplingParams(temperature=0.7), SamplingParams(temperature=1e-40))
MIN_P = (SamplingParams(min_p=0.1),)
LIMITED = (
    SamplingParams(temperature=1.3, top_k=5),
    SamplingParams(top_p=0.8),
    SamplingParams(temperature=1.5, top_k=7, top_p=0.7, min_p=0.05),
    *MIN_P,
)


class RandomChecks:
    """A reproducible source of checks, and of logits under which about half of their drafts stand."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._vocab_size = vocab_size

    def law(self) -> SparseLaw:
        size = min(int(self._rng.integers(1, 9)), self._vocab_size)
        token_ids = self._rng.choice(self._vocab_size, size, replace=False).astype(np.int32)
        counts = self._rng.multinomial(LAW_TOTAL - size, self._rng.dirichlet(np.ones(size))) + 1
        return SparseLaw(token_ids, counts.astype(np.uint16))

    def token(self) -> DraftToken:
        if self._rng.random() < 0.5:
            return DraftToken(int(self._rng.integers(self._vocab_size)), LawKind.ONE_HOT)
        law = self.law()
        return DraftToken(int(self._rng.choice(law.token_ids)), LawKind.SPARSE, law)

    def check(self, sampling: SamplingParams, max_draft_tokens: int = 3) -> SequenceCheck:
        return SequenceCheck(
            draft=tuple(self.token() for _ in range(self._rng.integers(max_draft_tokens + 1))),
            base=int(self._rng.integers(1 << 20)),
            sampling=sampling,
            mode=VerificationMode(int(self._rng.integers(1, 3))),
            seed=int(self._rng.integers(1 << 63)) * 2 + 1,
            accept_key=int(self._rng.integers(1 << 63)),
            sample_index=int(self._rng.integers(3)),
        )

    def logits(self, checks: list[SequenceCheck]) -> torch.Tensor:
        """[num_rows, vocab_size] fp32: noise, some tokens masked out, and the drafted ones lifted."""
        num_rows = sum(len(check.draft) + 1 for check in checks)
        logits = torch.from_numpy(self._rng.normal(0, 2, (num_rows, self._vocab_size)).astype(np.float32))
        logits[:, :: max(7, self._vocab_size // 50)] = -torch.inf
        row = 0
        for check in checks:
            for offset, token in enumerate(check.draft):
                logits[row + offset, token.token_id] = 3 + 6 * self._rng.random()
            row += len(check.draft) + 1
        return logits
