"""One request's life: the only place where verifier and drafter meet. Knows links; knows no gRPC and no tenant."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.client_stream import TooSlow
from gateway.control.drafting import Drafting
from gateway.output import Output
from gateway.peers.dialects import VerifierItem
from gateway.peers.peers import Peers, VerifierLink
from gateway.peers.recovery import Recovery
from gateway.policy.tenants import EAGLE3
from gateway.proposers import Lineup, Surroundings, make_proposer
from gateway.recent_output import Owner
from slipstream.errors import Exhausted, Unavailable
from slipstream.exchange import Commit, ModelInfo, PromptLogprobs, StepReport
from slipstream.request import FinishReason, SequenceRequest
from slipstream.wire.v1 import exchange_pb2

MAX_DEADLINE_MS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request came to its end: finished, failed, or neither when the client went away."""

    finish_reason: FinishReason = FinishReason.NONE
    error: Exception | None = None


class Session:
    """Commits go to drafters first, then to local proposers, then to the client; drafts go to the verifier.

    Who drafts, and how much, may change at any time (steering.py).

    Nothing here waits. When a verifier is lost, drains or is full, the sequence moves to another with what is
    committed; when there is none, it waits a little for one and then fails. Drafters come and go without consequence.
    """

    def __init__(
        self,
        request: SequenceRequest,
        model: str,
        peers: Peers,
        output: Output,
        on_end: Callable[[Ended], None],
        deadline: float | None = None,  # by time.monotonic()
    ) -> None:
        self._request = request
        self._model = model
        self._peers = peers
        self._output = output
        self._on_end = on_end
        self._deadline = deadline
        self._token_ids = list(request.token_ids)  # committed: prompt, then output
        self._link: VerifierLink | None = None
        self._hand_over = 0  # of this opening
        self._recovery = Recovery(peers.verifiers, peers.recovery_seconds, retry=self._open, give_up=self._give_up)
        self._ended = False
        self._steering = peers.controllers.steering(request, self._redraft)
        self._lineup = self._make_lineup()

    def start(self, beside: Session | None = None) -> None:
        """Where `beside` is, if it is somewhere: there one prompt's KV serves both."""
        self._output.begin()
        self._open(beside._link if beside is not None else None)

    def close(self) -> None:
        """The client is gone or has all it wanted: frees everything everywhere. Harmless when already ended."""
        self._end(Ended())

    def forward(self, commit: Commit) -> bool:
        if self._ended or commit.base < len(self._token_ids):
            return False  # told before
        if commit.base > len(self._token_ids):
            raise RuntimeError(f"commit for {commit.base} committed tokens, but {len(self._token_ids)} are known")
        self._token_ids += commit.token_ids
        self._recovery.note_progress()
        self._lineup.forward(commit)
        return True

    def forward_features(self, features: exchange_pb2.Features) -> None:
        if not self._ended:
            self._lineup.forward_features(features)

    def propose(self, commit: Commit) -> None:
        if not self._ended and commit.finish_reason is FinishReason.NONE:
            self._lineup.propose(commit)

    def publish_prompt(self, scores: PromptLogprobs) -> None:
        if not self._ended:
            self._output.publish_prompt(scores)

    def publish(self, commit: Commit, step: StepReport) -> None:
        if self._ended:
            return
        self._output.publish(commit, step)
        if commit.finish_reason is not FinishReason.NONE:
            self._end(Ended(finish_reason=commit.finish_reason))
        else:
            self._steering.note_commit(commit, step)

    def record_draft_batch(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        self._output.ledger.record_draft_batch(proposer, draft_us=draft_us, wire_us=wire_us)
        self._steering.note_drafts(proposer, draft_us=draft_us, wire_us=wire_us)

    def on_failure(self, error: Exception) -> None:
        """The verifier ended the sequence, or it failed here."""
        if isinstance(error, Exhausted | Unavailable) and not isinstance(error, TooSlow) and self._link is not None:
            self._refused(self._link, error)
        else:
            self._fail(error)

    def on_down(self) -> None:
        assert self._link is not None
        self._output.ledger.record_move("lost")
        self._recovery.lost.append(self._link.address)
        self._link = None
        if self._recovery.is_hopeless:
            lost = ", ".join(self._recovery.lost)
            self._fail(Unavailable(f"the sequence was lost with {lost}, one after the other, and got no token between"))
        else:
            self._open()

    def _refused(self, link: VerifierLink, error: Exception) -> None:
        """It is full or drains; another may not."""
        self._output.ledger.record_move("refused")
        link.release(self._request.sequence_id)
        self._link = None
        self._recovery.refusals[link.address] = error
        self._open()

    def _open(self, wanted: VerifierLink | None = None) -> None:
        """On a verifier of the model that has room, or on the first that comes to have it within the time allowed."""
        refusals = self._recovery.refusals
        picks_itself = wanted is None or not wanted.available
        link = self._peers.verifiers.pick(self._serves, besides=refusals) if picks_itself else wanted
        if link is None:
            last = next(reversed(refusals.values()), None)
            if isinstance(last, Exhausted) and not self._num_output_tokens:
                self._fail(last)  # it never began, so its client can try again as well as we can
            else:
                self._recovery.wait()
            return
        self._recovery.stop()
        self._link = link
        self._hand_over = secrets.randbits(64) | 1 if self._process else 0
        drafting = self._steering.open(link.address)
        self._request = drafting.applied_to(self._request)
        link.open(self._current(), self)
        self._lineup.start(drafting, self._token_ids)

    def _give_up(self) -> None:
        said = "".join(f"; {address} said: {error}" for address, error in self._recovery.refusals.items())
        addresses = ", ".join(link.address for link in self._peers.verifiers.links)
        self._fail(
            Unavailable(
                f"no verifier serves {self._model!r} now (asked: {addresses}; waited {self._recovery.seconds:g} s); "
                f"{self._num_output_tokens} output tokens were committed{said}"
            )
        )

    def _fail(self, error: Exception) -> None:
        self._output.fail(error)
        self._end(Ended(error=error))

    def _end(self, ended: Ended) -> None:
        if self._ended:
            return
        self._ended = True
        self._recovery.stop()
        self._steering.close()
        self._lineup.close()
        if self._steering.tells:
            self._peers.recent_outputs.add(self._owner, self._token_ids[self._request.num_prompt_tokens :])
        if self._link is not None:
            if ended.finish_reason is FinishReason.NONE:
                self._link.close(self._request.sequence_id)
            else:
                self._link.release(self._request.sequence_id)
        self._on_end(ended)

    def _serves(self, info: ModelInfo) -> bool:
        return info.name == self._model and info.vocabulary_hash == self._request.vocabulary_hash

    def _current(self) -> SequenceRequest:
        """The sequence as it stands, with a fresh nonce: drafters may have seen what a lost verifier drew."""
        scores = self._request.sampling.prompt_logprobs and self._output.awaits_prompt
        return replace(
            self._request,
            sampling=replace(self._request.sampling, prompt_logprobs=scores),
            token_ids=tuple(self._token_ids),
            nonce=secrets.randbits(64),
            deadline_ms=self._milliseconds_left(),
            features=self._features,
            hand_over=self._hand_over,
        )

    @property
    def _process(self) -> str:
        """In which its verifier hands over to a drafter; empty if it does not."""
        info = self._link.info if self._link is not None else None
        return info.process if info is not None else ""

    @property
    def _features(self) -> str:
        """Those that this verifier can send, if a proposer builds on them."""
        info = self._link.info if self._link is not None else None
        return info.features if info is not None and EAGLE3 in self._request.proposers else ""

    def _milliseconds_left(self) -> int:
        if self._deadline is None:
            return 0
        left = round((self._deadline - time.monotonic()) * 1e3)
        return min(max(1, left), MAX_DEADLINE_MS)

    def _redraft(self, drafting: Drafting) -> None:
        """From the next pass on; the verifier and the drafters that go on drafting get the new bounds."""
        self._request = drafting.applied_to(self._request)
        sequence_id = self._request.sequence_id
        if self._link is not None:
            self._link.send(sequence_id, drafting.update(sequence_id))
            self._lineup.redraft(drafting, sequence_id, self._token_ids)

    @property
    def _owner(self) -> Owner:
        return Owner(self._request.tenant, self._request.vocabulary_hash)

    def _make_lineup(self) -> Lineup:
        around = Surroundings(
            current=self._current,
            vocab_size=lambda: self._link.info.vocab_size if self._link and self._link.info else 0,
            send=self._send_to_verifier,
            drafters=self._peers.drafters,
            record=self,
            complaints=self._peers.complaints,
            process=lambda: self._process,
            tritonserver=self._peers.tritonserver,
            index=self._peers.recent_outputs.index(self._owner, self._steering.recent_output_tokens),
            on_trial=self._steering.note_trial if self._steering.scores else None,
        )
        return Lineup({name: make_proposer(name, around) for name in self._request.proposers})

    def _send_to_verifier(self, item: VerifierItem) -> None:
        if self._link is not None:
            self._link.send(self._request.sequence_id, item)

    @property
    def _num_output_tokens(self) -> int:
        return len(self._token_ids) - self._request.num_prompt_tokens
