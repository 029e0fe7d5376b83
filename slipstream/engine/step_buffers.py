"""A step's inputs at fixed addresses: written on the host in one piece, copied to the GPU at once. Knows no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from slipstream.engine.buckets import Bucket
from slipstream.kernels.batch import Chunk
from slipstream.kernels.fetch_words import fetch_words
from slipstream.kernels.gpu.check_table import NUM_COLUMNS, PADDING_ROW
from slipstream.sampling.check import SequenceCheck

WIDEST_LAW = 64  # tokens of a sparse law that a captured step has room for
Ints = npt.NDArray[np.int32]
WIDTH = NUM_COLUMNS + 2 * WIDEST_LAW
LAST_NUMBER = (1 << 31) - 1  # of a step; the next one is 1 again
NUM_HEAD_PARTS = 6  # of a step's inputs, those before the block tables


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The parts of the buffer under one bucket, each int32. What lies beyond the step's own sizes is inert."""

    number: torch.Tensor  # [1]: of the step that was written last; in the same place under every bucket
    token_ids: torch.Tensor  # [num_tokens]
    query_starts: torch.Tensor  # [num_seqs + 1]; a padded sequence has no tokens
    context_lens: torch.Tensor  # [num_seqs]
    logits_rows: torch.Tensor  # [num_rows]
    row_starts: torch.Tensor  # [num_seqs + 1]: check i owns rows row_starts[i] : row_starts[i + 1]
    block_tables: torch.Tensor  # [num_seqs, max_blocks]
    words: torch.Tensor  # [num_rows, WIDTH]: checks with laws
    plain_words: torch.Tensor  # [num_rows, NUM_COLUMNS], in the same place: checks without


@dataclass(frozen=True, slots=True)
class _HostParts:
    """The same on the host, as numpy sees it; all before the block tables in one piece, so that one write fills it."""

    head: Ints
    block_tables: Ints
    words: Ints
    plain_words: Ints


class StepBuffers:
    """One buffer on the host, pinned where there is a GPU, and one on the device, for all buckets."""

    def __init__(self, buckets: Sequence[Bucket], *, max_blocks: int, device: torch.device) -> None:
        layouts = {bucket: _layout(bucket, max_blocks) for bucket in buckets}
        size = max(layout.size for layout in layouts.values())
        host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type == "cuda")
        on_device = torch.zeros(size, dtype=torch.int32, device=device)
        self._inputs = {bucket: StepInputs(*layout.parts(on_device)) for bucket, layout in layouts.items()}
        self._layouts = layouts
        self.number = 0  # of the step that was written last
        self._host = {bucket: layout.on_host(host) for bucket, layout in layouts.items()}
        self._copies = {
            (bucket, plain): (on_device[: layout.end(plain)], host[: layout.end(plain)])
            for bucket, layout in layouts.items()
            for plain in (False, True)
        }

    def inputs(self, bucket: Bucket) -> StepInputs:
        """Where a step of this bucket finds its inputs on the device."""
        return self._inputs[bucket]

    def holds(self, words: Ints) -> bool:
        """Whether these rows' laws are not too long."""
        return bool(words.shape[1] <= WIDTH)

    def write(
        self,
        bucket: Bucket,
        chunks: Sequence[Chunk],
        checks: Sequence[SequenceCheck],
        words: Ints,  # [num_rows, width], from check_words
        plain: bool,  # nothing in them needs laws
    ) -> None:
        """Writes the step on the host; the one before must have ended."""
        parts, self.number = self._host[bucket], self.number % LAST_NUMBER + 1
        parts.head[:] = self._layouts[bucket].head(self.number, chunks, checks)
        for row, chunk in zip(parts.block_tables, chunks, strict=False):
            row[: len(chunk.block_ids)] = chunk.block_ids
        _write_checks(parts.plain_words if plain else parts.words, words)

    def written(self, bucket: Bucket, plain: bool) -> Ints:
        """What was written last, for ranks that do the same step."""
        on_host: Ints = self._copies[bucket, plain][1].numpy()
        return on_host

    def write_again(self, bucket: Bucket, plain: bool, written: Ints) -> None:
        """What another rank has written; the step before must have ended."""
        self._copies[bucket, plain][1].numpy()[:] = written

    def upload(self, bucket: Bucket, plain: bool) -> None:
        """Starts the copy of what is written, `plain` without room for laws."""
        on_device, host = self._copies[bucket, plain]
        on_device.copy_(host, non_blocking=True)

    def fetch(self, bucket: Bucket, plain: bool) -> None:
        """The same as a graph holds it best."""
        fetch_words(*self._copies[bucket, plain])


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each part of a bucket's inputs lies. The checks come last: of them only the used width is copied."""

    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]  # multiples of 16 bytes, as kernels like it
    num_rows: int

    @property
    def size(self) -> int:
        return self.end(plain=False)

    def end(self, plain: bool) -> int:
        """Words up to the end of the checks with laws, or of those without."""
        return self.starts[-1] + self.num_rows * (NUM_COLUMNS if plain else WIDTH)

    def parts(self, words: torch.Tensor) -> list[torch.Tensor]:
        """Views in the order of StepInputs."""
        return [
            words[start : start + math.prod(shape)].view(shape)
            for start, shape in zip(self.starts, self.shapes, strict=True)
        ]

    def on_host(self, words: torch.Tensor) -> _HostParts:
        *_, block_tables, rows, plain_rows = (part.numpy() for part in self.parts(words))
        return _HostParts(words[: self.starts[NUM_HEAD_PARTS]].numpy(), block_tables, rows, plain_rows)

    def head(self, number: int, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[int]:
        """The tokens of all chunks one after another, and what belongs to whom; padded sequences and rows are empty."""
        starts = list(accumulate((len(chunk.token_ids) for chunk in chunks), initial=0))
        row_starts = list(accumulate((len(check.draft) + 1 for check in checks), initial=0))
        ends = zip(chunks, starts[1:], strict=True)
        parts = (
            ([number], 0),
            ([token for chunk in chunks for token in chunk.token_ids], 0),
            (starts, starts[-1]),
            ([chunk.end for chunk in chunks], 0),
            ([row for chunk, end in ends for row in range(end - chunk.num_logits, end)], 0),
            (row_starts, row_starts[-1]),
        )
        words: list[int] = []
        for (values, padding), end in zip(parts, self.starts[1:], strict=False):
            words += values
            words += [padding] * (end - len(words))
        return words


def _layout(bucket: Bucket, max_blocks: int) -> _Layout:
    seqs, rows = bucket.num_seqs, bucket.num_rows
    before = ((1,), (bucket.num_tokens,), (seqs + 1,), (seqs,), (rows,), (seqs + 1,), (seqs, max_blocks))
    starts = list(accumulate((-(-math.prod(shape) // 4) * 4 for shape in before), initial=0))
    return _Layout((*before, (rows, WIDTH), (rows, NUM_COLUMNS)), (*starts, starts[-1]), rows)


def _write_checks(rows: Ints, words: Ints) -> None:
    """The checks' rows, then padding. Counts have their fixed place, whatever this step's longest law."""
    num_rows, width = words.shape
    law_width = (width - NUM_COLUMNS) // 2
    rows[:num_rows, : NUM_COLUMNS + law_width] = words[:, : NUM_COLUMNS + law_width]
    if law_width:
        counts = NUM_COLUMNS + WIDEST_LAW
        rows[:num_rows, counts : counts + law_width] = words[:, NUM_COLUMNS + law_width :]
    if num_rows < len(rows):
        rows[num_rows:, :NUM_COLUMNS] = PADDING_ROW
