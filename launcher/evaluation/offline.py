"""Acceptance without services: a verifier and a drafter in this process, which hand each other what they would send.

Whatever is drafted is there before the next pass, so no figure depends on how fast the machine is. As with services, an
answer's first token comes with the prompt and without drafts. Knows both domains; no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from drafter_svc.config import DrafterConfig
from drafter_svc.drafter import Drafter
from drafter_svc.events import Committed, FeaturesArrived, Opened
from drafter_svc.service import make_drafter
from gateway.policy.tenants import EAGLE3, NONE
from launcher.evaluation.asked import Asked, Candidate
from slipstream.config import EngineConfig
from slipstream.exchange import Commit, DraftBatch, FeaturesWanted, SequenceFailure
from slipstream.request import FinishReason, SequenceRequest
from slipstream.text.chat_template import ChatMessage, ChatTemplate
from verifier_svc.config import VerifierConfig
from verifier_svc.messages import StreamOutput
from verifier_svc.service import make_verifier
from verifier_svc.verifier import Verifier

_STREAM: Final = 1


@dataclass(slots=True)
class Pair:
    """A verifier and, if its proposer needs one, a drafter."""

    verifier: Verifier
    drafter: Drafter | None
    proposer: str
    commits: list[Commit] = field(default_factory=list)

    def answer(self, prompts: Sequence[str], asked: Asked) -> Iterator[list[Commit]]:
        """The passes of one prompt after another."""
        for index, token_ids in enumerate(_encoded(self.verifier, prompts, chat=asked.chat)):
            self.commits = []
            self._open(self._request(index, token_ids, asked))
            while not self.commits or self.commits[-1].finish_reason is FinishReason.NONE:
                self._draft()
                for output in self.verifier.step() or ():
                    self._take(output)
            yield self.commits

    def _request(self, index: int, token_ids: tuple[int, ...], asked: Asked) -> SequenceRequest:
        served = self.verifier.served
        return SequenceRequest(
            sequence_id=index,
            token_ids=token_ids,
            num_prompt_tokens=len(token_ids),
            sampling=asked.sampling,
            mode=asked.mode,
            seed=asked.seed,
            nonce=index,
            num_draft_tokens=0 if self.proposer == NONE else asked.num_draft_tokens,
            proposers=() if self.proposer == NONE else (self.proposer,),
            vocabulary_hash=served.tokenizer.vocabulary_hash,
            features=served.features if self.proposer == EAGLE3 else "",
        )

    def _open(self, request: SequenceRequest) -> None:
        self.verifier.handle((_STREAM, request))
        if self.drafter is not None:
            self.drafter.handle(Opened(_STREAM, request))
        if request.features:
            self.verifier.handle((_STREAM, FeaturesWanted(request.sequence_id, 0)))

    def _draft(self) -> None:
        """Lets the drafter do all that it has to do; nothing before the first token is final."""
        if self.drafter is None or not self.commits:
            return
        while self.drafter.next_wake() is not None:
            for _, message in self.drafter.step() or ():
                if isinstance(message, SequenceFailure):
                    raise message.error
                assert isinstance(message, DraftBatch)
                self.verifier.handle((_STREAM, message))

    def _take(self, output: StreamOutput) -> None:
        for failure in output.failures:
            raise failure.error
        self.commits += output.commits.commits
        if self.drafter is not None:
            self.drafter.handle(FeaturesArrived(_STREAM, output.features))
            self.drafter.handle(Committed(_STREAM, output.commits))


def make_pair(target: EngineConfig, candidate: Candidate) -> Pair:
    """Loads the models. Raises CheckpointError naming the file, ValueError naming the setting."""
    one = replace(target, max_num_seqs=1)
    features = candidate.folder if candidate.proposer == EAGLE3 else None
    verifier = make_verifier(VerifierConfig(engine=replace(one, features=features)))
    drafter = None
    if candidate.folder is not None:
        engine = replace(one, model=candidate.folder, target_model=target.model)
        drafter = make_drafter(DrafterConfig(engine=engine, proposer=candidate.proposer, max_branches=0))
    return Pair(verifier, drafter, candidate.proposer)


def _encoded(verifier: Verifier, prompts: Sequence[str], *, chat: bool) -> Iterator[tuple[int, ...]]:
    """As the gateway makes token ids."""
    tokenizer = verifier.served.tokenizer
    template = ChatTemplate.from_tokenizer(tokenizer) if chat else None
    for prompt in prompts:
        if template is None:
            yield tokenizer.encode(prompt)
        else:
            yield tokenizer.encode(template.render([ChatMessage("user", prompt)]), add_special_tokens=False)
