"""The graphs of verify steps by padded size, and the buffers they work on. Knows what a step does; starts none."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket
from slipstream.engine.follow_buffers import FollowBuffers
from slipstream.engine.graph_capture import Capture, Replay
from slipstream.engine.logit_edits import LogitEdits
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.step_buffers import WIDEST_LAW, StepBuffers
from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.follow_up import RowColumns, StepRows, follow_up
from slipstream.kernels.gpu.check_table import PADDING_ROW, CheckTable, Column, Needs
from slipstream.kernels.gpu.verification import verify_table
from slipstream.kernels.prepare_inputs import prepare_inputs
from slipstream.models.llama import LlamaModel
from slipstream.timeline import NO_TIMELINE, Timeline

_LOG = logging.getLogger(__name__)


class StepGraphs(ModelRunner):
    """Each is captured when it is first wanted, most of them in `prepare`."""

    def __init__(
        self,
        model: LlamaModel,
        kv_cache: KVCache,
        max_model_len: int = 0,
        *,
        buckets: Sequence[Bucket],
        capture: Capture,
        in_one: bool = True,  # off: every step is two graphs, and copies outside them
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        super().__init__(model, kv_cache, max_model_len, timeline=timeline)
        self._in_one = in_one
        self._follows = False
        self._buckets = sorted(buckets)
        self._capture = capture
        self._steps: dict[tuple[Bucket, bool, Needs], Replay] = {}  # whole ones, with and without features
        self._passes: dict[tuple[Bucket, bool], Replay] = {}
        self._verifications: dict[tuple[Bucket, Needs], Replay] = {}
        max_blocks = -(-self.max_model_len // kv_cache.block_size)
        self._buffers = StepBuffers(self._buckets, max_blocks=max_blocks, device=self._device)
        self._most_rows = max(bucket.num_rows for bucket in buckets)
        most_seqs = max(bucket.num_seqs for bucket in buckets)
        self._logits = torch.zeros(self._most_rows, self.config.vocab_size, device=self._device)
        self._decided = torch.zeros(most_seqs, 2, dtype=torch.int32, device=self._device)
        self._edits = LogitEdits(self._logits, capture)
        self._follow = FollowBuffers(most_seqs=most_seqs, max_blocks=max_blocks, device=self._device)
        self._row_columns = RowColumns(Column.DRAFT_ID, Column.POSITION, torch.from_numpy(PADDING_ROW).to(self._device))

    def follow_steps(self) -> None:
        self._follows = self._in_one

    @property
    def can_follow(self) -> bool:
        return self._follows

    @torch.inference_mode()
    def prepare(self) -> None:
        """Captures the steps of every bucket, the largest first: the others then find their memory in its.

        Steps that check laws come last: without room for them they are captured when they are first wanted.
        """
        buckets = list(reversed(self._buckets))
        for needs in (Needs.MATCH, Needs.LAWS):
            for bucket in buckets:
                if self._capture.is_full:
                    break
                for tapped in (False, True) if self.feature_tap else (False,):
                    self._prepare(bucket, tapped, needs)
        self._buckets = sorted({*(bucket for bucket, _ in self._passes), *(bucket for bucket, *_ in self._steps)})
        _LOG.info("captured %d graphs in %d MiB", self.num_graphs, self._capture.num_bytes >> 20)

    def _prepare(self, bucket: Bucket, tapped: bool, needs: Needs) -> None:
        if self._in_one:
            self._step(bucket, tapped, needs)
        else:
            self._pass(bucket, tapped)
            self._verification(bucket, needs)

    @property
    def num_graphs(self) -> int:
        return len(self._steps) + len(self._passes) + len(self._verifications) + self._edits.num_graphs

    def _step(self, bucket: Bucket, tapped: bool, needs: Needs) -> Replay:
        key = bucket, tapped, needs
        if key not in self._steps:
            self._steps[key] = self._capture.capture(lambda: self._run_step(bucket, tapped, needs))
        return self._steps[key]

    def _run_step(self, bucket: Bucket, tapped: bool, needs: Needs) -> None:
        self._buffers.fetch(bucket, plain=needs is Needs.MATCH)
        if self._follows and needs is Needs.MATCH:
            follow_up(self._rows(bucket), self._follow.inputs, self._decided, self._row_columns)
        self._run_pass(bucket, tapped)
        self._run_verification(bucket, needs)

    def _rows(self, bucket: Bucket) -> StepRows:
        """What is written anew in a step that follows a running one."""
        inputs = self._buffers.inputs(bucket)
        return StepRows(
            number=inputs.number,
            token_ids=inputs.token_ids,
            query_starts=inputs.query_starts,
            context_lens=inputs.context_lens,
            logits_rows=inputs.logits_rows,
            row_starts=inputs.row_starts,
            block_tables=inputs.block_tables,
            words=inputs.plain_words,
        )

    def _pass(self, bucket: Bucket, tapped: bool) -> Replay:
        key = bucket, tapped
        if key not in self._passes:
            self._passes[key] = self._capture.capture(lambda: self._run_pass(bucket, tapped))
        return self._passes[key]

    def _verification(self, bucket: Bucket, needs: Needs) -> Replay:
        key = bucket, needs
        if key not in self._verifications:
            self._verifications[key] = self._capture.capture(lambda: self._run_verification(bucket, needs))
        return self._verifications[key]

    def _run_pass(self, bucket: Bucket, tapped: bool) -> None:
        """Logits of the bucket's rows, and the features if tapped, from what lies in its inputs."""
        inputs, block_size = self._buffers.inputs(bucket), self.kv_cache.block_size
        positions, slots = prepare_inputs(
            inputs.query_starts, inputs.context_lens, inputs.block_tables, block_size, bucket.num_tokens
        )
        batch = ForwardBatch(
            token_ids=inputs.token_ids,
            positions=positions,
            slot_mapping=slots,
            block_tables=inputs.block_tables,
            query_starts=inputs.query_starts,
            context_lens=inputs.context_lens,
            logits_rows=inputs.logits_rows,
            spans=self._spans(bucket),
            block_size=block_size,
        )
        hidden = self._hidden(batch, tapped)
        self._write_logits(bucket, hidden)

    def _write_logits(self, bucket: Bucket, hidden: torch.Tensor) -> None:
        self._model.slice_logits(hidden, self._logits[: bucket.num_rows])

    def _spans(self, bucket: Bucket) -> tuple[tuple[int, int], ...]:
        """What attention is cut for: a graph keeps its cut, whatever the lengths that it meets."""
        return ((bucket.query_len, self.max_model_len),) * bucket.num_seqs

    def _run_verification(self, bucket: Bucket, needs: Needs) -> None:
        table = self._table(bucket, needs)
        verify_table(self._logits[: bucket.num_rows], table, into=self._decided[: bucket.num_seqs])

    def _table(self, bucket: Bucket, needs: Needs) -> CheckTable:
        """Where a step of the bucket finds its checks."""
        inputs = self._buffers.inputs(bucket)
        plain = needs is Needs.MATCH
        return CheckTable(
            words=inputs.plain_words if plain else inputs.words,
            starts=inputs.row_starts,
            law_width=0 if plain else WIDEST_LAW,
            max_rows=self._most_rows,  # one kernel for all buckets
            limited=needs in (Needs.MIN_P, Needs.LIMITS),
            searched=needs is Needs.LIMITS,
            drawn=not plain,
        )
