"""An EAGLE-3 head drafts from the features of what is committed and feeds itself from there, on every branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from drafter_svc.config import RowLimits
from drafter_svc.drafter import Drafter
from drafter_svc.events import FeaturesArrived
from drafter_svc.proposers.eagle3 import NAME, load_eagle3_drafts
from drafter_svc.proposers.looped import LoopLimits
from drafter_svc.proposers.proposer import Proposer
from slipstream.cache.kv_cache import KVCache
from slipstream.config import EngineConfig
from slipstream.engine.step_choice import StepKind
from slipstream.errors import InvalidRequest
from slipstream.exchange import Commit, Draft, Features, LawKind, ModelInfo, SequenceFailure
from slipstream.kernels import rotary
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.models.eagle3_checkpoint import load_eagle3, load_projection
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.request import VerificationMode
from tests.drafter_svc.scripted import STREAM, VOCABULARY_HASH, Setup, request
from tests.models.eagle3_heads import make_head
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
PROMPT = list(range(40, 49))
DRAFT_IDS = list(range(30, 200))
LAYERS = (2, 3, 4)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return load_model(make_checkpoint(tmp_path_factory.mktemp("target"), layers=7), torch.float32, CPU)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_head(tmp_path_factory.mktemp("head"), DRAFT_IDS)


def target_features(target: LlamaModel, head: Path, token_ids: Sequence[int]) -> torch.Tensor:
    """[num_tokens, hidden] bf16"""
    with torch.no_grad():
        states = target.forward_dense_tapped(torch.tensor([list(token_ids)]), LAYERS)[1]
        made: torch.Tensor = load_projection(head, torch.float32, CPU)(states)[0].bfloat16()
    return made


class Simulation:
    """Drafting written plainly: a fresh cache, the committed tokens at once, then one token at a time."""

    def __init__(self, head: Path) -> None:
        self.model, self.ids = load_eagle3(head, torch.float32, CPU)

    @torch.no_grad()
    def next_token(self, committed: Sequence[int], features: torch.Tensor, drafted: Sequence[int]) -> int:
        cache = KVCache(self.model.config.layer, 1, 256, torch.float32, CPU)
        z = self._feed(committed[1:], 0, features[: len(committed) - 1].float(), cache)
        for i, token in enumerate(drafted):
            z = self._feed([token], len(committed) - 1 + i, z, cache)
        assert self.ids is not None
        return int(self.ids[self.model.logits(z)[0].argmax()])

    def _feed(self, token_ids: Sequence[int], start: int, features: torch.Tensor, cache: KVCache) -> torch.Tensor:
        batch = ForwardBatch.build([Chunk(list(token_ids), start, [0], 1)], 256, CPU)
        z: torch.Tensor = self.model(batch, features, cache)
        return z[-1:]


@dataclass
class EagleSetup:
    """A drafter with a head, and a target that makes final whatever the test says."""

    target: LlamaModel
    head: Path
    num_kv_blocks: int = 64
    fan_out: int = 0
    by_loops: bool = False
    committed: list[int] = field(default_factory=lambda: list(PROMPT))

    def __post_init__(self) -> None:
        engine = EngineConfig(
            model=self.head, dtype="float32", block_size=4, num_kv_blocks=self.num_kv_blocks, max_model_len=200
        )
        stepwise = load_eagle3_drafts(engine, num_target_ids=320, num_kept=8)
        limits = LoopLimits(max_rows=8, max_steps=4, step=StepKind.SEPARATE)
        self.capture = RunCapture()
        self.proposer: Proposer = stepwise.looped(limits, self.capture) if self.by_loops else stepwise
        info = ModelInfo(
            name="head",
            vocabulary_hash=VOCABULARY_HASH,
            vocab_size=320,
            max_model_len=200,
            proposers=(NAME,),
            features="f",
        )
        row_limits = RowLimits(max_rows=16, max_tokens=64, max_prefill_tokens=4)
        self.drafter = Drafter(self.proposer, row_limits, info, 4, clock=lambda: 0.0)
        self.simulation = Simulation(self.head)

    open = Setup.open
    commit_to = Setup.commit
    outputs = Setup.outputs
    drafts = Setup.drafts

    def begin(self, temperature: float = 0.0, mode: VerificationMode = VerificationMode.RATIO) -> None:
        self.open(
            request(
                PROMPT,
                temperature=temperature,
                mode=mode,
                num_draft_tokens=3,
                fan_out=self.fan_out,
                proposers=(NAME,),
                features="f",
            )
        )

    def tell(self, start: int, end: int) -> None:
        data = target_features(self.target, self.head, self.committed)[start:end]
        told = Features(7, start, data.view(torch.int16).numpy().tobytes())
        self.drafter.handle(FeaturesArrived(STREAM, (told,)))

    def make_final(self, token_ids: Sequence[int], num_drafted: int = 0) -> None:
        commit = Commit(7, len(self.committed), tuple(token_ids), len(token_ids) - 1, num_drafted, NAME)
        known = len(self.committed) - 1
        self.committed += token_ids
        self.tell(known, len(self.committed) - 1)
        self.commit_to(commit)

    def expected(self, path: Sequence[int], base: int) -> int:
        """The token drafted after `path` (which follows the first `base` tokens) once these were final."""
        features = target_features(self.target, self.head, self.committed[:base])
        return self.simulation.next_token(self.committed[:base], features, path)

    def check(self, draft: Draft) -> None:
        """Every token drawn since the last commit is what the head gives from all that is committed."""
        assert draft.base == len(self.committed)
        for i, token in enumerate(draft.tokens):
            if token.kind is not LawKind.ASSUMED:
                assert token.token_id == self.expected([t.token_id for t in draft.tokens[:i]], draft.base)


def ids(draft: Draft) -> list[int]:
    return [token.token_id for token in draft.tokens]


@pytest.fixture
def setup(target: LlamaModel, head: Path) -> EagleSetup:
    return EagleSetup(target, head)


@pytest.fixture(autouse=True)
def _padding_writes_no_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it: slot -1 is no slot."""
    write_kv = rotary.write_kv

    def write_real(keys: torch.Tensor, values: torch.Tensor, *caches: torch.Tensor) -> None:
        *kv, slots = caches
        real = slots >= 0
        write_kv(keys[real], values[real], *kv, slots[real])

    monkeypatch.setattr(rotary, "write_kv", write_real)


