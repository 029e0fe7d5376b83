"""A draft loop's inputs and results at fixed addresses: one copy to the device, one copy back. Knows no model.

Both copies are between fixed addresses, too, so that the loop's graph holds them: a call into the driver less each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from slipstream.kernels.draft_choice import GREEDY, NUM_SETTINGS, table_of
from slipstream.kernels.loop_rows import LoopWords

Ints = npt.NDArray[np.int32]
TOKENS_PER_ROW = 2  # that the first step has room for, on average: what a path catches up with
FEWEST_TOKENS = 4
NO_COPY = NO_ADAPTER = -1


@dataclass(frozen=True, order=True, slots=True)
class LoopSize:
    """One padded size, or what is asked for."""

    num_rows: int  # paths drawn for
    num_steps: int

    @property
    def num_tokens(self) -> int:
        """Of the first step."""
        return max(FEWEST_TOKENS, TOKENS_PER_ROW * self.num_rows)


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One path: tokens to feed, then how many to draw and how. At least one token, unless another row feeds them."""

    token_ids: Sequence[int]
    start: int  # position of the first
    block_ids: Sequence[int]  # cover all positions that are written
    num_steps: int  # tokens to draw
    settings: tuple[int, ...]  # draft_choice.settings_of
    features: npt.NDArray[np.uint16] | None = None  # bf16 [num_tokens, size], of the token before each, see eagle3_step
    adapter: int | None = None  # slot of the row's adapter; None: the model as it is


@dataclass(frozen=True, slots=True)
class LoopInputs:
    """Views of one buffer, int32, for one size."""

    token_ids: torch.Tensor  # [num_tokens]
    context_lens: torch.Tensor  # [num_tokens]: position + 1, 0 for padding
    token_rows: torch.Tensor  # [num_tokens]: whose they are
    adapters: torch.Tensor  # [num_tokens]: slots of adapters, negative: none
    last_tokens: torch.Tensor  # [num_rows]: each row's last of them
    num_steps: torch.Tensor  # [num_rows], 0 for padding
    settings: torch.Tensor  # [num_rows, NUM_SETTINGS]
    copies: torch.Tensor  # [num_rows, 2]: KV blocks to copy first, source and destination; a negative source: none
    block_tables: torch.Tensor  # [num_rows, max_blocks]

    @property
    def words(self) -> LoopWords:
        """What is to be placed on the device."""
        tokens = self.token_ids, self.context_lens, self.token_rows
        return LoopWords(*tokens, self.last_tokens, self.num_steps, self.block_tables)


class LoopBuffers:
    """For loops up to a size; smaller ones use the front of the same memory."""

    def __init__(self, largest: LoopSize, *, width: int, max_blocks: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._max_blocks, self._width = max_blocks, width
        words = _num_words(largest, max_blocks)
        self._host, self._on_device = (
            torch.zeros(words, dtype=torch.int32, pin_memory=pinned),
            torch.zeros(words, dtype=torch.int32, device=device),
        )
        self._numpy_parts: dict[LoopSize, list[Ints]] = {}
        results = largest.num_rows * largest.num_steps * width
        self._drawn = torch.zeros(results, dtype=torch.int32, device=device)
        self._read = torch.zeros(results, dtype=torch.int32, pin_memory=pinned)

    def inputs(self, size: LoopSize) -> LoopInputs:
        return LoopInputs(*_parts(self._on_device, size, self._max_blocks))

    def drawn(self, size: LoopSize) -> torch.Tensor:
        """[num_steps, num_rows, width] on the device."""
        return self._results(self._drawn, size)

    def write(self, size: LoopSize, rows: Sequence[LoopRow], copies: Sequence[tuple[int, int]] = ()) -> None:
        """Writes the rows on the host; the loop before must have ended. No row at all: padding alone."""
        parts = self._host_parts(size)
        token_ids, context_lens, token_rows, adapters, last_tokens, num_steps, settings, copied, tables = parts
        lengths = [len(row.token_ids) for row in rows]
        assert sum(lengths) <= len(token_ids), f"{sum(lengths)} tokens, room for {len(token_ids)}"
        _write(token_ids, [token for row in rows for token in row.token_ids], 0)
        _write(context_lens, [row.start + i + 1 for row in rows for i in range(len(row.token_ids))], 0)
        _write(token_rows, np.repeat(np.arange(len(rows)), lengths), 0)
        slots = [NO_ADAPTER if row.adapter is None else row.adapter for row in rows]
        _write(adapters, np.repeat(slots, lengths) if rows else [], NO_ADAPTER)
        _write(last_tokens, np.cumsum(lengths) - 1, 0)
        _write(num_steps, [row.num_steps for row in rows], 0)
        _write(settings, table_of([row.settings for row in rows]), table_of([GREEDY]))
        _write(copied, np.array(copies, dtype=np.int32).reshape(-1, 2), NO_COPY)
        tables[:] = 0
        for table, row in zip(tables, rows, strict=False):
            table[: len(row.block_ids)] = row.block_ids

    def _host_parts(self, size: LoopSize) -> list[Ints]:
        if size not in self._numpy_parts:
            self._numpy_parts[size] = [part.numpy() for part in _parts(self._host, size, self._max_blocks)]
        return self._numpy_parts[size]

    def upload(self, size: LoopSize) -> None:
        """Starts the copy of what was written."""
        words = _num_words(size, self._max_blocks)
        self._on_device[:words].copy_(self._host[:words], non_blocking=True)

    def download(self, size: LoopSize) -> None:
        """Starts the copy back."""
        count = size.num_steps * size.num_rows * self._width
        self._read[:count].copy_(self._drawn[:count], non_blocking=True)

    def read(self, size: LoopSize) -> Ints:
        """[num_steps, num_rows, width], once the copy has ended; the caller's own."""
        read: Ints = self._results(self._read, size).numpy().copy()
        return read

    def _results(self, words: torch.Tensor, size: LoopSize) -> torch.Tensor:
        return words[: size.num_steps * size.num_rows * self._width].view(size.num_steps, size.num_rows, self._width)


def _write(part: Ints, values: npt.ArrayLike, padding: npt.ArrayLike) -> None:
    """What is padding may hold another size's words, so it is written, too."""
    values = np.asarray(values)
    part[: len(values)] = values
    part[len(values) :] = padding


def _shapes(size: LoopSize, max_blocks: int) -> tuple[tuple[int, ...], ...]:
    """In the order of LoopInputs."""
    tokens, rows = (size.num_tokens,), (size.num_rows,)
    settings, copies, tables = ((size.num_rows, width) for width in (NUM_SETTINGS, 2, max_blocks))
    return tokens, tokens, tokens, tokens, rows, rows, settings, copies, tables


def _num_words(size: LoopSize, max_blocks: int) -> int:
    return sum(_room(shape) for shape in _shapes(size, max_blocks))


def _room(shape: tuple[int, ...]) -> int:
    """Words, in multiples of 16 bytes, as kernels like it."""
    return -(-int(np.prod(shape)) // 4) * 4


def _parts(words: torch.Tensor, size: LoopSize, max_blocks: int) -> list[torch.Tensor]:
    parts, start = [], 0
    for shape in _shapes(size, max_blocks):
        parts.append(words[start : start + int(np.prod(shape))].view(shape))
        start += _room(shape)
    return parts
