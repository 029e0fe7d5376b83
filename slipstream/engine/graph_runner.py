"""Runs whole verify steps from captured graphs. Knows padded sizes and fixed buffers; nothing of requests.

A step is one graph, by bucket and by what its checks need: the copy of its inputs, the model's pass, verification. So
the host makes one call. Nothing waits for the GPU but what `launch` returns, once, for the verdicts.

Token rules, masks of grammars and log probabilities come between the pass and verification (logit_edits.py). Steps that
have any are two graphs, with what they need in between.

A step may be launched while the one before it runs (`launch_after`): its graph then makes its inputs from how that one
ends and from what the host knew beforehand (kernels/follow_up.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.config import EngineConfig
from slipstream.engine.batch import Chunk, ForwardBatch
from slipstream.engine.buckets import Bucket, StepSize, choose_bucket, make_buckets
from slipstream.engine.follow_buffers import FollowBuffers
from slipstream.engine.graph_capture import Capture, GraphCapture, Replay
from slipstream.engine.logit_edits import LogitEdits
from slipstream.engine.model_runner import GraphSteps, ModelRunner
from slipstream.engine.result_ring import Result, ResultRing
from slipstream.engine.step_buffers import WIDEST_LAW, StepBuffers
from slipstream.engine.step_times import StepTimes
from slipstream.engine.successor import Successor
from slipstream.kernels.follow_up import RowColumns, StepRows, follow_up
from slipstream.kernels.gpu.check_table import PADDING_ROW, CheckTable, Column, Needs, check_words
from slipstream.kernels.gpu.verification import to_verdicts, verify, verify_table
from slipstream.kernels.prepare_inputs import prepare_inputs
from slipstream.models.llama import LlamaModel
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import AskedRows, with_logprobs
from slipstream.timeline import NO_TIMELINE, Timeline

_LOG = logging.getLogger(__name__)


class GraphRunner(ModelRunner):
    """A model runner whose steps are replayed. `forward` stays eager, and so does a step beyond the largest bucket."""

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
        self.num_graph_steps: Counter[Bucket] = Counter()
        self.num_eager_steps = 0
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
        self._results = ResultRing(self._decided, timed=timeline.is_on)
        self._edits = LogitEdits(self._logits, capture)
        self._times = StepTimes()
        self._follow = FollowBuffers(most_seqs=most_seqs, max_blocks=max_blocks, device=self._device)
        self._row_columns = RowColumns(Column.DRAFT_ID, Column.POSITION, torch.from_numpy(PADDING_ROW).to(self._device))

    @torch.inference_mode()
    def prepare(self) -> None:
        """Captures the steps of every bucket, the largest first: the others then find their memory in its."""
        for bucket in reversed(self._buckets):
            if self._capture.is_full:
                break
            for tapped in (False, True) if self.feature_tap else (False,):
                self._prepare(bucket, tapped)
        self._buckets = sorted({*(bucket for bucket, _ in self._passes), *(bucket for bucket, *_ in self._steps)})
        _LOG.info("captured %d graphs in %d MiB", self.num_graphs, self._capture.num_bytes >> 20)

    @property
    def graph_steps(self) -> GraphSteps:
        replayed = sum(list(self.num_graph_steps.values()))  # a copy at once: any thread may ask
        return GraphSteps(replayed, self.num_eager_steps, self._capture.num_bytes)

    def _prepare(self, bucket: Bucket, tapped: bool) -> None:
        if self._in_one:
            self._step(bucket, tapped, Needs.MATCH)
        else:
            self._pass(bucket, tapped)
            self._verification(bucket, Needs.MATCH)

    @property
    def num_graphs(self) -> int:
        return len(self._steps) + len(self._passes) + len(self._verifications) + self._edits.num_graphs

    @property
    def expected_end(self) -> float:
        return self._times.expected_end

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        return self.launch(chunks, checks)()

    @torch.inference_mode()
    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        words = check_words(checks, self.config.vocab_size)
        bucket = choose_bucket(self._buckets, StepSize.of(chunks, checks))
        if bucket is None or not self._buffers.holds(words):
            self.num_eager_steps += 1
            verdicts = self._verify_eagerly(chunks, checks)
            return lambda: verdicts
        self.num_graph_steps[bucket] += 1
        name = f"{len(chunks)} sequences in {bucket.num_tokens} x {bucket.num_seqs}" if self._timeline.is_on else ""
        with self._timeline.span("schedule", "build"):
            needs = Needs.of(words)
            self._write(bucket, chunks, checks, words, needs)
        result, launched = self._results.take(), self._times.launched(bucket)
        with self._timeline.span("launch", name):
            result.start()
            scores = self._replay(bucket, chunks, checks, needs)
            result.read()

        def verdicts_of_step() -> list[Verdict]:
            self._wait(result, name)
            self._times.ended(bucket, launched)
            return with_logprobs(to_verdicts(checks, result.on_host), checks, scores)

        return verdicts_of_step

    @torch.inference_mode()
    def launch_after(self, successors: Sequence[Successor]) -> Callable[[], list[tuple[int, int]]] | None:
        num_seqs, num_tokens = len(successors), sum(one.most_tokens for one in successors)
        size = StepSize(num_tokens=num_tokens, num_seqs=num_seqs, num_rows=num_tokens, num_checks=num_seqs)
        bucket = choose_bucket(self._buckets, size)
        if bucket is None or (bucket, False, Needs.MATCH) not in self._steps:
            return None
        self.num_graph_steps[bucket] += 1
        name = f"{num_seqs} sequences in {bucket.num_tokens} x {bucket.num_seqs}" if self._timeline.is_on else ""
        result, launched = self._results.take(), self._times.launched(bucket)
        with self._timeline.span("launch", f"ahead: {name}"):
            self._follow.upload(self._buffers.next_number(), successors, self.config.vocab_size)
            result.start()
            self._step(bucket, False, Needs.MATCH)()
            result.read()

        def outcomes_of_step() -> list[tuple[int, int]]:
            self._wait(result, name)
            self._times.ended(bucket, launched)
            return [(accepted, token) for accepted, token in result.on_host[:num_seqs].tolist()]

        return outcomes_of_step

    def _verify_eagerly(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        return verify(self.forward(chunks), checks)

    def _replay(
        self, bucket: Bucket, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck], needs: Needs
    ) -> torch.Tensor | None:
        """Launches the step that is written; what is returned will hold the log probabilities that were asked for."""
        if self._in_one and not any(check.acts_on_logits for check in checks):
            self._step(bucket, self._taps(chunks), needs)()
            return None
        return self._replay_parts(bucket, chunks, checks, needs)

    def _replay_parts(
        self, bucket: Bucket, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck], needs: Needs
    ) -> torch.Tensor | None:
        self._buffers.upload(bucket, needs is Needs.MATCH)
        self._pass(bucket, self._taps(chunks))()
        asked = AskedRows.of(checks, self._device)
        kept = None if asked is None else asked.keep(self._logits)
        self._edits.apply(checks, bucket.num_rows)
        if checks:
            self._verification(bucket, needs)()
        return None if asked is None or kept is None else self._to_host(asked.score(kept, self._decided))

    def _write(
        self,
        bucket: Bucket,
        chunks: Sequence[Chunk],
        checks: Sequence[SequenceCheck],
        words: npt.NDArray[np.int32],
        needs: Needs,
    ) -> None:
        self._buffers.write(bucket, chunks, checks, words, needs is Needs.MATCH)

    def _to_host(self, words: torch.Tensor) -> torch.Tensor:
        """Where they will lie when the step has ended."""
        host = torch.empty(words.shape, dtype=words.dtype, pin_memory=words.is_cuda)
        return host.copy_(words, non_blocking=True)

    def _wait(self, result: Result, name: str) -> None:
        """The one place where a step waits for the GPU; the interpreter runs other threads meanwhile."""
        result.wait()
        seconds = result.seconds
        if seconds is not None:
            now = time.perf_counter()
            self._timeline.add("GPU", name, now - seconds, now)

    def _step(self, bucket: Bucket, tapped: bool, needs: Needs) -> Replay:
        key = bucket, tapped, needs
        if key not in self._steps:
            self._steps[key] = self._capture.capture(lambda: self._run_step(bucket, tapped, needs))
        return self._steps[key]

    def _run_step(self, bucket: Bucket, tapped: bool, needs: Needs) -> None:
        self._buffers.upload(bucket, plain=needs is Needs.MATCH)
        if needs is Needs.MATCH:
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
        self._logits[: bucket.num_rows].copy_(self._model.logits(hidden))

    def _spans(self, bucket: Bucket) -> tuple[tuple[int, int], ...]:
        """What attention is cut for: a graph keeps its cut, whatever the lengths that it meets."""
        return ((bucket.query_len, self.max_model_len),) * bucket.num_seqs

    def _run_verification(self, bucket: Bucket, needs: Needs) -> None:
        table = self._table(bucket, needs)
        self._decided[: bucket.num_seqs].copy_(verify_table(self._logits[: bucket.num_rows], table))

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


def make_graph_runner(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, config: EngineConfig, timeline: Timeline = NO_TIMELINE
) -> GraphRunner:
    """A runner on the model's GPU for batches of the configured size."""
    capture = GraphCapture(model.embedding.device, config.graph_memory_bytes)
    most_tokens = max(config.max_num_batched_tokens, config.max_num_seqs)
    buckets = make_buckets(max_num_seqs=config.max_num_seqs, max_num_tokens=most_tokens)
    return GraphRunner(model, kv_cache, max_model_len, buckets=buckets, capture=capture, timeline=timeline)