class RunCapture:
    """Replays by calling, and counts."""

    num_bytes, is_full, num_loops = 0, False, 0

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.num_loops += 1
            run()

        return replay


def test_nothing_is_drafted_before_features_have_come_and_nothing_stalls(setup: EagleSetup) -> None:
    setup.begin()
    assert setup.drafts() == []
    setup.tell(0, 3)
    assert setup.drafts() == []
    setup.commit_to(Commit(7, len(PROMPT), (60,)))
    assert setup.drafts() == []
    setup.committed.append(60)
    setup.tell(3, len(PROMPT))
    (draft,) = setup.drafts()
    assert draft.base == len(PROMPT) + 1


@pytest.mark.parametrize("by_loops", [False, True])
def test_every_round_drafts_what_plain_drafting_from_the_features_gives(
    target: LlamaModel, head: Path, by_loops: bool
) -> None:
    setup = EagleSetup(target, head, by_loops=by_loops)
    setup.begin()
    setup.tell(0, len(PROMPT) - 1)
    for accepted in (0, 2, 3, 1, 0, 3):
        (draft,) = setup.drafts()
        base = len(setup.committed)
        expected: list[int] = []
        for _ in range(3):
            expected.append(setup.expected(expected, base))
        assert ids(draft) == expected
        setup.make_final([*expected[:accepted], 50 + accepted], num_drafted=3)
    assert setup.capture.num_loops == (6 if by_loops else 0)


