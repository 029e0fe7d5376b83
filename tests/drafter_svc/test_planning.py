"""Which rows a step feeds: order, limits, and who gives way when KV blocks run out."""

from __future__ import annotations

from drafter_svc.config import RowLimits
from drafter_svc.draft_sequence import DraftSequence
from drafter_svc.path import Path
from drafter_svc.planning import Plan, Planner
from drafter_svc.proposers.proposer import Limits, Proposal
from slipstream.cache.block_pool import BlockPool
from slipstream.exchange import Commit, DraftToken, LawKind
from tests.drafter_svc.scripted import VOCAB, request


class Planned:
    """Sequences whose steps are planned for real and drawn as constants."""

    def __init__(self, num_blocks: int = 64, max_rows: int = 16, max_tokens: int = 64, max_prefill_tokens: int = 8):
        self.pool = BlockPool(num_blocks, 4)
        self.limits = Limits(num_blocks=num_blocks, block_size=4, max_model_len=num_blocks * 4, vocab_size=VOCAB)
        self.planner = Planner(
            self.pool,
            RowLimits(max_rows=max_rows, max_tokens=max_tokens, max_prefill_tokens=max_prefill_tokens),
            self.limits,
        )
        self.sequences: list[DraftSequence] = []

    def open(self, num_prompt_tokens: int, fan_out: int = 4, num_draft_tokens: int = 3) -> DraftSequence:
        opened = request(
            [1] * num_prompt_tokens,
            sequence_id=len(self.sequences),
            temperature=0.0,
            fan_out=fan_out,
            num_draft_tokens=num_draft_tokens,
        )
        self.sequences.append(DraftSequence(opened, self.pool, self.limits, 0.0))
        return self.sequences[-1]

    def step(self) -> Plan:
        plan = self.planner.plan(self.sequences)
        for planned in plan.rows:
            drawn = Proposal(DraftToken(2, LawKind.ONE_HOT), (2, 3, 4, 5, 6))
            planned.sequence.take(planned.path, [drawn] if planned.row.num_wanted else [], planned.row.end)
        for sequence in self.sequences:
            list(sequence.drafts())
        return plan

    def run(self) -> list[Plan]:
        plans = []
        while (plan := self.step()).rows:
            plans.append(plan)
            assert len(plans) < 1000
        return plans


def fed(plan: Plan) -> list[tuple[int, int]]:
    """(sequence, tokens) of each row."""
    return [(planned.sequence.request.sequence_id, len(planned.row.token_ids)) for planned in plan.rows]


def is_trunk(sequence: DraftSequence, path: Path) -> bool:
    return path is sequence.trunk


def test_a_prompt_alone_has_the_whole_budget_and_beside_a_drafting_sequence_its_share() -> None:
    planned = Planned(max_tokens=64, max_prefill_tokens=8)
    planned.open(100)
    assert fed(planned.step()) == [(0, 64)]
    planned.open(4)
    assert fed(planned.step()) == [(1, 4), (0, 8)]


def test_two_prompts_share_the_prefill_budget_in_order_of_arrival() -> None:
    planned = Planned(max_tokens=64, max_prefill_tokens=8)
    for length in (4, 50, 50):
        planned.open(length)
    assert fed(planned.step()) == [(0, 4), (1, 8)]


def test_nothing_is_drawn_before_the_prompt_is_fed_whole() -> None:
    planned = Planned(max_tokens=64)
    planned.open(100)
    wanted = [planned.step().rows[0].row.num_wanted for _ in range(3)]
    assert wanted == [0, 3, 2]


def test_trunks_go_before_branches() -> None:
    planned = Planned(max_rows=2)
    first, second = planned.open(4), planned.open(4)
    for _ in range(3):
        assert all(is_trunk(row.sequence, row.path) for row in planned.step().rows)
    first.commit(Commit(0, 4, (9,)), 0.0)
    second.commit(Commit(1, 4, (9,)), 0.0)
    assert {row.path for row in planned.step().rows} == {first.trunk, second.trunk}


def test_branches_that_were_begun_go_before_new_ones_and_the_likeliest_first() -> None:
    planned = Planned(max_rows=3)
    sequence = planned.open(4, fan_out=8)
    plans = planned.run()
    order = [row.path for plan in plans for row in plan.rows if row.path is not sequence.trunk]
    assert [path.probability for path in order[:2]] == sorted([p.probability for p in order[:2]], reverse=True)
    assert order[:2] == order[2:4]
    assert len(sequence.branches) == 8
    assert all(branch.is_complete for branch in sequence.branches)


def test_a_fork_copies_its_partly_filled_block_before_the_rows_are_fed() -> None:
    planned = Planned()
    sequence = planned.open(5)
    copies = [pair for plan in planned.run() for pair in plan.copies]
    assert copies
    assert {source for source, _ in copies} <= set(sequence.trunk.table.block_ids)
    assert not {target for _, target in copies} & set(sequence.trunk.table.block_ids)


def test_the_branch_least_likely_to_come_true_gives_way_to_a_trunk() -> None:
    planned = Planned(num_blocks=12)
    first = planned.open(8, fan_out=6)
    planned.run()
    held = {branch: branch.probability for branch in first.branches if branch.table.block_ids}
    free = planned.pool.num_free
    planned.open(4 * free + 2, fan_out=0)
    planned.run()
    lost = [branch for branch in held if not branch.table.block_ids]
    kept = [branch for branch in held if branch.table.block_ids]
    assert lost
    assert kept
    assert max(held[branch] for branch in lost) <= min(held[branch] for branch in kept)


def test_without_branches_left_the_sequence_that_asks_for_more_waits_until_all_of_it_fits() -> None:
    planned = Planned(num_blocks=8)
    first = planned.open(20, fan_out=2)
    second = planned.open(20, fan_out=2)
    planned.run()
    assert [first.starved, second.starved] == [False, True]
    assert first.trunk.is_complete
    assert second.trunk.table.block_ids == []
    assert first.branches == []  # while one has nothing, none gets a second helping
    planned.sequences.remove(first)
    first.release()
    planned.run()
    assert second.trunk.is_complete
    assert second.branches
