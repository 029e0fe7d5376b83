"""Drafting by loops gives the very drafts of drafting token by token. Here a loop is run, on a GPU it is a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from drafter_svc.proposers.draft_model import DraftModel
from drafter_svc.proposers.looped import LoopedDraft
from drafter_svc.proposers.pard import ParallelDraft
from drafter_svc.proposers.proposer import Limits, Proposal, Row
from slipstream.engine.draft_buffers import LoopSize
from slipstream.engine.draft_loop import DraftLoop, loop_sizes
from slipstream.request import VerificationMode
from tests.drafter_svc.scripted import (
    VOCAB,
    ScriptedRunner,
    ScriptedVerifier,
    Setup,
    drafts_in,
    request,
    token_choice,
)

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
MODES = [(0.0, RATIO), (1.0, RATIO), (1.0, COUPLED)]
CPU = torch.device("cpu")


class RunCapture:
    """Replays by calling."""

    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


class ScriptedStep:
    """A draft step on the scripted runner's blocks: each row's hidden state is what its logits are."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self._runner = runner

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        slots, size = self._runner.slots, self._runner.slots.shape[1]
        for token_id, length, table in zip(token_ids.tolist(), context_lens.tolist(), block_tables, strict=True):
            if length:
                slots[int(table[(length - 1) // size]), (length - 1) % size] = token_id
        rows = zip(context_lens.tolist(), block_tables, strict=True)
        return torch.from_numpy(np.stack([self._logits(length, table) for length, table in rows]))

    def _logits(self, length: int, table: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        if not length:
            return np.zeros(VOCAB, dtype=np.float32)
        context = self._runner.slots[table.numpy()].ravel()[:length].tolist()
        assert -1 not in context, f"KV is missing at position {context.index(-1)}"
        return self._runner.logits(context)


class Checked:
    """A looped proposer, each of whose answers is compared with what single steps say to the same rows."""

    def __init__(
        self, runner: ScriptedRunner, limits: Limits, most_steps: int, max_rows: int, mask_token: int | None = None
    ) -> None:
        choice = token_choice()
        self.loop = DraftLoop(
            ScriptedStep(runner),
            ScriptedStep(runner),
            lambda hidden: hidden,
            lambda pairs: runner.copy_blocks([pair for pair in pairs.tolist() if pair[0] >= 0]),
            choice.drafting(9, CPU),
            sizes=loop_sizes(max_rows=max_rows, max_steps=most_steps),
            max_blocks=limits.max_model_len // limits.block_size,
            capture=RunCapture(),
        )
        in_parallel = replace(limits, num_lookahead=7)
        self._runner, self._stepwise = (
            runner,
            (
                DraftModel(runner, limits, choice)
                if mask_token is None
                else ParallelDraft(runner, in_parallel, choice, mask_token)
            ),
        )
        self._looped = LoopedDraft(self._stepwise, self.loop, choice.drafting(9, CPU), mask_token)
        self.limits, self.adapters = self._looped.limits, None
        self.most_at_once = 0
        self._pairs: list[tuple[int, int]] = []

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs += pairs
        self._looped.copy_blocks(pairs)

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        before = self._runner.slots.copy()
        proposals = self._looped.propose(rows)
        after, self._runner.slots = self._runner.slots, before
        self._stepwise.copy_blocks(self._pairs)
        self._pairs = []
        for row, proposed in zip(rows, proposals, strict=True):
            assert as_values(proposed) == as_values(self._step_by_step(row, len(proposed)))
            self.most_at_once = max(self.most_at_once, len(proposed))
        self._runner.slots = after
        return proposals

    def _step_by_step(self, row: Row, count: int) -> list[Proposal]:
        if not row.num_wanted or isinstance(self._stepwise, ParallelDraft):
            return list(self._stepwise.propose([row])[0])
        proposals: list[Proposal] = []
        for _ in range(count):
            proposals += self._stepwise.propose([row])[0]
            row = replace(row, token_ids=[proposals[-1].token.token_id], start=row.end)
        return proposals


def as_values(proposals: Sequence[Proposal]) -> list[tuple[object, ...]]:
    return [
        (
            proposal.token.token_id,
            proposal.token.law and (proposal.token.law.token_ids.tolist(), proposal.token.law.counts.tolist()),
            proposal.outcomes,
            pytest.approx(proposal.confidence, rel=1e-5),
        )
        for proposal in proposals
    ]


def looped(most_steps: int, max_rows: int = 64) -> Callable[[ScriptedRunner, Limits], Checked]:
    return lambda runner, limits: Checked(runner, limits, most_steps, max_rows)


def in_one_pass(runner: ScriptedRunner, limits: Limits) -> Checked:
    return Checked(runner, limits, most_steps=1, max_rows=64, mask_token=VOCAB - 1)


def prompt(index: int) -> list[int]:
    return [1 + k % 9 for k in range(3 + 9 * index)]


def proposer_of(setup: Setup) -> Checked:
    proposer = setup.drafter._proposer
    assert isinstance(proposer, Checked)
    return proposer


@pytest.mark.parametrize("most_steps", [2, 6])
@pytest.mark.parametrize("temperature, mode", MODES)
def test_a_loop_answers_as_single_steps_do(temperature: float, mode: VerificationMode, most_steps: int) -> None:
    setup = Setup(proposer=looped(most_steps))
    opened = request(temperature=temperature, mode=mode, num_draft_tokens=5, fan_out=4)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    for _ in range(5):
        verifier.insert(setup.drafts())
        commit = verifier.run_pass()
        assert commit.hit
        if not (temperature and mode is RATIO):
            assert commit.num_accepted == opened.num_draft_tokens
        setup.commit(commit)
    assert proposer_of(setup).most_at_once == most_steps


@pytest.mark.parametrize("temperature, mode", MODES)
def test_after_any_commit_loops_go_on_from_the_right_kv(temperature: float, mode: VerificationMode) -> None:
    setup = Setup(proposer=looped(4), max_rows=6)
    verifiers = [
        ScriptedVerifier(request(prompt(i), sequence_id=i, temperature=temperature, mode=mode, fan_out=i))
        for i in range(3)
    ]
    for verifier in verifiers:
        setup.open(verifier.request)
    for turn in range(6):
        for _ in range(1 + turn % 3):
            setup.drafter.step()
        setup.commit(*(verifier.commit_others(1 + (turn + i) % 4) for i, verifier in enumerate(verifiers)))
    setup.outputs()


def test_one_loop_feeds_a_prompt_and_makes_a_path_and_another_all_branches() -> None:
    setup = Setup(proposer=looped(6))
    opened = request(temperature=0.0, num_draft_tokens=5, fan_out=4)
    setup.open(opened)
    assert len(setup.drafts()) == 5
    assert proposer_of(setup).loop.num_loops == {LoopSize(4, 6): 2}, "only the largest size has room for a prompt"


def test_rows_under_token_rules_are_drawn_one_by_one_beside_loops() -> None:
    setup = Setup(proposer=looped(6))
    plain = request(temperature=0.0, num_draft_tokens=5)
    ruled = replace(plain.sampling, frequency_penalty=1.5, bad_words=((7,), (2, 3)))
    verifiers = [ScriptedVerifier(r) for r in (plain, replace(plain, sequence_id=8, sampling=ruled))]
    for verifier in verifiers:
        setup.open(verifier.request)
    for _ in range(5):
        drafts = setup.drafts()
        for verifier in verifiers:
            verifier.insert([draft for draft in drafts if draft.sequence_id == verifier.request.sequence_id])
            commit = verifier.run_pass()
            assert commit.num_accepted == 5
            setup.commit(commit)
    assert 7 not in verifiers[1].committed[5:]


def test_a_path_that_is_unlikely_to_stand_ends_within_a_loop() -> None:
    by_loops, stepwise = Setup(proposer=looped(6)), Setup()
    opened = request(temperature=0.0, num_draft_tokens=5, fan_out=0)
    ids = []
    for setup in (by_loops, stepwise):
        setup.drafter._stop_below = 0.2
        setup.open(opened)
        verifier, drafts = ScriptedVerifier(opened), list[list[int]]()
        for _ in range(6):
            said = setup.drafts()
            drafts += [[token.token_id for token in draft.tokens] for draft in said]
            verifier.insert(said)
            setup.commit(verifier.run_pass())
        ids.append(drafts)
    assert ids[0] == ids[1]
    assert any(len(draft) < 5 for draft in ids[0])


@pytest.mark.parametrize("temperature, mode", MODES[1:])
def test_blocks_of_parallel_drafts_are_drawn_in_one_loop(temperature: float, mode: VerificationMode) -> None:
    setup = Setup(proposer=in_one_pass)
    verifiers = [
        ScriptedVerifier(request(prompt(i), sequence_id=i, temperature=temperature, mode=mode, fan_out=i))
        for i in range(3)
    ]
    for verifier in verifiers:
        setup.open(verifier.request)
    for turn in range(4):
        setup.outputs()
        setup.commit(*(verifier.commit_others(1 + (turn + i) % 4) for i, verifier in enumerate(verifiers)))
    assert proposer_of(setup).most_at_once == 3
    assert proposer_of(setup).loop.num_loops.total() > 6


def test_after_a_loop_that_failed_drafting_goes_on_with_the_other_step() -> None:
    setup = Setup(proposer=looped(6))
    loop = proposer_of(setup).loop
    opened = request(temperature=0.0, num_draft_tokens=5, fan_out=2)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    for turn in range(4):
        if turn == 1:
            loop._error_on_host.fill_(1)
        verifier.insert(setup.drafts())
        commit = verifier.run_pass()
        assert commit.num_accepted == 5
        setup.commit(commit)
        assert (loop._step is loop._plain) == (turn >= 1)
    assert loop.num_loops.total() > 4


def test_those_who_draft_wait_for_no_path_of_a_prompt() -> None:
    setup = Setup(proposer=looped(6, max_rows=32), max_prefill_tokens=64)
    opened = request(temperature=0.0, num_draft_tokens=5, fan_out=0)
    verifier = ScriptedVerifier(opened)
    setup.open(opened)
    verifier.insert(setup.drafts())
    setup.open(request(prompt(4), sequence_id=8, temperature=0.0, fan_out=0))
    setup.commit(verifier.run_pass())
    said = [{draft.sequence_id for draft in drafts_in(setup.drafter.step() or [])} for _ in range(3)]
    assert said == [{opened.sequence_id}, set(), {8}], "drafts, then a prompt without its path, then that"