@pytest.mark.parametrize(("num_kv_blocks", "by_loops"), [(64, False), (14, False), (64, True), (18, True)])
def test_branches_follow_from_the_heads_own_output_and_a_commit_refreshes_them(
    target: LlamaModel, head: Path, num_kv_blocks: int, by_loops: bool
) -> None:
    setup = EagleSetup(target, head, num_kv_blocks, fan_out=6, by_loops=by_loops)
    setup.begin()
    setup.tell(0, len(PROMPT) - 1)
    hits = 0
    branches: list[Draft] = []
    for turn in range(5):
        drafts = setup.drafts()
        for draft in drafts:
            setup.check(draft)
        branches += [draft for draft in drafts if draft.tokens[0].kind is LawKind.ASSUMED]
        assumed = [draft for draft in branches if draft.base == len(setup.committed)]
        if assumed and turn % 3 < 2:  # what a branch foresaw comes true
            guess = assumed[turn % len(assumed)]
            path = [t.token_id for t in guess.tokens if t.kind is LawKind.ASSUMED]
            hits += 1
        else:
            path = [35 + turn]
        setup.make_final(path, num_drafted=3)
    assert hits >= 2
    assert setup.drafter.info().kv_blocks_used > 0
    setup.commit_to(Commit(7, len(setup.committed), (99,), finish_reason=1))  # type: ignore[arg-type]
    assert setup.drafter.info().kv_blocks_used == 0


def test_tokens_of_other_proposers_keep_the_path_that_foresaw_them(setup: EagleSetup) -> None:
    setup.begin()
    setup.tell(0, len(PROMPT) - 1)
    (draft,) = setup.drafts()
    setup.make_final(ids(draft)[:1])
    drafts = setup.drafts()
    assert ids(drafts[0])[:2] == ids(draft)[1:]
    for one in drafts:
        setup.check(one)


@pytest.mark.parametrize(
    "mode, kind", [(VerificationMode.RATIO, LawKind.SPARSE), (VerificationMode.COUPLED, LawKind.ONE_HOT)]
)
def test_sampled_drafts_carry_laws_in_ratio_mode_only_and_stay_in_the_drafts_vocabulary(
    setup: EagleSetup, mode: VerificationMode, kind: LawKind
) -> None:
    setup.begin(temperature=1.0, mode=mode)
    setup.tell(0, len(PROMPT) - 1)
    (draft,) = setup.drafts()
    assert [token.kind for token in draft.tokens] == [kind] * 3
    assert set(ids(draft)) <= set(DRAFT_IDS)


def test_a_prompt_of_one_token_is_drafted_for_after_the_first_commit(target: LlamaModel, head: Path) -> None:
    setup = EagleSetup(target, head, committed=[40])
    setup.open(request([40], temperature=0.0, proposers=(NAME,), fan_out=0, features="f"))
    setup.tell(0, 1)
    assert setup.drafts() == []
    setup.committed.append(41)
    setup.commit_to(Commit(7, 1, (41,)))
    (draft,) = setup.drafts()
    assert ids(draft)[0] == setup.expected([], 2)


def test_features_made_for_another_head_are_refused_by_name(setup: EagleSetup) -> None:
    setup.open(request(PROMPT, proposers=(NAME,), features="g"))
    ((_, failure),) = setup.outputs()
    assert isinstance(failure, SequenceFailure)
    assert isinstance(failure.error, InvalidRequest)
    assert "features is g, and draft model 'head' is made for f" in str(failure.error)


def test_features_that_hold_no_whole_rows_end_their_sequence_alone(setup: EagleSetup) -> None:
    setup.begin()
    setup.drafter.handle(
        FeaturesArrived(STREAM, (Features(7, 0, np.zeros(5, np.uint16).tobytes()), Features(8, 0, b"")))
    )
    ((_, failure),) = setup.outputs()
    assert isinstance(failure, SequenceFailure)
    assert "must be a multiple of 64" in str(failure.error)
