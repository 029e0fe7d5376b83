"""A step's inputs at fixed addresses: written on the host in one piece, copied to the GPU at once. Knows no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from slipstream.engine.batch import Chunk
from slipstream.engine.buckets import Bucket
from slipstream.kernels.gpu.check_table import NUM_COLUMNS, Needs, padding_row
from slipstream.sampling.check import SequenceCheck

WIDEST_LAW = 64  # tokens of a sparse law that a captured step has room for
WIDTH = NUM_COLUMNS + 2 * WIDEST_LAW


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The parts of the buffer under one bucket, each int32. What lies beyond the step's own sizes is inert."""

    token_ids: torch.Tensor  # [num_tokens]
    query_starts: torch.Tensor  # [num_seqs + 1]; a padded sequence has no tokens
    context_lens: torch.Tensor  # [num_seqs]
    logits_rows: torch.Tensor  # [num_rows]
    row_starts: torch.Tensor  # [num_seqs + 1]: check i owns rows row_starts[i] : row_starts[i + 1]
    block_tables: torch.Tensor  # [num_seqs, max_blocks]
    words: torch.Tensor  # [num_rows, WIDTH]: checks with laws
    plain_words: torch.Tensor  # [num_rows, NUM_COLUMNS], in the same place: checks without


class StepBuffers:
    """One buffer on the host, pinned where there is a GPU, and one on the device, for all buckets."""

    def __init__(self, buckets: Sequence[Bucket], *, max_blocks: int, device: torch.device) -> None:
        self._max_blocks = max_blocks
        size = max(_Layout(bucket, max_blocks).size for bucket in buckets)
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._words: npt.NDArray[np.int32] = self._host.numpy()
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._layouts = {bucket: _Layout(bucket, max_blocks) for bucket in buckets}

    def inputs(self, bucket: Bucket) -> StepInputs:
        """Where a step of this bucket finds its inputs on the device."""
        return self._layouts[bucket].inputs(self._device)

    def holds(self, words: npt.NDArray[np.int32]) -> bool:
        """Whether these rows' laws are not too long."""
        return bool(words.shape[1] <= WIDTH)

    def upload(
        self,
        bucket: Bucket,
        chunks: Sequence[Chunk],
        checks: Sequence[SequenceCheck],
        words: npt.NDArray[np.int32],  # [num_rows, width], from check_words
    ) -> None:
        """Writes the step and starts its copy; the one before must have ended."""
        layout = self._layouts[bucket]
        _write_chunks(layout, self._words, chunks)
        _write_starts(
            layout.part(self._words, "row_starts"), accumulate((len(check.draft) + 1 for check in checks), initial=0)
        )
        plain = Needs.of(words) is Needs.MATCH
        _write_checks(layout.rows(self._words, plain), words)
        end = layout.used(plain)
        self._device[:end].copy_(self._host[:end], non_blocking=True)


class _Layout:
    """Where each part of a bucket's inputs lies. The checks come last: of them only the used width is copied."""

    def __init__(self, bucket: Bucket, max_blocks: int) -> None:
        self._bucket, self._max_blocks = bucket, max_blocks
        self._sizes = {
            "token_ids": bucket.num_tokens,
            "query_starts": bucket.num_seqs + 1,
            "context_lens": bucket.num_seqs,
            "logits_rows": bucket.num_rows,
            "row_starts": bucket.num_seqs + 1,
            "block_tables": bucket.num_seqs * max_blocks,
            "words": bucket.num_rows * WIDTH,
        }

    @cached_property
    def _starts(self) -> dict[str, int]:
        """Each part starts at a multiple of 16 bytes, as kernels like it."""
        padded = [-(-size // 4) * 4 for size in self._sizes.values()]
        return dict(zip(self._sizes, accumulate(padded, initial=0), strict=False))

    @property
    def size(self) -> int:
        return self._starts["words"] + self._sizes["words"]

    def used(self, plain: bool) -> int:
        return self._starts["words"] + self._bucket.num_rows * (NUM_COLUMNS if plain else WIDTH)

    def part(self, words: npt.NDArray[np.int32], name: str) -> npt.NDArray[np.int32]:
        return words[self._starts[name] : self._starts[name] + self._sizes[name]]

    def rows(self, words: npt.NDArray[np.int32], plain: bool) -> npt.NDArray[np.int32]:
        flat = self.part(words, "words")
        return (
            flat[: self._bucket.num_rows * NUM_COLUMNS].reshape(-1, NUM_COLUMNS) if plain else flat.reshape(-1, WIDTH)
        )

    def inputs(self, device: torch.Tensor) -> StepInputs:
        parts = {name: device[start : start + self._sizes[name]] for name, start in self._starts.items()}
        rows = self._bucket.num_rows
        tables, words = parts.pop("block_tables"), parts.pop("words")
        return StepInputs(
            **parts,
            block_tables=tables.view(self._bucket.num_seqs, self._max_blocks),
            words=words.view(rows, WIDTH),
            plain_words=words[: rows * NUM_COLUMNS].view(rows, NUM_COLUMNS),
        )


def _write_chunks(layout: _Layout, words: npt.NDArray[np.int32], chunks: Sequence[Chunk]) -> None:
    """The tokens of all chunks one after another; padded sequences and rows follow."""
    starts = list(accumulate((len(chunk.token_ids) for chunk in chunks), initial=0))
    token_ids = layout.part(words, "token_ids")
    token_ids[: starts[-1]] = [token for chunk in chunks for token in chunk.token_ids]
    token_ids[starts[-1] :] = 0
    _write_starts(layout.part(words, "query_starts"), starts)
    context_lens = layout.part(words, "context_lens")
    context_lens[: len(chunks)] = [chunk.end for chunk in chunks]
    context_lens[len(chunks) :] = 0
    rows = layout.part(words, "logits_rows")
    wanted = [row for chunk, end in zip(chunks, starts[1:], strict=True) for row in range(end - chunk.num_logits, end)]
    rows[: len(wanted)] = wanted
    rows[len(wanted) :] = 0
    tables = layout.part(words, "block_tables").reshape(len(context_lens), -1)
    for row, chunk in zip(tables, chunks, strict=False):
        row[: len(chunk.block_ids)] = chunk.block_ids


def _write_checks(rows: npt.NDArray[np.int32], words: npt.NDArray[np.int32]) -> None:
    """The checks' rows, then padding. Counts have their fixed place, whatever this step's longest law."""
    num_rows, width = words.shape
    law_width = (width - NUM_COLUMNS) // 2
    rows[:num_rows, : NUM_COLUMNS + law_width] = words[:, : NUM_COLUMNS + law_width]
    if law_width:
        counts = NUM_COLUMNS + WIDEST_LAW
        rows[:num_rows, counts : counts + law_width] = words[:, NUM_COLUMNS + law_width :]
    rows[num_rows:, :NUM_COLUMNS] = padding_row()


def _write_starts(target: npt.NDArray[np.int32], starts: Iterable[int]) -> None:
    """Where each part begins and the last ends; padded parts are empty."""
    starts = list(starts)
    target[: len(starts)] = starts
    target[len(starts) :] = starts[-1]
