"""Commits in any order, any number of times: each token is added once, in its place."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from drafter_svc.commit_order import CommitOrder
from slipstream.exchange import Commit

TEXT = (5, 6, 7, 8, 9, 10, 11, 12)
COMMITS = [Commit(1, 1, (6,)), Commit(1, 2, (7, 8, 9)), Commit(1, 5, (10,)), Commit(1, 6, (11, 12))]


def after(commits: Iterable[Commit]) -> tuple[int, ...]:
    order, committed = CommitOrder(), list(TEXT[:1])
    for commit in commits:
        for _, new in order.take(commit, committed):
            committed += new
    return tuple(committed)


@given(
    st.permutations(range(len(COMMITS))).flatmap(
        lambda order: st.lists(st.sampled_from(range(len(COMMITS)))).map(lambda again: [*order, *again])
    )
)
def test_any_order_and_any_repetition_give_the_same_text(schedule: list[int]) -> None:
    assert after(COMMITS[i] for i in schedule) == TEXT


def test_a_commit_that_overlaps_adds_what_is_new_and_one_that_contradicts_nothing() -> None:
    assert after([COMMITS[0], Commit(1, 1, (6, 7))]) == (5, 6, 7)
    assert after([COMMITS[0], Commit(1, 1, (9, 7))]) == (5, 6)
    assert after([COMMITS[0], Commit(1, 0, (5,))]) == (5, 6)


def test_a_commit_whose_predecessor_never_comes_changes_nothing() -> None:
    assert after([COMMITS[2], COMMITS[3]]) == (5,)


def test_no_more_than_so_many_early_commits_are_kept() -> None:
    far = [Commit(1, 100 + i, (0,)) for i in range(1000)]
    assert after([*far, *COMMITS]) == TEXT
