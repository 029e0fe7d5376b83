"""One sequence's part of a step: what is fed for it and what is asked. Knows one sequence; computes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.engine.scheduler import Share
from slipstream.engine.scoring import ScoredChunk
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from slipstream.kernels.batch import Chunk
from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.draft_tree import DraftPath


@dataclass(slots=True)
class Pass:
    active: ActiveSequence
    share: Share
    path: DraftPath  # the draft tokens submitted
    scored: ScoredChunk | None  # the first of the share's tokens, if they are asked how likely they made the next

    @property
    def num_tokens(self) -> int:
        return self.share.num_tokens + len(self.path.tokens)

    @property
    def chunk(self) -> Chunk:
        """What is fed in the step's batch; nothing where all is fed to be scored."""
        return self.active.chunk(self.share, self.path, 0 if self.scored is None else len(self.scored.next_ids))


def take_scores(passes: Sequence[Pass], answers: Iterable[TokenLogprobs]) -> dict[int, list[PromptLogprobs]]:
    """What is new of the answers, one for each scored chunk, by stream."""
    scores: dict[int, list[PromptLogprobs]] = defaultdict(list)
    remaining = iter(answers)
    for one in passes:
        if one.scored is not None:
            for part in one.active.prompt_scores.take(one.scored, next(remaining)):
                scores[one.active.stream].append(part)
    return scores
