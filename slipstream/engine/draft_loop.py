"""Draws several tokens for each of many paths in one graph: steps of a draft model, each fed what the last one drew.

Knows padded sizes and fixed buffers; nothing of sequences. Between the first step and the last the host does nothing:
tokens and context lengths advance on the device, and from them and the block tables positions and slots. A row that has
drawn all it wants, and padding, feed a token with a context of nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from slipstream.engine.draft_buffers import Ints, LoopBuffers, LoopRow, LoopSize
from slipstream.engine.feature_buffers import FeatureBuffers
from slipstream.engine.graph_capture import Capture, Replay
from slipstream.engine.plain_step import AdaptedStep, DraftStep
from slipstream.kernels.draft_choice import Drafting, choose_drafts
from slipstream.kernels.loop_rows import place_loop
from slipstream.kernels.low_rank import RowSlots

_LOG = logging.getLogger(__name__)


class LoopFailed(RuntimeError):
    """What a loop drew may be wrong. Later loops take the plain step."""


class DraftLoop:
    """What `run` gives is what so many single steps would, one after another."""

    def __init__(
        self,
        step: DraftStep,
        plain: DraftStep,  # once the step says that it has failed
        logits: Callable[[torch.Tensor], torch.Tensor],  # hidden [num_rows, hidden] to fp32 [num_rows, draft vocab]
        copy_blocks: Callable[[torch.Tensor], None],  # of pairs [n, 2], as KVCache.copy_listed_blocks takes them
        drafting: Drafting,
        *,
        sizes: Iterable[LoopSize],
        max_blocks: int,  # of one row
        capture: Capture,
        features: FeatureBuffers | None = None,  # of a step that is fed with a target's
        adapted: AdaptedStep | None = None,  # takes the steps of loops in which rows have adapters; None: none has
    ) -> None:
        self.num_loops: Counter[LoopSize] = Counter()
        self._plain = plain
        self._step, self._logits, self._copy_blocks, self._drafting = step, logits, copy_blocks, drafting
        self._sizes = sorted(sizes)
        self._capture, self._features, self._adapted = capture, features, adapted
        self._graphs: dict[tuple[LoopSize, bool], Replay] = {}  # without adapters and with
        device = drafting.target_ids.device
        self._largest = LoopSize(max(s.num_rows for s in self._sizes), max(s.num_steps for s in self._sizes))
        self._buffers = LoopBuffers(self._largest, width=drafting.width, max_blocks=max_blocks, device=device)
        self._error: torch.Tensor | None = getattr(step, "error", None)  # of a step whose programs wait for one another
        self._error_on_host = torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._ended = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def takes_features(self) -> bool:
        """Whether it builds on a target's features, of all tokens from the third on."""
        return self._features is not None

    @property
    def takes_adapters(self) -> bool:
        """Whether rows may have any."""
        return self._adapted is not None

    @property
    def most_steps(self) -> int:
        return self._largest.num_steps

    def holds(self, rows: Sequence[LoopRow]) -> bool:
        return self._size_for(rows) is not None

    @torch.inference_mode()
    def prepare(self) -> None:
        """Captures every size, the largest first: the others then find their memory in its."""
        for size in sorted(self._sizes, reverse=True):
            if self._capture.is_full:
                break
            for adapted in (False, True) if self.takes_adapters else (False,):
                self._graph(size, adapted)
        self._sizes = sorted({size for size, _ in self._graphs})
        _LOG.info("captured %d draft loops in %d MiB", len(self._graphs), self._capture.num_bytes >> 20)

    @torch.inference_mode()
    def launch(self, rows: Sequence[LoopRow], copies: Sequence[tuple[int, int]] = ()) -> Callable[[], Ints]:
        """Starts a loop; the result, [num_steps, num_rows or more, width], waits for it. One at a time.

        `copies`: KV blocks (source, destination), at most one a row, that are copied before.
        """
        size = self._size_for(rows)
        assert size is not None, "ask `holds` first"
        replay = self._graph(size, any(row.adapter is not None for row in rows))
        self.num_loops[size] += 1
        self._write(size, rows, copies)
        replay()
        if self._ended is not None:
            self._ended.record()
        return lambda: self._read(size)

    def _write(self, size: LoopSize, rows: Sequence[LoopRow], copies: Sequence[tuple[int, int]] = ()) -> None:
        self._buffers.write(size, rows, copies)
        if self._features is not None:
            self._features.write(size, rows)

    def _read(self, size: LoopSize) -> Ints:
        """The one place where a loop is waited for. Raises LoopFailed."""
        if self._ended is not None:
            self._ended.synchronize()
        if int(self._error_on_host):
            self._give_up_step()
            raise LoopFailed("programs of a draft step have waited for one another in vain")
        return self._buffers.read(size)

    def _give_up_step(self) -> None:
        """Its graphs go too; those of the plain step are captured as they are needed."""
        self._step, self._error = self._plain, None
        self._graphs.clear()
        self._error_on_host.zero_()

    def _size_for(self, rows: Sequence[LoopRow]) -> LoopSize | None:
        """The least that the rows fit."""
        num_steps = max(row.num_steps for row in rows)
        num_tokens = sum(len(row.token_ids) for row in rows)
        fitting = (
            size
            for size in self._sizes
            if size.num_steps >= num_steps and size.num_rows >= len(rows) and size.num_tokens >= num_tokens
        )
        return next(fitting, None)

    def _graph(self, size: LoopSize, adapted: bool) -> Replay:
        if (size, adapted) not in self._graphs:
            self._write(size, ())  # a capture runs once for real, on padding alone
            self._graphs[size, adapted] = self._capture.capture(lambda: self._run(size, adapted))
        return self._graphs[size, adapted]

    def _run(self, size: LoopSize, adapted: bool) -> None:
        self._buffers.upload(size)
        self._draw(size, adapted)
        self._buffers.download(size)
        if self._error is not None:
            self._error_on_host.copy_(self._error, non_blocking=True)

    def _draw(self, size: LoopSize, adapted: bool) -> None:
        inputs, drawn = self._buffers.inputs(size), self._buffers.drawn(size)
        self._copy_blocks(inputs.copies)
        placed = place_loop(inputs.words, size.num_steps)
        if self._features is not None:
            self._features.put(size, placed.context_lens, placed.token_tables)
        step = self._step_for(inputs.adapters if adapted else None)
        hidden = step(placed.token_ids, placed.context_lens, placed.token_tables)
        hidden = hidden.index_select(0, placed.last_tokens)
        step = self._step_for(inputs.adapters.index_select(0, placed.last_tokens) if adapted else None)
        token_ids = torch.empty_like(placed.last_tokens)
        for number, positions in enumerate(placed.positions):
            if number:
                hidden = step(token_ids, placed.contexts[number], placed.block_tables)
            choose_drafts(self._logits(hidden), inputs.settings, positions, self._drafting, drawn[number], token_ids)

    def _step_for(
        self,
        adapters: torch.Tensor | None,  # [num_rows] slots; None: no row has any
    ) -> DraftStep:
        if adapters is None:
            return self._step
        assert self._adapted is not None, "ask `takes_adapters` first"
        return partial(self._adapted, adapted=RowSlots(adapters))


def loop_sizes(*, max_rows: int, max_steps: int) -> tuple[LoopSize, ...]:
    """Rows doubling, every number of steps: a row too many costs little, a step too many a step."""
    rows = [1]
    while rows[-1] < max_rows:
        rows.append(min(2 * rows[-1], max_rows))
    return tuple(LoopSize(num_rows, num_steps) for num_rows in rows for num_steps in range(1, max_steps + 1))
