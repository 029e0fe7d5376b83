"""One open sequence: its request, its engine side, its drafts and what it waits for. Knows no other sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from slipstream.engine.scheduler import Share
from slipstream.engine.scoring import ScoredChunk
from slipstream.engine.sequence import EngineSequence
from slipstream.exchange import Draft, Update
from slipstream.kernels.batch import Chunk
from slipstream.request import SequenceRequest, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.philox import derive_key
from slipstream.sampling.token_rules import make_token_rules
from verifier_svc.draft_check import Refusal, refusal
from verifier_svc.draft_tree import DraftPath, DraftTree, after_committed
from verifier_svc.local_drafts import LocalDrafts
from verifier_svc.patience import Patience
from verifier_svc.prompt_scores import PromptScores
from verifier_svc.stopping import StopRule

LEAST_GAIN: Final = 0.5  # tokens a pass, of drafts that others make; a cold sequence expects more
QUIET_PASSES: Final = 4  # without drafts, after which none are expected from n-grams
ASKED_EVERY: Final = 16  # passes of a quiet sequence


class ActiveSequence:
    """From open to its last commit. Times are seconds of the verifier's clock."""

    def __init__(
        self,
        stream: int,
        request: SequenceRequest,
        engine: EngineSequence,
        stop: StopRule,
        *,
        local: LocalDrafts,
        opened_at: float,
    ) -> None:
        self.stream = stream
        self.request = request
        self.engine = engine
        self.stop = stop
        self.max_wait_us = request.max_wait_us
        self.deadline = opened_at + request.deadline_ms * 1e-3 if request.deadline_ms else math.inf
        self.ready_at = opened_at
        self.waited = 0.0  # since the last commit: ready, but not computed on
        self.started = False  # some of it was computed
        self.is_open = True
        self.hit: bool | None = None  # None: not looked at since it became ready
        self.num_commits = 0
        self.num_sent_features: int | None = None  # of tokens from 0 on; None: its drafter needs none
        self.patience = Patience()
        self.prompt_scores = PromptScores(request)
        self._started_at = opened_at  # the pass that is under way
        self._tree = DraftTree()
        self._local = local
        self._guide = local.guide
        self._num_undrafted = 0  # passes since the last one that had drafts, or could have had
        self._silent = False  # the last wait for drafts ran out and nothing came since
        self._accept_key = derive_key(request.seed, request.nonce)
        self._rules = make_token_rules(
            request.sampling, request.token_ids, request.num_prompt_tokens, stop.stop_token_ids
        )

        sampling = request.sampling
        self._is_matched = sampling.greedy or request.mode is VerificationMode.COUPLED
        limited = not sampling.greedy and (sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0)
        self._checks_alone = self._rules is None and self._guide is None and not (sampling.logprobs or limited)

    @property
    def key(self) -> tuple[int, int]:
        return self.stream, self.request.sequence_id

    @property
    def has_drafts(self) -> bool:
        return self._tree.has_path(self.request.proposers)

    @property
    def grammar_is_too_slow(self) -> bool:
        return self._guide is not None and self._guide.is_too_slow

    @property
    def awaits_drafts(self) -> bool:
        """Whether giving it time may bring drafts (waiting.py says why each condition)."""
        return (
            self._local.waits_for_others
            and not self._silent
            and self.max_wait_us > 0
            and self.engine.most_draft_tokens > 0
            and self.engine.num_uncomputed == 1
            and not self.has_drafts
            and not self._local.come_first(self.engine.most_draft_tokens)
        )

    @property
    def num_cached_prompt_tokens(self) -> int:
        return min(self.engine.num_cached, self.request.num_prompt_tokens)

    @property
    def wait_ends_at(self) -> float:
        return self.ready_at + min(self.max_wait_us * 1e-6, self.patience.seconds)

    @property
    def may_wait(self) -> bool:
        """Whether it may be worth waiting for drafts if a pass ends in an outcome without any."""
        return self._local.waits_for_others and self.max_wait_us > 0 and self.engine.num_draft_tokens > 0

    @property
    def is_drafted_beside(self) -> bool:
        """Whether a drafter in this process hands its drafts over in memory."""
        return self.request.hand_over != 0

    @property
    def is_drafted(self) -> bool:
        """Whether drafts are to be expected, and worth more than the time between two steps."""
        from_others = self._local.waits_for_others
        worth_it = self.patience.gain >= LEAST_GAIN if from_others else not self._is_quiet
        return bool(self.request.proposers) and worth_it

    @property
    def _is_quiet(self) -> bool:
        """Whether n-grams found nothing to draft from for a while; now and then this service's own are asked again."""
        undrafted = self._num_undrafted
        return not self._local.waits_for_others and undrafted >= QUIET_PASSES and undrafted % ASKED_EVERY > 0

    @property
    def is_predictable(self) -> bool:
        """Whether a pass's outcome alone decides what the next one feeds and checks, among the drafts there are."""
        if not self._checks_alone or self.num_sent_features is not None:
            return False
        if self.engine.num_draft_tokens == 0 or self._is_quiet:
            return True
        return self._is_matched and not self._local.can_draft

    def update(self, update: Update) -> None:
        self.engine.num_draft_tokens = update.num_draft_tokens
        self.max_wait_us = update.max_wait_us

    def insert(self, draft: Draft, vocab_size: int) -> Refusal | None:
        """Puts a draft into the tree, or says why not; nothing but speed depends on it."""
        wrong = refusal(draft, vocab_size, self.request.proposers)
        if wrong is not None:
            return wrong
        self._silent = False
        tokens = after_committed(draft, self.engine.token_ids)
        if not tokens:
            return Refusal.STALE
        if not self._tree.insert(draft.proposer, draft.draw, tokens):
            return Refusal.CONTRADICTION
        self._num_undrafted = 0
        return None

    def start_pass(self, share: Share, now: float) -> DraftPath:
        """Ends the waiting and chooses what to check after the committed tokens."""
        if self.max_wait_us > 0 and not self._silent:
            self._silent = now >= self.wait_ends_at and self.awaits_drafts
        self.waited += now - self.ready_at
        self.started = True
        self._started_at = now
        path = self._choose_path(share.num_draft_tokens)
        self._num_undrafted = 0 if path.tokens else self._num_undrafted + 1
        return path if self._guide is None else self._guide.cut(path)

    def start_behind(self, path: DraftPath, now: float) -> None:
        """The pass that was launched behind the one that has just ended goes on, with this path."""
        self._started_at = now
        self.hit = bool(path.tokens)
        self._num_undrafted = 0 if path.tokens else self._num_undrafted + 1

    def branches(self, path: DraftPath, limits: Sequence[int]) -> list[tuple[tuple[int, int], DraftPath]]:
        """What would be checked next, by how the pass over `path` ends; of outcomes that are drafted for."""
        return self._tree.branches(path.tokens, limits, self.request.proposers)

    def scored_chunk(self, share: Share) -> ScoredChunk | None:
        """The first of the share's tokens, if they are asked how likely they made the next."""
        return self.prompt_scores.chunk(share, wants_features=self.num_sent_features is not None)

    def chunk(self, share: Share, path: DraftPath, num_fed: int = 0) -> Chunk:
        """The tokens to feed, less the first `num_fed`, which are fed otherwise; there may be none left.

        Logits are wanted at the last committed token and at each draft token.
        """
        start, end = self.engine.num_computed + num_fed, self.engine.num_computed + share.num_tokens
        committed = self.engine.token_ids[start:end]
        return Chunk(
            token_ids=[*committed, *[token.token_id for token in path.tokens]],
            start=start,
            block_ids=self.engine.table.block_ids,
            num_logits=len(path.tokens) + 1 if share.completes else 0,
            wants_features=self.num_sent_features is not None,
        )

    def check(self, path: DraftPath) -> SequenceCheck:
        return SequenceCheck(
            draft=path.tokens,
            base=self.engine.num_tokens,
            sampling=self.request.sampling,
            mode=self.request.mode,
            seed=self.request.seed,
            accept_key=self._accept_key,
            sample_index=self.request.sample_index,
            rules=self._rules,
            cut=path.cut,
            fill_masks=None if self._guide is None else self._guide.filler(path),
        )

    def note_pass(self, share: Share, path: DraftPath, num_accepted: int, now: float) -> None:
        """What a pass that has just ended cost and brought; one that fed a prompt says nothing about decoding."""
        if share.num_tokens != 1 or not share.num_draft_tokens:
            return
        self.patience.note_pass(now - self._started_at)
        if self._local.is_others(path):
            self.patience.note_drafts(num_accepted)
        elif self._silent or not path.tokens:
            self.patience.note_none()  # else own drafts, or the gateway's n-grams, came first and nobody was missed

    def may_go_on(self, token_ids: Sequence[int]) -> bool:
        """Whether rules and grammar left a token to follow all but the last of these; if none, any may have come."""
        if self._rules is not None and not self._rules.allows(token_ids[-1], token_ids[:-1]):
            return False
        return self._guide is None or self._guide.allows(token_ids)

    def commit(self, token_ids: tuple[int, ...], num_accepted: int) -> None:
        """Makes tokens final: the engine keeps their KV, the tree what agrees with them."""
        self.engine.commit(token_ids, num_accepted)
        if self._rules is not None:
            self._rules.extend(token_ids)
        if self._guide is not None:
            self._guide.advance(token_ids)
        self._tree.advance(token_ids)
        self.num_commits += 1
        self.waited = 0.0
        self.hit = None

    def note_hit(self) -> None:
        """Whether drafts are there, if nobody has looked since it became ready."""
        if self.hit is None:
            self.hit = self.has_drafts

    def _choose_path(self, num_tokens: int) -> DraftPath:
        if not self._local.come_first(num_tokens):
            path = self._tree.best_path(num_tokens, self.request.proposers)
            if path.tokens:
                self.hit = self.hit is not False
                return path
        self.note_hit()
        return self._local.path(num_tokens, self.engine.token_ids)
