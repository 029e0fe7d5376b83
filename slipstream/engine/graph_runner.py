"""Runs whole verify steps from captured graphs. Knows padded sizes and fixed buffers; nothing of requests.

A step is one graph, by bucket and by what its checks need: the copy of its inputs, the model's pass, verification. So
the host makes one call. Nothing waits for the GPU but what `launch` returns, once, for the verdicts.

Token rules, masks of grammars and log probabilities come between the pass and verification (logit_edits.py). Steps that
have any are two graphs, with what they need in between.

A step may be launched while the one before it runs (`launch_after`): its graph then makes its inputs from how that one
ends and from what the host knew beforehand (kernels/follow_up.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.config import EngineConfig
from slipstream.engine.buckets import Bucket, StepSize, choose_bucket, make_buckets
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.engine.model_runner import GraphSteps
from slipstream.engine.result_ring import Result, ResultRing
from slipstream.engine.step_graphs import StepGraphs
from slipstream.engine.step_times import StepTimes
from slipstream.engine.successor import Successor
from slipstream.kernels.batch import Chunk
from slipstream.kernels.gpu.check_table import Needs, check_words, sequence_columns
from slipstream.kernels.gpu.verification import verify
from slipstream.models.llama import LlamaModel
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import AskedRows, with_logprobs
from slipstream.sampling.verification import verdict_of
from slipstream.timeline import NO_TIMELINE, Timeline


class GraphRunner(StepGraphs):
    """A model runner whose steps are replayed. `forward` stays eager, and so does a step beyond the largest bucket."""

    def __init__(
        self,
        model: LlamaModel,
        kv_cache: KVCache,
        max_model_len: int = 0,
        *,
        buckets: Sequence[Bucket],
        capture: Capture,
        in_one: bool = True,
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        super().__init__(
            model, kv_cache, max_model_len, buckets=buckets, capture=capture, in_one=in_one, timeline=timeline
        )
        self.num_graph_steps: Counter[Bucket] = Counter()
        self.num_eager_steps = 0
        self._results = ResultRing(self._decided, timed=timeline.is_on)
        self._times = StepTimes()
        self._leaves_outcomes = False  # the step that was launched last, where the one behind it would look for them

    def prepare(self) -> None:
        """Also replays each step, of nobody: what a first launch costs is over, and how long steps take is known."""
        super().prepare()
        for (bucket, *_), replay in self._steps.items() if self._device.type == "cuda" else ():
            for _ in range(2):
                started = time.perf_counter()
                replay()
                torch.cuda.synchronize(self._device)
            self._times.note(bucket, time.perf_counter() - started)

    @property
    def graph_steps(self) -> GraphSteps:
        replayed = sum(list(self.num_graph_steps.values()))  # a copy at once: any thread may ask
        return GraphSteps(replayed, self.num_eager_steps, self._capture.num_bytes)

    @property
    def expected_end(self) -> float:
        return self._times.expected_end

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        return self.launch(chunks, checks)()

    @torch.inference_mode()
    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        words = check_words(checks, self.config.vocab_size)
        bucket = choose_bucket(self._buckets, StepSize.of(chunks, checks))
        self._leaves_outcomes = bucket is not None and self._buffers.holds(words)
        if bucket is None or not self._leaves_outcomes:
            self.num_eager_steps += 1
            verdicts = self._verify_eagerly(chunks, checks)
            return lambda: verdicts
        self.num_graph_steps[bucket] += 1
        name = f"{len(chunks)} sequences in {bucket.num_tokens} x {bucket.num_seqs}" if self._timeline.is_on else ""
        with self._timeline.span("schedule", "build"):
            needs = Needs.of_checks(checks, words)
            self._write(bucket, chunks, checks, words, needs)
        result, launched = self._results.take(), self._times.launched(bucket)
        with self._timeline.span("launch", name):
            result.start()
            scores = self._replay(bucket, chunks, checks, needs)
            result.read()

        def verdicts_of_step() -> list[Verdict]:
            unseen = result.is_over
            self._wait(result, name)
            self._times.ended(bucket, launched, unseen=unseen)
            numbers = result.numbers[: len(checks)].tolist()
            verdicts = [verdict_of(check, *decided) for check, decided in zip(checks, numbers, strict=True)]
            return with_logprobs(verdicts, checks, scores)

        return verdicts_of_step

    @torch.inference_mode()
    def launch_after(self, successors: Sequence[Successor]) -> Callable[[], list[tuple[int, int]]] | None:
        assert self._follows, "follow_steps was not called before steps were captured"
        num_seqs, num_tokens = len(successors), sum(one.most_tokens for one in successors)
        size = StepSize(num_tokens=num_tokens, num_seqs=num_seqs, num_rows=num_tokens, num_checks=num_seqs)
        bucket = choose_bucket(self._buckets, size)
        columns = np.stack([sequence_columns(one.check, self.config.vocab_size) for one in successors])
        if bucket is None or Needs.of(columns) is not Needs.MATCH or (bucket, False, Needs.MATCH) not in self._steps:
            return None
        if not self._leaves_outcomes:
            return None
        self.num_graph_steps[bucket] += 1
        name = f"{num_seqs} sequences in {bucket.num_tokens} x {bucket.num_seqs}" if self._timeline.is_on else ""
        result, launched = self._results.take(), self._times.launched(bucket)
        with self._timeline.span("launch", f"ahead: {name}"):
            self._follow.upload(self._buffers.number, successors, columns)
            result.start()
            self._step(bucket, False, Needs.MATCH)()
            result.read()

        def outcomes_of_step() -> list[tuple[int, int]]:
            unseen = result.is_over
            self._wait(result, name)
            self._times.ended(bucket, launched, unseen=unseen)
            return [(accepted, token) for accepted, token in result.numbers[:num_seqs].tolist()]

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


def make_graph_runner(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, config: EngineConfig, timeline: Timeline = NO_TIMELINE
) -> GraphRunner:
    """A runner on the model's GPU for batches of the configured size."""
    capture = GraphCapture(model.embedding.device, config.graph_memory_bytes)
    most_tokens = max(config.max_num_batched_tokens, config.max_num_seqs)
    buckets = make_buckets(max_num_seqs=config.max_num_seqs, max_num_tokens=most_tokens)
    return GraphRunner(model, kv_cache, max_model_len, buckets=buckets, capture=capture, timeline=timeline)
