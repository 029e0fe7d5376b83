"""Turns the tokens that sequences want to feed into one step's input tensors. Knows block ids; not whose they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

LONGEST_PADDED_QUERY = 32  # longer chunks attend alone: padding them would cost more than a call


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence to feed in this step, a prompt's part or a verify pass alike."""

    token_ids: Sequence[int]  # at least one
    start: int  # absolute position of the first one; everything before it is in the KV cache
    block_ids: Sequence[int]  # the sequence's block table; covers start + len(token_ids) tokens
    num_logits: int  # for how many of the last tokens logits are wanted, 0..len(token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, eq=False, slots=True)
class SequenceGroup:
    """Sequences of similar length, padded to one rectangle for attention.

    A padded query repeats the sequence's last token, so its result is a duplicate and may overwrite the original.
    """

    rows: torch.Tensor  # [num_seqs * max_query_len]: tokens of the batch
    block_ids: torch.Tensor  # [num_seqs * max_blocks]
    mask: torch.Tensor  # [num_seqs, max_query_len, max_blocks * block_size] bool: True where a query sees a key


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
        )

    @cached_property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """The sequences in groups of like query and context lengths (within a factor of two); made once per pass."""
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (query_len, context_len) in enumerate(self.spans):
            alone = query_len > LONGEST_PADDED_QUERY
            key = (-1, index) if alone else (query_len.bit_length(), context_len.bit_length())
            members[key].append(index)
        return tuple(self._group(indices) for indices in members.values())

    def _group(self, indices: list[int]) -> SequenceGroup:
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
            mask=keys <= self.positions[rows][:, :, None],
        )


def _pad(tables: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    padded = np.zeros((len(tables), max(map(len, tables))), dtype=np.int64)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded
