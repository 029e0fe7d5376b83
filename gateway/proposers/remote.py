"""Drafts of one sequence that a drafter service makes. Knows drafters and how they fail; no verifier, no client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gateway.policy.tenants import DRAFT_MODEL, EAGLE3
from gateway.proposers.surroundings import DrafterLink, Surroundings
from slipstream.errors import InvalidRequest, VocabularyMismatch
from slipstream.exchange import Commit, FeaturesWanted, ModelInfo, Update
from slipstream.wire.v1 import exchange_pb2


class RemoteDrafts:
    """Opens the sequence at a drafter, and again when that one is lost and another, or the same, is there.

    Without a drafter nothing happens: the verifier goes on by itself. Every opening has its own epoch, and drafts of
    an earlier one are dropped.

    A drafter in the verifier's process is preferred. Commits and drafts then go from one to the other in memory, and
    the drafts that come here only carry times.
    """

    def __init__(self, name: str, around: Surroundings) -> None:
        request = around.current()
        self._name = name
        self._current = around.current
        self._sequence_id = request.sequence_id
        self._vocabulary_hash = request.vocabulary_hash
        self._drafters = around.drafters
        self._send = around.send
        self._record = around.record
        self._complaints = around.complaints
        self._process = around.process
        self._link: DrafterLink | None = None
        self._hands_over = False  # this drafter and the verifier do it in memory
        self._full: set[str] = set()  # addresses of drafters that refused the sequence for want of room
        self._epoch = -1
        self._unsent: list[Commit] = []
        self._awaited: tuple[int, float] | None = (
            None  # committed tokens when commits were last sent, and when; None once answered
        )

    def start(self, token_ids: Sequence[int]) -> None:
        self.close()
        self._open()

    @property
    def may_rest(self) -> bool:
        """A drafter on CPU cores takes them from the verifier: it gets commits when its drafts are needed."""
        if self._link is None:
            return True
        return not self._hands_over and self._link.info is not None and self._link.info.device == "cpu"

    def observe(self, commit: Commit) -> None:
        if self._link is not None and not self._hands_over:
            self._unsent.append(commit)
            self._awaited = (commit.base + len(commit.token_ids), time.monotonic())
            self._send_commits()

    def forward_features(self, features: exchange_pb2.Features) -> None:
        if self._link is not None and self._name == EAGLE3:
            self._link.send(self._sequence_id, features)

    def update(self, update: Update) -> None:
        """Other bounds from the next round on."""
        if self._link is not None:
            self._link.send(self._sequence_id, update)

    def keep(self, commit: Commit) -> None:
        """Tokens became final, and who drafts before this one has the next ones: sent with the commits that follow."""
        if self._link is not None:
            self._unsent.append(commit)

    def finish(self, commit: Commit) -> None:
        """The last commit, by which the drafter ends the sequence itself."""
        if self._link is not None:
            self._unsent.append(commit)
            self._send_commits()
            self._link.release(self._sequence_id)
            self._link = None
        self.close()

    def close(self) -> None:
        self._drafters.unsubscribe(self._on_arrival)
        if self._link is not None:
            self._link.close(self._sequence_id)
            self._link = None

    def on_drafts(self, drafts: list[exchange_pb2.Draft], draft_us: int, held_us: int) -> None:
        current = [draft for draft in drafts if draft.draw >> 32 == self._epoch]
        for draft in () if self._hands_over else current:
            self._send(draft)
        self._record.record_draft_batch(self._name, draft_us=draft_us, wire_us=self._wire_us(current, held_us))

    def on_down(self) -> None:
        self._link = None
        self._open()

    def on_failure(self, error: Exception) -> None:
        assert self._link is not None
        self._complaints.once(f"drafter {self._link.address} refused a sequence, which goes on without it: {error}")
        self._link.release(self._sequence_id)
        self._full.add(self._link.address)
        self._link = None
        if not isinstance(error, VocabularyMismatch | InvalidRequest):  # those would be refused again
            self._open()

    def _send_commits(self) -> None:
        assert self._link is not None
        for commit in self._unsent:
            self._link.send(self._sequence_id, commit)
        self._unsent.clear()

    def _open(self) -> None:
        self._unsent.clear()  # an opening carries all that is committed
        link = self._drafters.pick(self._fits_beside, besides=self._full)
        self._hands_over = link is not None
        if link is None:
            link = self._drafters.pick(self._fits, besides=self._full)
        if link is None:
            self._drafters.subscribe(self._on_arrival)
            return
        self._drafters.unsubscribe(self._on_arrival)
        self._link = link
        self._epoch += 1
        self._awaited = None
        request = self._current()
        adapter = request.adapter if self._name == DRAFT_MODEL else ""  # others have none
        hand_over = request.hand_over if self._hands_over else 0
        opened = replace(request, proposers=(self._name,), epoch=self._epoch, adapter=adapter, hand_over=hand_over)
        link.open(opened, self)
        if self._name == EAGLE3:
            self._send(FeaturesWanted(self._sequence_id, 0))  # the drafter has none, whatever was sent before

    def _on_arrival(self) -> None:
        self._full.clear()
        self._open()

    def _fits_beside(self, info: ModelInfo) -> bool:
        """In the verifier's process. Features, which do not all come at once, go by the gateway."""
        return info.process == self._process() != "" and self._name != EAGLE3 and self._fits(info)

    def _fits(self, info: ModelInfo) -> bool:
        if info.vocabulary_hash != self._vocabulary_hash:
            self._complaints.once(
                f"draft model {info.name!r} has another vocabulary ({info.vocabulary_hash[:12]}) than the target "
                f"({self._vocabulary_hash[:12]}) and cannot draft for it"
            )
            return False
        return self._name in info.proposers and self._has_features(info)

    def _has_features(self, info: ModelInfo) -> bool:
        """Whether the verifier sends what this drafter builds on."""
        sent = self._current().features if info.features else ""
        if info.features != sent:
            self._complaints.once(
                f"draft model {info.name!r} builds on features {info.features[:12]}, and the verifier sends "
                f"{sent[:12] or 'none'}; start it with `--features` and the drafter's own head"
            )
        return info.features == sent

    def _wire_us(self, drafts: list[exchange_pb2.Draft], held_us: int) -> int:
        """Of the first answer to a commit; what was pushed ahead of need waited for no wire."""
        if self._awaited is None or all(draft.base != self._awaited[0] for draft in drafts):
            return 0
        round_trip = time.monotonic() - self._awaited[1]
        self._awaited = None
        return max(0, round(round_trip * 1e6) - held_us)
