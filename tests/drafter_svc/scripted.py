"""Stand-ins for the drafter's neighbours: a model that is a function of its context, and a verifier of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from drafter_svc.config import RowLimits
from drafter_svc.drafter import Drafter
from drafter_svc.events import Committed, Opened
from drafter_svc.proposers.draft_model import NAME, DraftModel
from drafter_svc.proposers.proposer import Limits, Proposer
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.exchange import Commit, CommitBatch, Draft, DraftBatch, ModelInfo, SequenceFailure
from slipstream.kernels.batch import Chunk
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.philox import derive_key
from slipstream.sampling.token_rules import make_token_rules
from slipstream.sampling.verification import verify_reference
from verifier_svc.draft_tree import DraftTree, after_committed

VOCAB = 12
VOCABULARY_HASH = "a" * 64
STREAM = 1


def context_logits(context: Sequence[int], salt: int = 0, spread: float = 2.0) -> npt.NDArray[np.float32]:
    """Logits that change with every token of the context: [VOCAB]."""
    seed = hash((salt, *context)) & (2**63 - 1)
    return np.random.default_rng(seed).normal(0, spread, VOCAB).astype(np.float32)


class ScriptedRunner:
    """Keeps token ids where a model keeps KV and reads its context back through block tables.

    A wrong table, a missing copy or an overwritten block gives another context, so other drafts.
    """

    def __init__(self, limits: Limits, logits: Callable[[Sequence[int]], npt.NDArray[np.float32]] = context_logits):
        self.slots = np.full((limits.num_blocks, limits.block_size), -1)
        self.forwards: list[list[Chunk]] = []
        self.logits = logits

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        self.forwards.append(list(chunks))
        for chunk in chunks:
            positions = np.arange(chunk.start, chunk.end)
            self._slots_of(chunk)[positions] = chunk.token_ids
        rows = [
            self.logits(context[: len(context) - after])
            for chunk in chunks
            for context in [self._context(chunk)]
            for after in reversed(range(chunk.num_logits))
        ]
        return torch.tensor(np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows else VOCAB))

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.slots[target] = self.slots[source]

    def _slots_of(self, chunk: Chunk) -> _TableView:
        return _TableView(self.slots, list(chunk.block_ids))

    def _context(self, chunk: Chunk) -> list[int]:
        context: list[int] = self._slots_of(chunk)[np.arange(chunk.end)].tolist()
        assert -1 not in context, f"KV is missing at position {context.index(-1)}"
        return context


@dataclass
class _TableView:
    slots: npt.NDArray[np.int64]
    block_ids: list[int]

    def _where(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        size = self.slots.shape[1]
        return np.array(self.block_ids)[positions // size], positions % size

    def __getitem__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.slots[self._where(positions)]

    def __setitem__(self, positions: npt.NDArray[np.int64], token_ids: Sequence[int]) -> None:
        self.slots[self._where(positions)] = token_ids


def token_choice(num_target_ids: int = VOCAB, target_ids: torch.Tensor | None = None) -> TokenChoice:
    return TokenChoice(vocab_size=VOCAB, num_target_ids=num_target_ids, num_kept=8, target_ids=target_ids)


def draft_model(runner: ScriptedRunner, limits: Limits) -> Proposer:
    return DraftModel(runner, limits, token_choice())


@dataclass
class Setup:
    """A drafter on a scripted model."""

    num_blocks: int = 256
    block_size: int = 4
    max_model_len: int = 1000
    max_rows: int = 64
    max_tokens: int = 128
    max_prefill_tokens: int = 8
    max_branches: int = 64
    most_ahead: int = 64
    most_drafted: int = 64
    max_num_seqs: int = 8
    logits: Callable[[Sequence[int]], npt.NDArray[np.float32]] = context_logits
    clock: Callable[[], float] = lambda: 0.0
    proposer: Callable[[ScriptedRunner, Limits], Proposer] = draft_model
    proposers: tuple[str, ...] = (NAME,)
    runner: ScriptedRunner = field(init=False)
    drafter: Drafter = field(init=False)

    def __post_init__(self) -> None:
        limits = Limits(
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            max_model_len=self.max_model_len,
            vocab_size=VOCAB,
        )
        self.runner = ScriptedRunner(limits, self.logits)
        self.drafter = Drafter(
            self.proposer(self.runner, limits),
            RowLimits(
                max_rows=self.max_rows,
                max_tokens=self.max_tokens,
                max_prefill_tokens=self.max_prefill_tokens,
                max_branches=self.max_branches,
                most_ahead=self.most_ahead,
                most_drafted=self.most_drafted,
            ),
            ModelInfo(
                name="scripted",
                vocabulary_hash=VOCABULARY_HASH,
                vocab_size=VOCAB,
                max_model_len=self.max_model_len,
                proposers=self.proposers,
            ),
            max_num_seqs=self.max_num_seqs,
            clock=self.clock,
        )

    def open(self, request: SequenceRequest, stream: int = STREAM) -> None:
        self.drafter.handle(Opened(stream, request, received=0.0))

    def commit(self, *commits: Commit, stream: int = STREAM) -> None:
        self.drafter.handle(Committed(stream, CommitBatch(commits), received=0.0))

    def outputs(self, max_steps: int = 1000) -> list[tuple[int, DraftBatch | SequenceFailure]]:
        """Everything said until there is nothing more to do."""
        said: list[tuple[int, DraftBatch | SequenceFailure]] = []
        for _ in range(max_steps):
            if self.drafter.next_wake() is None:
                return said
            said += self.drafter.step() or []
        raise AssertionError(f"still busy after {max_steps} steps")

    def drafts(self, max_steps: int = 1000) -> list[Draft]:
        return drafts_in(self.outputs(max_steps))


def drafts_in(outputs: Sequence[tuple[int, DraftBatch | SequenceFailure]]) -> list[Draft]:
    return [draft for _, message in outputs if isinstance(message, DraftBatch) for draft in message.drafts]


def request(
    prompt: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    sequence_id: int = 7,
    temperature: float = 1.0,
    mode: VerificationMode = VerificationMode.RATIO,
    num_draft_tokens: int = 3,
    fan_out: int = 4,
    max_tokens: int = 200,
    seed: int = 5,
    nonce: int = 6,
    epoch: int = 0,
    vocabulary_hash: str = VOCABULARY_HASH,
    proposers: tuple[str, ...] = (NAME,),
    features: str = "",
) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=sequence_id,
        token_ids=tuple(prompt),
        num_prompt_tokens=len(prompt),
        sampling=SamplingParams(temperature=temperature, max_tokens=max_tokens),
        mode=mode,
        seed=seed,
        nonce=nonce,
        num_draft_tokens=num_draft_tokens,
        fan_out=fan_out,
        proposers=proposers,
        epoch=epoch,
        vocabulary_hash=vocabulary_hash,
        features=features,
    )


class ScriptedVerifier:
    """One sequence's verifier: a real draft tree and the real rule, on a scripted target."""

    def __init__(
        self,
        opened: SequenceRequest,
        logits: Callable[[Sequence[int]], npt.NDArray[np.float32]] = context_logits,
    ) -> None:
        self.request = opened
        self.committed = list(opened.token_ids)
        self.tree = DraftTree()
        self._logits = logits

    def insert(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if tokens := after_committed(draft, self.committed):
                assert self.tree.insert(draft.proposer, draft.draw, tokens)

    def run_pass(self, num_draft_tokens: int | None = None) -> Commit:
        """Checks the tree's best path; `num_draft_tokens` = 0 is a pass that did not wait for any."""
        most = self.request.num_draft_tokens if num_draft_tokens is None else num_draft_tokens
        path = self.tree.best_path(most, self.request.proposers)
        contexts = [self.committed + [token.token_id for token in path.tokens[:i]] for i in range(len(path.tokens) + 1)]
        check = SequenceCheck(
            draft=path.tokens,
            base=len(self.committed),
            sampling=self.request.sampling,
            mode=self.request.mode,
            seed=self.request.seed,
            accept_key=derive_key(self.request.seed, self.request.nonce + 1),
            rules=make_token_rules(self.request.sampling, self.committed, self.request.num_prompt_tokens, ()),
        )
        (verdict,) = verify_reference(torch.tensor(np.array([self._logits(c) for c in contexts])), [check])
        commit = Commit(
            sequence_id=self.request.sequence_id,
            base=len(self.committed),
            token_ids=verdict.token_ids,
            num_accepted=verdict.num_accepted,
            num_draft_tokens=len(path.tokens),
            proposer=path.proposer,
            hit=bool(path.tokens),
        )
        self.committed += commit.token_ids
        self.tree.advance(commit.token_ids)
        return commit

    def commit_others(self, count: int) -> Commit:
        """A pass that accepted another proposer's drafts, in the second place an unlikely one."""
        token_ids: tuple[int, ...] = ()
        for i in range(count):
            logits = self._logits([*self.committed, *token_ids])
            token_ids += (int(logits.argmin() if i == 1 else logits.argmax()),)
        commit = Commit(self.request.sequence_id, len(self.committed), token_ids, count - 1, count - 1, "ngram")
        self.committed += token_ids
        self.tree.advance(token_ids)
        return commit
