"""Lays the checks of a batch out as rows: one per draft token and one for the token after them. Knows no logits.

All of it is known before the target has run, so it is built on the host and only uploaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from slipstream.exchange import LAW_TOTAL, DraftToken, SparseLaw
from slipstream.request import SamplingParams
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.noise import key_tensor
from slipstream.sampling.philox import Stream, random_words, uniform

PAD = -1  # stands for a draft token where there is none; equals no token, so it can never be accepted
NEVER = np.float32(np.inf)  # in place of a uniform number: no law accepts


@dataclass(frozen=True, slots=True)
class SparseRows:
    """The draft tokens whose law decides, and their laws; after these an empty law, that of every other row."""

    rows: torch.Tensor  # [num_sparse] int64, row indices
    draft_ids: torch.Tensor  # [num_sparse] int64
    uniforms: torch.Tensor  # [num_sparse] fp32, from the ACCEPT stream
    draft_probs: torch.Tensor  # [num_sparse] fp32, of the draft token under its law
    law_slots: torch.Tensor  # [num_rows] int64, which law is the row's
    law_token_ids: torch.Tensor  # [num_sparse + 1, m] int64
    law_probs: torch.Tensor  # [num_sparse + 1, m] fp32, 0 beyond a law's end


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRows:
    sequences: torch.Tensor  # [num_rows] int64, index of the row's sequence
    offsets: torch.Tensor  # [num_rows] int64, draft tokens before this one
    draft_ids: torch.Tensor  # [num_rows] int64, PAD in each sequence's last row unless its draft was cut there
    seeds: torch.Tensor  # [num_rows] int64, bits of the 64-bit seed
    positions: torch.Tensor  # [num_rows] int64
    sample_indices: torch.Tensor  # [num_rows] int64
    first_rows: torch.Tensor  # [num_seqs] int64
    matched: torch.Tensor  # row indices: decided by match
    noisy: torch.Tensor  # those of them that need noise
    drawn: torch.Tensor  # sequence indices: the last token is drawn once the number of accepted ones is known
    sparse: SparseRows
    sampling: list[SamplingParams]  # one per row
    max_rows: int  # of one sequence


@dataclass(frozen=True, slots=True)
class _Row:
    sequence: int
    offset: int
    token: DraftToken | None  # none in a sequence's last row, unless its draft was cut there
    check: SequenceCheck
    matched: bool  # target and noise alone decide; else the token's law does, or there is no token

    @property
    def token_id(self) -> int:
        return self.token.token_id if self.token else PAD

    @property
    def position(self) -> int:
        return self.check.base + self.offset

    @property
    def is_cut(self) -> bool:
        return self.token is not None and self.offset == len(self.check.draft)

    @property
    def law(self) -> SparseLaw | None:
        """The law that decides about the row's draft token, if one does."""
        return self.token.law if self.token and not self.matched else None


def lay_out(checks: Sequence[SequenceCheck], device: torch.device) -> CheckRows:
    """Rows in the order of the checks, each sequence's by position."""
    rows = [
        _Row(sequence, offset, token, check, check.is_matched(token) if token else check.matched_only)
        for sequence, check in enumerate(checks)
        for offset, token in enumerate((*check.draft, check.last_token))
    ]
    return CheckRows(
        sequences=_ints((row.sequence for row in rows), device),
        offsets=_ints((row.offset for row in rows), device),
        draft_ids=_ints((row.token_id for row in rows), device),
        seeds=key_tensor([row.check.seed for row in rows], device),
        positions=_ints((row.position for row in rows), device),
        sample_indices=_ints((row.check.sample_index for row in rows), device),
        first_rows=_where((row.offset == 0 for row in rows), device),
        matched=_where((row.matched for row in rows), device),
        noisy=_where((row.matched and not row.check.sampling.greedy for row in rows), device),
        drawn=_where((not check.matched_only for check in checks), device),
        sparse=_lay_out_laws(rows, device),
        sampling=[row.check.sampling for row in rows],
        max_rows=1 + max(len(check.draft) for check in checks),
    )


def _lay_out_laws(rows: Sequence[_Row], device: torch.device) -> SparseRows:
    sparse = [(index, row, row.law) for index, row in enumerate(rows) if row.law is not None]
    width = max((len(law.counts) for _, _, law in sparse), default=0)
    token_ids = np.zeros((len(sparse) + 1, width), dtype=np.int64)
    probs = np.zeros((len(sparse) + 1, width), dtype=np.float32)
    slots = np.full(len(rows), len(sparse))
    for slot, (index, _, law) in enumerate(sparse):
        slots[index] = slot
        token_ids[slot, : len(law.counts)] = law.token_ids
        probs[slot, : len(law.counts)] = law.counts / np.float32(LAW_TOTAL)
    return SparseRows(
        rows=_ints((index for index, _, _ in sparse), device),
        draft_ids=_ints((row.token_id for _, row, _ in sparse), device),
        uniforms=torch.from_numpy(_accept_uniforms([row for _, row, _ in sparse])).to(device),
        draft_probs=torch.tensor([law.probability(row.token_id) for _, row, law in sparse], device=device),
        law_slots=torch.from_numpy(slots).to(device),
        law_token_ids=torch.from_numpy(token_ids).to(device),
        law_probs=torch.from_numpy(probs).to(device),
    )


def _accept_uniforms(rows: Sequence[_Row]) -> npt.NDArray[np.float32]:
    if not rows:
        return np.empty(0, dtype=np.float32)  # greedy steps have none: a third of a millisecond less for each
    numbers = [(row.check.accept_key, row.position, row.check.sample_index) for row in rows]
    keys, positions, sample_indices = np.array(numbers, dtype=np.uint64).reshape(-1, 3).T
    uniforms = uniform(random_words(keys, positions, sample_indices, Stream.ACCEPT))
    return np.where([row.is_cut for row in rows], NEVER, uniforms)


def _ints(values: Iterable[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int64, device=device)


def _where(flags: Iterable[bool], device: torch.device) -> torch.Tensor:
    return _ints((index for index, flag in enumerate(flags) if flag), device)
