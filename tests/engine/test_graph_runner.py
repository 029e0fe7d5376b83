"""Padded steps say what unpadded ones say. Here a capture replays by calling the function; on a GPU it is a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine import graph_runner
from slipstream.engine.buckets import Bucket, make_buckets
from slipstream.engine.graph_runner import GraphRunner
from slipstream.engine.model_runner import GraphSteps, ModelRunner
from slipstream.engine.step_buffers import LAST_NUMBER
from slipstream.engine.successor import Branch, Successor
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels import rotary
from slipstream.kernels.batch import Chunk
from slipstream.kernels.follow_up import StepRows
from slipstream.kernels.gpu.check_table import Column, Needs
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import AskedRows
from slipstream.sampling.verification import verify
from tests.engine.stories import GREEDY, RULED, Story
from tests.sampling.random_masks import allowing
from tests.tiny_models import make_checkpoint

BLOCK_SIZE, NUM_BLOCKS = 4, 200
SAMPLED = SamplingParams(temperature=0.8)
LIMITED = SamplingParams(top_k=20, top_p=0.9)
BUCKETS = make_buckets(max_num_seqs=6, max_num_tokens=64)


class EagerCapture:
    """Replays by calling."""

    num_bytes = 0

    def __init__(self, limit: int = 1000) -> None:
        self._limit, self._captured = limit, 0

    @property
    def is_full(self) -> bool:
        return self._captured >= self._limit

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        self._captured += 1
        return run


class CpuGraphRunner(GraphRunner):
    """Without Triton: attention is planned by the real lengths, and the reference decides on the padded logits."""

    def _replay(
        self, bucket: Bucket, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck], needs: Needs
    ) -> torch.Tensor | None:
        self.step, self.behind, self.events = checks, False, []
        return super()._replay(bucket, chunks, checks, needs)

    def launch_after(self, successors: Sequence[Successor]) -> Callable[[], list[tuple[int, int]]] | None:
        self.step, self.behind = [one.check for one in successors], True
        return super().launch_after(successors)

    def _spans(self, bucket: Bucket) -> tuple[tuple[int, int], ...]:
        inputs = self._buffers.inputs(bucket)
        spans = zip(inputs.query_starts.diff().tolist(), inputs.context_lens.tolist(), strict=True)
        return tuple((length, end) for length, end in spans if length)

    def _run_pass(self, bucket: Bucket, tapped: bool) -> None:
        self.events.append("pass")
        super()._run_pass(bucket, tapped)

    def _run_verification(self, bucket: Bucket, needs: Needs) -> None:
        self.events.append("verification")
        starts = self._buffers.inputs(bucket).row_starts.tolist()
        checks = [self._written(bucket, check, *rows) for check, rows in zip(self.step, pairwise(starts), strict=False)]
        num_rows = sum(len(check.draft) + 1 for check in checks)
        for row, verdict in zip(self._decided, verify(self._logits[:num_rows], checks), strict=False):
            row.copy_(torch.tensor([verdict.num_accepted, verdict.token_ids[-1]]))

    def _written(self, bucket: Bucket, check: SequenceCheck, start: int, end: int) -> SequenceCheck:
        """What is to be verified: in a step behind another one only the buffers know."""
        if not self.behind:
            return replace(check, rules=None, fill_masks=None)  # rules and masks are applied by now
        words = self._buffers.inputs(bucket).plain_words[start:end].numpy()
        draft = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in words[:-1, Column.DRAFT_ID].tolist())
        return replace(check, draft=draft, base=int(words[0, Column.POSITION]))


@pytest.fixture
def model(tmp_path: Path) -> LlamaModel:
    folder = make_checkpoint(tmp_path, seed=3, logit_std=3.0)
    return load_model(folder, torch.float32, torch.device("cpu"))


@pytest.fixture(autouse=True)
def _padding_writes_no_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it: slot -1 is no slot."""
    write = rotary.write_kv

    def write_real(keys: torch.Tensor, values: torch.Tensor, *caches_and_slots: torch.Tensor) -> None:
        *caches, slots = caches_and_slots
        write(keys[slots >= 0], values[slots >= 0], *caches, slots[slots >= 0])

    monkeypatch.setattr(rotary, "write_kv", write_real)


def plain_runner(model: LlamaModel) -> ModelRunner:
    return ModelRunner(model, KVCache(model.config, NUM_BLOCKS, BLOCK_SIZE, model.dtype, torch.device("cpu")))


def padded_runner(model: LlamaModel, limit: int = 1000, *, in_one: bool = True) -> CpuGraphRunner:
    cache = KVCache(model.config, NUM_BLOCKS, BLOCK_SIZE, model.dtype, torch.device("cpu"))
    return CpuGraphRunner(model, cache, 96, buckets=BUCKETS, capture=EagerCapture(limit), in_one=in_one)


def followed_runner(model: LlamaModel) -> CpuGraphRunner:
    runner = padded_runner(model)
    runner.follow_steps()
    return runner


@pytest.mark.parametrize("num_seqs", [1, 2, 3, 4, 5, 6])
def test_padded_steps_write_the_same_text_at_every_batch_size(model: LlamaModel, num_seqs: int) -> None:
    text = Story(num_seqs, 0).run(plain_runner(model), num_steps=14)
    assert Story(num_seqs, 0).run(padded_runner(model), num_steps=14) == text
    drafted = Story(num_seqs, 3, known=text).run(padded_runner(model), num_steps=4)
    assert all(ids == right[: len(ids)] for ids, right in zip(drafted, text, strict=True))
    assert sum(map(len, drafted)) > sum(map(len, text)) - 10 * num_seqs, "no draft stood"


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_steps_in_one_graph_and_in_two_write_the_same_text(model: LlamaModel, sampling: SamplingParams) -> None:
    in_one, in_two = padded_runner(model), padded_runner(model, in_one=False)
    assert Story(3, 3, sampling).run(in_one) == Story(3, 3, sampling).run(in_two)
    assert (len(in_one._passes), len(in_two._steps)) == (0, 0), "the switch changed nothing"


@pytest.mark.parametrize("num_drafts", [0, 3])
def test_a_step_launched_behind_another_one_does_what_it_would_after_its_end(
    model: LlamaModel, num_drafts: int
) -> None:
    plain, ahead = plain_runner(model), followed_runner(model)
    chunks = [Chunk([5, 6, 7], 0, [3, 4], 1), Chunk([8, 9, 5, 5, 6], 0, [5, 6, 7], 1)]
    checks = [replace(check(0), base=3), replace(check(0), base=5)]
    first = plain.verify(chunks, checks)
    drafts = [[11, 12, 13][:num_drafts], []]
    then_chunks = [
        Chunk([*verdict.token_ids, *draft], chunk.end, chunk.block_ids, 1 + len(draft))
        for chunk, verdict, draft in zip(chunks, first, drafts, strict=True)
    ]
    then_checks = [
        replace(check, base=check.base + 1, draft=tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in draft))
        for check, draft in zip(checks, drafts, strict=True)
    ]
    second = plain.verify(then_chunks, then_checks)
    successors = [
        Successor(checks[0], [3, 4], [Branch(0, first[0].token_ids[0], drafts[0])] if num_drafts else []),
        Successor(checks[1], [5, 6, 7], [Branch(0, first[1].token_ids[0] + 1, [9, 9])]),
    ]
    ahead.prepare()
    finish = ahead.launch(chunks, checks)
    finish_behind = ahead.launch_after(successors)
    assert finish() == first
    assert finish_behind is not None
    assert finish_behind() == [(verdict.num_accepted, verdict.token_ids[-1]) for verdict in second]
    torch.testing.assert_close(ahead.kv_cache._data, plain.kv_cache._data, atol=1e-5, rtol=0)


def test_a_step_of_another_size_may_be_launched_behind_a_prompt(model: LlamaModel) -> None:
    plain, ahead = plain_runner(model), followed_runner(model)
    blocks, first_check = list(range(3, 13)), replace(check(0), base=38)
    prompt = Chunk([40] * 38, 0, blocks, 1)
    [first] = plain.verify([prompt], [first_check])
    [second] = plain.verify([Chunk(first.token_ids, 38, blocks, 1)], [replace(first_check, base=39)])
    ahead.prepare()
    finish = ahead.launch([prompt], [first_check])
    finish_behind = ahead.launch_after([Successor(first_check, blocks, [])])
    assert finish() == [first]
    assert finish_behind is not None
    assert finish_behind() == [(0, second.token_ids[-1])]
    assert len(ahead.num_graph_steps) == 2, "the sizes are to differ"


