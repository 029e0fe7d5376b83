"""Drives a verifier over a scripted model, with a clock that the test turns."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from slipstream.engine.scheduler import Scheduler
from slipstream.exchange import LAW_TOTAL, Commit, Draft, DraftBatch, DraftToken, LawKind, SequenceFailure, SparseLaw
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from tests.scripted_runner import Law, ScriptedRunner
from tests.tiny_models import write_tokenizer
from verifier_svc.verifier import Verifier

REMOTE = "draft_model"
VOCAB = 24


def tiny_tokenizer(folder: Path, vocab_size: int = VOCAB) -> Tokenizer:
    write_tokenizer(folder, vocab_size)
    return Tokenizer.from_folder(folder)


class Harness:
    def __init__(
        self,
        law: Law,
        tokenizer: Tokenizer,
        *,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 32,
        max_waiting: int = 8,
        local_proposers: tuple[str, ...] = (),
        vocab_size: int = VOCAB,
        **runner: object,
    ) -> None:
        self.now = 100.0
        self.pass_seconds = 0.0  # that the model takes
        self.runner = ScriptedRunner(law, vocab_size, **runner)
        self._run, self.runner.verify = self.runner.verify, self._verify
        scheduler = Scheduler(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, max_waiting=max_waiting
        )
        self.verifier = Verifier(
            self.runner, tokenizer, scheduler, local_proposers=local_proposers, clock=lambda: self.now
        )
        self.commits: dict[tuple[int, int], list[Commit]] = defaultdict(list)
        self.failures: dict[tuple[int, int], list[SequenceFailure]] = defaultdict(list)
        self.reports = []

    def _verify(self, chunks, checks):
        self.now += self.pass_seconds
        return self._run(chunks, checks)

    def open(self, prompt, sequence_id=1, *, stream=1, sampling=None, **options):
        params = {"temperature": 0.0, "max_tokens": 12} | (sampling or {})
        defaults = {"num_prompt_tokens": len(prompt), "mode": VerificationMode.RATIO, "proposers": (REMOTE,)}
        request = SequenceRequest(
            sequence_id=sequence_id,
            token_ids=tuple(prompt),
            sampling=SamplingParams(**params),
            **(defaults | {"num_draft_tokens": 4} | options),
        )
        self.verifier.handle((stream, request))

    def post(self, message, *, stream=1):
        self.verifier.handle((stream, message))

    def draft(self, base, token_ids, sequence_id=1, *, draw=0, proposer=REMOTE, stream=1, kind=LawKind.ONE_HOT):
        tokens = tuple(t if isinstance(t, DraftToken) else DraftToken(t, kind) for t in token_ids)
        self.post(DraftBatch((Draft(sequence_id, base, proposer, draw, tokens),)), stream=stream)

    def step(self, seconds=0.001):
        """One step, and the time it takes; notes what it says."""
        outputs = self.verifier.step() or []
        for output in outputs:
            for commit in output.commits.commits:
                self.commits[output.stream, commit.sequence_id].append(commit)
            for failure in output.failures:
                self.failures[output.stream, failure.sequence_id].append(failure)
            self.reports.append(output.commits.step)
        self.now += seconds
        return outputs

    def finish(self, max_steps=400):
        """Steps until nothing is open, at the times the verifier asks for."""
        self.step(seconds=0)  # as the engine thread does after taking in messages
        for _ in range(max_steps):
            wake = self.verifier.next_wake()
            if wake is None:
                return
            self.now = max(self.now, wake)
            self.step()
        raise AssertionError(f"still open after {max_steps} steps")

    def output(self, sequence_id=1, *, stream=1):
        return [token_id for commit in self.commits[stream, sequence_id] for token_id in commit.token_ids]

    def error(self, sequence_id=1, *, stream=1):
        (failure,) = self.failures[stream, sequence_id]
        return failure.error


def sparse(token_id, others=(), share=0.5):
    """A drawn token with a law that gives it `share` and the others the rest."""
    rest = LAW_TOTAL - round(share * LAW_TOTAL) if others else 0
    counts = [LAW_TOTAL - rest]
    for i in range(len(others)):
        counts.append(rest // len(others) + (rest % len(others) if i == 0 else 0))
    law = SparseLaw(np.array([token_id, *others], dtype=np.int32), np.array(counts, dtype=np.uint16))
    return DraftToken(token_id, LawKind.SPARSE, law)


def plain_output(law, tokenizer, prompt, **options):
    """What the verifier says without any drafts."""
    harness = Harness(law, tokenizer)
    harness.open(prompt, **({"num_draft_tokens": 0} | options))
    harness.finish()
    return harness.output()
