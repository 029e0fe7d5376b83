"""Turns the tokens that sequences want to feed into one step's input tensors. Knows block ids; not whose they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from slipstream.kernels.low_rank import RowGroups

LONGEST_PADDED_QUERY = 32  # longer chunks attend alone: padding them would cost more than a call


@dataclass(slots=True)  # not frozen, which would make it three times as dear to make
class Chunk:
    """Tokens of one sequence to feed in this step, a prompt's part or a verify pass alike."""

    token_ids: Sequence[int]  # at least one
    start: int  # absolute position of the first one; everything before it is in the KV cache
    block_ids: Sequence[int]  # the sequence's block table; covers start + len(token_ids) tokens
    num_logits: int  # for how many of the last tokens logits are wanted, 0..len(token_ids)
    wants_features: bool = False  # the tokens' features are kept (feature_tap.py)
    adapter: int | None = None  # slot of the adapter that the sequence has; None: the model as it is

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


class Visibility:
    """Which keys each query sees, in the forms that attention wants; each is made once per pass, not per layer."""

    def __init__(self, mask: torch.Tensor) -> None:
        self.mask = mask  # [num_seqs, query_len, context_len] bool: True where a query sees a key
        self._bias: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def bias(self, repeats: int, dtype: torch.dtype) -> torch.Tensor:
        """What to add to scores: 0 or -inf, [num_seqs, 1, repeats * query_len, context_len]."""
        if (repeats, dtype) not in self._bias:
            hidden = ~self.mask.repeat(1, repeats, 1)[:, None]
            self._bias[repeats, dtype] = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
                hidden, -torch.inf
            )
        return self._bias[repeats, dtype]


@dataclass(frozen=True, eq=False, slots=True)
class SequenceGroup:
    """Sequences of similar length, padded to one rectangle for attention.

    A padded query repeats the sequence's last token, so its result is a duplicate and may overwrite the original.
    """

    rows: torch.Tensor  # [num_seqs * max_query_len]: tokens of the batch
    block_ids: torch.Tensor  # [num_seqs * max_blocks]
    visible: Visibility  # [num_seqs, max_query_len, max_blocks * block_size]


@dataclass(frozen=True, eq=False, slots=True)
class LoneSequence:
    """A sequence that attends alone and whose blocks follow one another: its KV is there without gathering it."""

    rows: slice  # tokens of the batch
    slots: slice  # of the cache: exactly its context
    visible: Visibility | None  # [1, query_len, context_len]; None: its only query sees everything


@dataclass(frozen=True, eq=False)
class ForwardBatch:
    """Inputs of one forward pass: the tokens of all sequences one after another, and where their KV lives."""

    token_ids: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    slot_mapping: torch.Tensor  # [num_tokens] int64: block * block_size + offset, where this token's KV is written
    block_tables: torch.Tensor  # [num_seqs, max_blocks] int64, padded with block 0
    query_starts: torch.Tensor  # [num_seqs + 1] int64: sequence i owns tokens query_starts[i] : query_starts[i + 1]
    context_lens: torch.Tensor  # [num_seqs] int64: tokens in the KV cache after this pass
    logits_rows: torch.Tensor  # [num_logits] int64: tokens whose logits are wanted
    spans: tuple[tuple[int, int], ...]  # per sequence: number of query tokens, context length; for planning on the host
    block_size: int
    first_blocks: tuple[int | None, ...] = ()  # per sequence: its first block, if its blocks follow one another
    adapted: RowGroups | None = None  # tokens by their sequences' adapters; None: there are none

    @classmethod
    def build(cls, chunks: Sequence[Chunk], block_size: int, device: torch.device) -> ForwardBatch:
        """Lays the chunks out one after another. At least one chunk, none empty, block tables long enough."""
        lengths = [len(chunk.token_ids) for chunk in chunks]
        assert min(lengths) > 0, "an empty chunk has nothing to feed"
        query_starts = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.concatenate([np.arange(chunk.start, chunk.end) for chunk in chunks])
        tables = _pad([chunk.block_ids[: -(-chunk.end // block_size)] for chunk in chunks])
        blocks = tables[np.repeat(np.arange(len(chunks)), lengths), positions // block_size]
        rows = [np.arange(end - chunk.num_logits, end) for chunk, end in zip(chunks, query_starts[1:], strict=True)]

        def tensor(values: npt.NDArray[np.int64]) -> torch.Tensor:
            return torch.from_numpy(values).to(device, non_blocking=True)

        return cls(
            token_ids=tensor(np.concatenate([np.asarray(chunk.token_ids, dtype=np.int64) for chunk in chunks])),
            positions=tensor(positions),
            slot_mapping=tensor(blocks * block_size + positions % block_size),
            block_tables=tensor(tables),
            query_starts=tensor(query_starts),
            context_lens=tensor(np.array([chunk.end for chunk in chunks])),
            logits_rows=tensor(np.concatenate(rows)),
            spans=tuple((length, chunk.end) for length, chunk in zip(lengths, chunks, strict=True)),
            block_size=block_size,
            adapted=RowGroups.of([chunk.adapter for chunk in chunks], lengths, device),
            first_blocks=tuple(_first_of_run(chunk.block_ids[: -(-chunk.end // block_size)]) for chunk in chunks),
        )

    @cached_property
    def groups(self) -> tuple[SequenceGroup | LoneSequence, ...]:
        """The sequences in groups of like query and context lengths (within a factor of two); made once per pass."""
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (query_len, context_len) in enumerate(self.spans):
            alone = query_len > LONGEST_PADDED_QUERY
            key = (-1, index) if alone else (query_len.bit_length(), context_len.bit_length())
            members[key].append(index)
        return tuple(self._group(indices) for indices in members.values())

    def _group(self, indices: list[int]) -> SequenceGroup | LoneSequence:
        if len(indices) == 1 and self.first_blocks:
            (index,) = indices
            if (first := self.first_blocks[index]) is not None:
                return self._lone(index, first * self.block_size)
        query_len = max(self.spans[i][0] for i in indices)
        num_blocks = -(-max(self.spans[i][1] for i in indices) // self.block_size)
        device = self.block_tables.device
        chosen = torch.tensor(indices, device=device)
        starts, ends = self.query_starts[chosen], self.query_starts[chosen + 1]
        rows = torch.minimum(starts[:, None] + torch.arange(query_len, device=device), ends[:, None] - 1)
        keys = torch.arange(num_blocks * self.block_size, device=device)
        return SequenceGroup(
            rows=rows.flatten(),
            block_ids=self.block_tables[chosen, :num_blocks].flatten(),
            visible=Visibility(keys <= self.positions[rows][:, :, None]),
        )

    def _lone(self, index: int, first_slot: int) -> LoneSequence:
        query_len, context_len = self.spans[index]
        start = sum(length for length, _ in self.spans[:index])
        rows = slice(start, start + query_len)
        keys = torch.arange(context_len, device=self.positions.device)
        visible = Visibility(keys <= self.positions[None, rows, None]) if query_len > 1 else None
        return LoneSequence(rows, slice(first_slot, first_slot + context_len), visible)


def _first_of_run(block_ids: Sequence[int]) -> int | None:
    first = block_ids[0]
    return first if all(block == first + i for i, block in enumerate(block_ids)) else None


def _pad(tables: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    padded = np.zeros((len(tables), max(map(len, tables))), dtype=np.int64)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded
