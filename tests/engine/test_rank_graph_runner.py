"""Ranks that replay say what one rank says. Here a capture replays by calling; kernels give way to their references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket, make_buckets
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_graph_runner import AgreedCapture, RankGraphRunner
from slipstream.engine.rank_steps import Replay, SendStep, Step, Verify
from slipstream.kernels import rotary
from slipstream.kernels.batch import Chunk
from slipstream.kernels.gpu.check_table import Needs
from slipstream.models.loader import load_model
from slipstream.parallel.ranks import RankGroup
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.sliced_verification import decide_by_statistics
from slipstream.sampling.verification import verify
from tests.engine.stories import GREEDY, RULED, Story
from tests.parallel.rank_threads import led, on_ranks
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
BUCKETS = make_buckets(max_num_seqs=4, max_num_tokens=64)
PROBABLE, LIMITED = SamplingParams(temperature=0.8, min_p=0.05), SamplingParams(top_k=20, top_p=0.9)


class EagerCapture:
    num_bytes = 0
    is_full = False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


class CpuRankGraphRunner(RankGraphRunner):
    """What kernels would read from the table, the references read from the step that both ranks share here."""

    def __init__(self, *args: Any, shared: SimpleNamespace, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shared = shared

    def _replay(self, bucket: Bucket, chunks: Sequence[Chunk], checks: Any, needs: Any) -> torch.Tensor | None:
        self._shared.chunks, self._shared.checks = chunks, checks
        return super()._replay(bucket, chunks, checks, needs)

    def _spans(self, bucket: Bucket) -> tuple[tuple[int, int], ...]:
        return tuple((len(chunk.token_ids), chunk.end) for chunk in self._shared.chunks)

    def _decide(self, bucket: Bucket, needs: Needs) -> None:
        checks = self._shared.checks
        num_rows = sum(len(check.draft) + 1 for check in checks)
        decided = decide_by_statistics(self._slice[:num_rows], checks, self.vocabulary_slice)
        self._decided[: len(checks)].copy_(decided)

    def _run_verification(self, bucket: Bucket, needs: Needs) -> None:
        checks = [replace(check, rules=None) for check in self._shared.checks]  # the logits are under them already
        num_rows = sum(len(check.draft) + 1 for check in checks)
        for row, verdict in zip(self._decided, verify(self._logits[:num_rows], checks), strict=False):
            row.copy_(torch.tensor([verdict.num_accepted, verdict.token_ids[-1]]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {"hidden": 48, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 16}
    return make_checkpoint(tmp_path_factory.mktemp("model"), seed=3, logit_std=3.0, **entries)


@pytest.fixture(autouse=True)
def _padding_writes_no_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it: slot -1 is no slot."""
    write = rotary.write_kv

    def write_real(keys: torch.Tensor, values: torch.Tensor, *caches_and_slots: torch.Tensor) -> None:
        *caches, slots = caches_and_slots
        write(keys[slots >= 0], values[slots >= 0], *caches, slots[slots >= 0])

    monkeypatch.setattr(rotary, "write_kv", write_real)


def ranks_of(folder: Path, sent: list[Step]) -> Callable[[RankGroup, SendStep], ModelRunner]:
    shared = SimpleNamespace()

    def make(ranks: RankGroup, send: SendStep) -> ModelRunner:
        def noting(step: Step) -> None:
            sent.append(step)
            send(step)

        model = load_model(folder, torch.float32, CPU, ranks=ranks)
        cache = KVCache(model.share, 120, 4, torch.float32, CPU)
        options = {"buckets": BUCKETS, "capture": EagerCapture(), "send": noting, "shared": shared}
        return CpuRankGraphRunner(model, cache, 96, **options)

    return make


def plain_runner(folder: Path) -> ModelRunner:
    model = load_model(folder, torch.float32, CPU)
    return ModelRunner(model, KVCache(model.config, 120, 4, torch.float32, CPU))


@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("sampling", [GREEDY, PROBABLE, LIMITED, RULED])
def test_replayed_steps_write_the_text_of_one_rank(
    folder: Path, sampling: SamplingParams, mode: VerificationMode
) -> None:
    sent: list[Step] = []
    with led(2, ranks_of(folder, sent)) as runner:
        text = Story(3, 4, sampling, mode).run(runner)
    assert text == Story(3, 4, sampling, mode).run(plain_runner(folder))
    replays = [step for step in sent if isinstance(step, Replay)]
    assert len(replays) == len(sent) == 4
    assert {step.whole for step in replays} == {sampling in (LIMITED, RULED)}


def test_a_step_beyond_the_largest_bucket_is_taken_by_all_without_a_graph(folder: Path) -> None:
    sent: list[Step] = []
    chunks = [Chunk([5 + i % 90 for i in range(70)], 0, range(20), 1)]
    checks = [Story(1, 0)._check(0, ())]
    with led(2, ranks_of(folder, sent)) as runner:
        verdicts = runner.verify(chunks, checks)
    assert verdicts == plain_runner(folder).verify(chunks, checks)
    assert [type(step) for step in sent] == [Verify]


def test_all_ranks_stop_capturing_when_the_memory_of_one_is_used_up() -> None:
    def run(ranks: RankGroup) -> tuple[bool, bool]:
        capture = EagerCapture()
        agreed = AgreedCapture(capture, ranks, CPU)
        before = agreed.is_full
        capture.is_full = ranks.shard.rank == 1
        return before, agreed.is_full

    assert on_ranks(2, run) == [(False, True)] * 2