def test_nothing_is_launched_behind_a_step_without_a_graph_whose_outcome_no_graph_could_read(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.graph_runner.verify", verify)
    runner = followed_runner(model)
    runner.prepare()
    blocks = list(range(20))
    runner.launch([Chunk([5, 6, 7], 0, blocks, 1)], [check(0)])()
    finish = runner.launch([Chunk([5] * 65, 0, blocks, 1)], [replace(check(0), base=65)])
    assert runner.num_eager_steps == 1
    assert runner.launch_after([Successor(replace(check(0), base=65), blocks, [])]) is None
    finish()


@pytest.mark.parametrize("number", [0, LAST_NUMBER - 1, LAST_NUMBER])
def test_steps_follow_each_other_whatever_their_number(model: LlamaModel, number: int) -> None:
    prompt, blocks = Story(1, 0).tokens[0], range(20)
    expected = Story(1, 0).run(plain_runner(model), num_steps=9)[0]
    runner, text, fed = followed_runner(model), list(prompt), 0
    runner.prepare()
    runner._buffers.number = number
    while len(text) < len(expected):  # one step as the host writes it, and two behind it
        base = len(text)
        checks = [replace(check(0), base=base + i) for i in range(2)]
        finish = runner.launch([Chunk(text[fed:], fed, blocks, 1)], checks[:1])
        behind = runner.launch_after([Successor(checks[0], blocks, [])])
        text += finish()[0].token_ids
        last = runner.launch_after([Successor(checks[1], blocks, [])])
        assert behind is not None
        assert last is not None
        text += [behind()[0][1], last()[0][1]]
        fed = len(text) - 1
    assert text == expected


def test_only_steps_that_others_may_follow_look_whether_they_do(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[StepRows] = []
    monkeypatch.setattr("slipstream.engine.step_graphs.follow_up", lambda rows, *_: looked.append(rows))
    for runner, num_looks in ((padded_runner(model), 0), (followed_runner(model), 1)):
        runner.verify([Chunk([5], 0, [0], 1)], [check(0)])
        assert (runner.can_follow, len(looked)) == (num_looks > 0, num_looks)


def test_no_step_is_launched_behind_another_one_whose_checks_its_graph_cannot_do(model: LlamaModel) -> None:
    runner = followed_runner(model)
    runner.prepare()
    for sampling, possible in ((SAMPLED, True), (LIMITED, False)):
        finish = runner.launch([Chunk([5, 6, 7], 0, [3, 4], 1)], [check(0, sampling)])
        behind = runner.launch_after([Successor(check(0, sampling), [3, 4], [])])
        assert (behind is not None) == possible
        finish()
        if behind is not None:
            behind()


@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("sampling", [SAMPLED, LIMITED, RULED])
def test_padded_steps_draw_the_same_tokens(model: LlamaModel, sampling: SamplingParams, mode: VerificationMode) -> None:
    expected, padded = (
        Story(3, 4, sampling, mode).run(runner) for runner in (plain_runner(model), padded_runner(model))
    )
    assert padded == expected


def test_padded_logits_are_those_of_the_step_alone_and_padding_writes_no_kv(model: LlamaModel) -> None:
    plain, padded = plain_runner(model), padded_runner(model)
    chunks = [Chunk([5, 6, 7, 8, 9], 0, [3, 4], 2), Chunk([11], 0, [7], 0), Chunk([12, 13], 0, [9], 2)]
    checks = [check(1), check(1)]
    expected = plain.forward(chunks)
    padded.verify(chunks, checks)
    torch.testing.assert_close(padded._logits[:4], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(padded.kv_cache._data, plain.kv_cache._data, atol=1e-5, rtol=0)


def check(num_drafts: int, sampling: SamplingParams = GREEDY) -> SequenceCheck:
    draft = tuple(DraftToken(5, LawKind.ONE_HOT) for _ in range(num_drafts))
    return SequenceCheck(draft=draft, base=3, sampling=sampling, mode=VerificationMode.RATIO)


def test_padded_steps_tell_the_log_probabilities_of_the_step_alone(model: LlamaModel) -> None:
    chunks = [Chunk([5, 6, 7], 0, [3], 1), Chunk([8, 9, 5, 5], 0, [4], 3), Chunk([5, 5], 0, [9], 2)]
    asks = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=4)
    checks = [check(0, asks), check(2), check(1, asks)]
    plain, padded = (runner.verify(chunks, checks) for runner in (plain_runner(model), padded_runner(model)))
    assert plain[1].logprobs is padded[1].logprobs is None
    for expected, told in ((plain[0].logprobs, padded[0].logprobs), (plain[2].logprobs, padded[2].logprobs)):
        assert expected is not None
        assert told is not None
        np.testing.assert_allclose(told.logprobs, expected.logprobs, atol=1e-5)
        np.testing.assert_array_equal(told.top_token_ids, expected.top_token_ids)
        np.testing.assert_allclose(told.top_logprobs, expected.top_logprobs, atol=1e-5)


def test_log_probabilities_are_launched_before_the_one_wait_and_read_after_it(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            order.append(name)
            return function(*args)

        return noted

    monkeypatch.setattr(AskedRows, "score", noting("scored", AskedRows.score))
    monkeypatch.setattr(GraphRunner, "_wait", noting("waited", GraphRunner._wait))
    monkeypatch.setattr("slipstream.engine.graph_runner.with_logprobs", noting("read", graph_runner.with_logprobs))
    finish = padded_runner(model).launch([Chunk([5], 0, [0], 1)], [check(0, SamplingParams(logprobs=True))])
    launched = list(order)
    assert set(launched) == {"scored"}
    finish()
    assert order[len(launched) :] == ["waited", "read"]


def test_log_probabilities_are_those_before_a_grammar_took_tokens_away(model: LlamaModel) -> None:
    chunk = Chunk([5, 6, 7], 0, [3], 1)
    raw = plain_runner(model).forward([chunk]).log_softmax(-1)[0]
    allowed = int(raw.argmin())

    def only_that(bits: npt.NDArray[np.int32]) -> None:
        bits[:] = 0
        bits[:, allowed // 32] = np.uint32(1 << allowed % 32).view(np.int32)

    asks = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=1)
    (verdict,) = padded_runner(model).verify([chunk], [replace(check(0, asks), fill_masks=only_that)])
    assert verdict.token_ids == (allowed,)
    assert verdict.logprobs is not None
    assert verdict.logprobs.logprobs[0] == pytest.approx(float(raw[allowed]), abs=1e-4)
    assert verdict.logprobs.top_token_ids.tolist() == [[int(raw.argmax())]]


def test_what_an_earlier_larger_step_left_in_the_buffers_does_no_harm(model: LlamaModel) -> None:
    runner = padded_runner(model)
    Story(6, 3).run(runner)
    assert Story(3, 3).run(runner) == Story(3, 3).run(plain_runner(model))


def test_steps_are_counted_and_only_those_beyond_the_largest_bucket_run_eagerly(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager: list[int] = []

    def verify_eagerly(logits: torch.Tensor, checks: Sequence[SequenceCheck]) -> list[Verdict]:
        eager.append(len(logits))
        return verify(logits, checks)

    monkeypatch.setattr("slipstream.engine.graph_runner.verify", verify_eagerly)
    runner = padded_runner(model)
    runner.verify([Chunk([5], 0, [0], 1)], [check(0)])
    runner.verify([Chunk([5] * 65, 0, range(20), 1)], [check(0)])
    runner.verify([Chunk([5] * 20, 0, range(20), 0)], [])
    assert (runner.graph_steps, eager) == (GraphSteps(replayed=2, eager=1), [1])


def test_when_graph_memory_is_used_up_smaller_steps_take_larger_buckets(model: LlamaModel) -> None:
    runner = padded_runner(model, limit=1)
    runner.step = [check(0)]
    runner.prepare()
    runner.verify([Chunk([5], 0, [0], 1)], [check(0)])
    assert list(runner.num_graph_steps) == [max(BUCKETS)]


def test_masks_are_filled_once_the_pass_is_launched_and_hold_when_it_is_verified(model: LlamaModel) -> None:
    plain, padded = plain_runner(model), padded_runner(model)
    chunks = [Chunk([6, 5], 0, [1], 2), Chunk([7], 0, [2], 1)]
    likeliest = [verdict.token_ids[0] for verdict in plain.verify(chunks, [check(1), check(0)])]

    def fill(bits: npt.NDArray[np.int32]) -> None:
        padded.events.append("masks")
        allowing([{40, 41}])(bits)

    checks = [check(1), replace(check(0, SAMPLED), fill_masks=fill)]
    first, second = padded.verify(chunks, checks)
    assert padded.events == ["pass", "masks", "verification"]
    assert first.token_ids[0] == likeliest[0]
    assert second.token_ids[0] in (40, 41)
    assert plain.verify(chunks, [checks[0], replace(checks[1], fill_masks=allowing([{40, 41}]))]) == [first, second]
