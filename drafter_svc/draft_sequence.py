"""What the drafter holds of one sequence: the committed prefix, the path on offer, branches for guessed outcomes.

Knows KV block tables and token ids; knows no model, no other sequence and no wire.

The *trunk* is the path that the verifier will submit next. A *branch* follows it for a while, then takes the token that
may become final instead, and goes on from there. A commit keeps what agrees with it and drops the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from drafter_svc.commit_order import CommitOrder
from drafter_svc.draft_bounds import DraftBounds
from drafter_svc.enumeration import Outcome, OutcomeHistory
from drafter_svc.feature_feed import FeatureFeed
from drafter_svc.feeding import Feeding
from drafter_svc.path import Path, submitted_next
from drafter_svc.proposers.proposer import Drawing, Limits, Proposal
from slipstream.cache.block_pool import BlockPool
from slipstream.cache.block_table import BlockTable
from slipstream.exchange import Commit, Draft, DraftToken, LawKind, Update
from slipstream.request import SequenceRequest
from slipstream.sampling.token_rules import make_token_rules


class DraftSequence:
    def __init__(
        self,
        request: SequenceRequest,
        pool: BlockPool,
        limits: Limits,
        received: float,
        stop_below: float = 0.0,
        adapter: int | None = None,  # slot of the one that all its paths are drafted with
    ) -> None:
        self.request = request
        self.adapter = adapter
        self.committed = list(request.token_ids)
        self.drawing = Drawing.of(request)
        sampling = request.sampling
        stops = (*sampling.stop_token_ids, *(() if sampling.ignore_eos else limits.eos_token_ids))
        self.rules = make_token_rules(sampling, request.token_ids, request.num_prompt_tokens, stops)
        self.runs_ahead = True  # as far as it is asked to
        self.rests = False  # nothing is done for it
        self._has_commits = False
        self.received = received  # when the newest commit, or the request, came; time.monotonic()
        self.compute_seconds = 0.0  # spent on this sequence since its last message
        self.starved = False  # its KV was given up; nothing is drafted until there is room for all of it
        self.history = OutcomeHistory()
        self.branches: list[Path] = []
        self.pending: list[Outcome] = []  # worth a branch, likeliest first, not yet begun
        self.features = FeatureFeed(limits.feature_size)
        self.feeding = Feeding(self.committed, self.features, feeds_drawn=limits.feeds_drawn)
        self._asked_fan_out = request.fan_out
        self._bounds = DraftBounds(request, limits)
        self._pool = pool
        self._stop_below = stop_below
        self._draw_numbers = count(request.epoch << 32)
        self._order = CommitOrder()
        self.trunk = self._new_path()
        self.trunk.goal = self._bounds.goal(len(self.committed))

    @property
    def num_draft_tokens(self) -> int:
        return self._bounds.num_draft_tokens

    @property
    def fan_out(self) -> int:
        return self._asked_fan_out if self.runs_ahead else 0

    @property
    def holds_back(self) -> bool:
        """Among many, nothing is drawn before the first commit: it comes with those of the others, who wait for all."""
        return not (self.runs_ahead or self._has_commits)

    # What there is to do

    def trunk_has_work(self) -> bool:
        if self.rests or (self.holds_back and self.num_to_feed(self.trunk) == 1):
            return False
        wanted = not self.trunk.is_complete or self._branches_wait_for_trunk()
        return wanted and not self.starved and self.num_to_feed(self.trunk) > 0

    def unfinished_branches(self) -> list[Path]:
        return [branch for branch in self.branches if not branch.is_complete]

    def ready_outcomes(self) -> list[Outcome]:
        """Pending outcomes whose branch can begin now."""
        if not self.trunk.is_complete or self.starved or len(self.branches) >= self.fan_out:
            return []
        reach = min(self._reach(), len(self.trunk.outcomes) - 1)
        return [outcome for outcome in self.pending if outcome.num_accepted <= reach]

    def num_to_feed(self, path: Path) -> int:
        """How many of its tokens one row may feed now."""
        return self.feeding.num_tokens(path, waits=path is self.trunk)

    # What happens

    def update(self, update: Update) -> None:
        """Applies from the next round: what is being drafted goes on."""
        self._bounds.num_draft_tokens = update.num_draft_tokens
        self._asked_fan_out = update.fan_out

    def commit(self, commit: Commit, received: float) -> None:
        for ready, new in self._order.take(commit, self.committed):
            self.received = received
            self._has_commits = True
            if ready.base == len(self.committed):
                self._observe(ready)
            self._bounds.note(new)
            self._advance(new)

    def take(self, path: Path, proposals: Sequence[Proposal], end: int) -> None:
        """A step has fed `path` up to position `end` and drawn `proposals`."""
        self.feeding.mark_target_fed(path, end)
        was_complete = path.is_complete
        path.take(proposals, self._stop_below)
        self.feeding.mark_computed(path, end, len(proposals))
        if path is self.trunk and path.is_complete and not was_complete:
            self._enumerate()

    def begin_branch(self, outcome: Outcome) -> tuple[Path, list[tuple[int, int]]] | None:
        """The branch for a ready outcome and the blocks to copy for it; None if it is not worth having.

        Raises OutOfBlocks and changes nothing.
        """
        shared = outcome.num_accepted
        candidates = self.trunk.candidates(shared)
        num_drafted = self._bounds.goal(len(self.committed) + shared + 1)
        if outcome.rank >= len(candidates) or num_drafted == 0:
            self.pending.remove(outcome)
            return None
        token_id = candidates[outcome.rank]
        if any(b.num_shared == shared and b.tokens[shared].token_id == token_id for b in self.branches):
            self.pending.remove(outcome)
            return None
        # With features the KV of a token lies in the slot of the one before it, whose feature it was fed with.
        lag = 1 if self.features.is_needed else 0
        table, copies = self.trunk.table.fork(len(self.committed) + shared - lag)
        self.pending.remove(outcome)
        branch = self._new_branch(table, shared, token_id, num_drafted)
        branch.probability = outcome.probability
        self.branches.append(branch)
        return branch, copies

    def drop_branch(self, branch: Path) -> None:
        """Gives a branch's KV back; what was sent of it stays known, for it may still come true."""
        branch.release()
        if not branch.is_complete or branch.has_unsent:
            self.branches.remove(branch)

    def starve(self) -> None:
        self.release()
        self.starved = True

    def release(self) -> None:
        for branch in list(self.branches):
            self.drop_branch(branch)
        self.trunk.release()

    def drafts(self) -> Iterator[Draft]:
        """Messages for the paths that became complete, the trunk first."""
        for path in (self.trunk, *self.branches):
            if path.is_complete and path.has_unsent:
                request = self.request
                base = len(self.committed)
                yield Draft(request.sequence_id, base, request.proposers[0], path.draw, path.send())

    # How it is done

    def _observe(self, commit: Commit) -> None:
        if self.fan_out == 0 or commit.proposer != self.request.proposers[0] or commit.num_draft_tokens == 0:
            return
        self.history.observe_pass(commit.num_accepted, commit.num_draft_tokens)
        accepted, last = commit.token_ids[: commit.num_accepted], commit.token_ids[-1]
        candidates = self.trunk.candidates(len(accepted))
        if candidates and len(commit.token_ids) == len(accepted) + 1 and self._on_trunk(accepted):
            rank = candidates.index(last) if last in candidates else None
            self.history.observe_outcome(commit.num_accepted == commit.num_draft_tokens, rank)

    def _on_trunk(self, token_ids: Sequence[int]) -> bool:
        return self.trunk.common_length(token_ids) == len(token_ids)

    def _advance(self, new: Sequence[int]) -> None:
        paths = [self.trunk, *self.branches]
        alive = [path for path in paths if path.common_length(new) == len(new)]
        trunk = submitted_next(alive, len(new)) or self._new_path()
        branches = [path for path in alive if path is not trunk and path.is_guessed(len(new))]
        donor = max((trunk, *paths), key=lambda path: self._usable_kv(path, new))
        usable = self._usable_kv(donor, new)
        if donor is not trunk:
            branches = []  # they may share blocks with the donor, which is written again below
        for path in paths:
            if path not in branches and path is not trunk and path is not donor:
                path.release()
        self.committed += new
        if self.rules is not None:
            self.rules.extend(new)
        if donor is not trunk:
            trunk.release()
            trunk.table, trunk.num_computed = donor.table, usable
            trunk.table.truncate(usable)
            trunk.num_by_target = donor.num_by_target
        for path in alive:
            path.advance(len(new))
        if self.features.is_needed:  # what it fed itself with is computed again from what the target now says
            trunk.num_computed = min(trunk.num_computed, trunk.num_by_target)
        self.trunk, self.branches = trunk, branches
        self._begin_round()

    def _usable_kv(self, path: Path, new: Sequence[int]) -> int:
        computed = path.num_by_target if self.features.is_needed else path.num_computed
        return min(computed, len(self.committed) + path.common_length(new))

    def _begin_round(self) -> None:
        self.pending = []
        self.trunk.num_shared = 0
        self.trunk.goal = self._bounds.goal(len(self.committed))
        if self.trunk.is_complete:
            self._enumerate()
        elif not self.trunk.has_unsent:
            self.trunk.draw = next(self._draw_numbers)  # a number stands for one message's tokens
        if self._bounds.is_over(len(self.committed)):
            self.release()  # it will never be drafted for again

    def _enumerate(self) -> None:
        num_submitted = min(self.num_draft_tokens, len(self.trunk.tokens))
        if num_submitted and self.fan_out:
            self.pending = self.history.rank_outcomes(num_submitted, self.fan_out)

    def _branches_wait_for_trunk(self) -> bool:
        """Whether outcomes are pending at positions whose KV, or whose candidates, the trunk has not computed yet."""
        if not self.pending:
            return False
        furthest = max(outcome.num_accepted for outcome in self.pending)
        if self._bounds.goal(len(self.committed) + furthest + 1) == 0:
            return False
        return furthest >= len(self.trunk.outcomes) or furthest > self._reach()

    def _reach(self) -> int:
        """Trunk tokens whose KV is computed; negative while that of the committed prefix is not."""
        return self.trunk.num_computed - len(self.committed)

    def _new_path(self) -> Path:
        return Path(BlockTable(self._pool), next(self._draw_numbers))

    def _new_branch(self, table: BlockTable, shared: int, token_id: int, num_drafted: int) -> Path:
        assumed = [token.token_id for token in self.trunk.tokens[:shared]] + [token_id]
        return Path(
            table,
            next(self._draw_numbers),
            goal=len(assumed) + num_drafted,
            num_computed=len(self.committed) + shared,
            num_by_target=min(self.trunk.num_by_target, len(self.committed) + shared),
            num_shared=shared,
            num_sent=len(assumed),
            tokens=[DraftToken(assumed_id, LawKind.ASSUMED) for assumed_id in assumed],
            outcomes=[()] * len(assumed),
        )
