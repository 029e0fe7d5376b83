"""The tree of drafts: what it keeps, which path it offers, and which laws never meet."""

import numpy as np

from slipstream.exchange import LAW_TOTAL, Draft, DraftToken, LawKind, SparseLaw
from verifier_svc.draft_tree import DraftPath, DraftTree, after_committed

A, B = "draft_model", "ngram"


def one_hot(*token_ids):
    return tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)


def assumed(*token_ids):
    return tuple(DraftToken(token_id, LawKind.ASSUMED) for token_id in token_ids)


def sparse(token_id, share=0.5):
    counts = np.array([share * LAW_TOTAL, LAW_TOTAL - share * LAW_TOTAL], dtype=np.uint16)
    return DraftToken(token_id, LawKind.SPARSE, SparseLaw(np.array([token_id, token_id + 1], dtype=np.int32), counts))


def ids(path):
    return tuple(token.token_id for token in path.tokens)


def test_the_best_path_is_the_one_inserted_up_to_k():
    tree = DraftTree()
    tree.insert(A, 0, one_hot(1, 2, 3, 4))
    assert ids(tree.best_path(3, [A])) == (1, 2, 3)
    assert ids(tree.best_path(9, [A])) == (1, 2, 3, 4)
    assert tree.best_path(0, [A]) == DraftPath()


def test_advancing_keeps_what_agrees_and_drops_the_rest():
    tree = DraftTree()
    tree.insert(A, 0, one_hot(1, 2, 3))
    tree.insert(A, 1, one_hot(1, 5, 6))
    tree.advance([1, 5])
    assert ids(tree.best_path(4, [A])) == (6,)
    assert len(tree) == 1
    tree.advance([9])
    assert len(tree) == 0
    assert tree.best_path(4, [A]) == DraftPath()


def test_laws_of_two_proposers_never_meet_in_one_node():
    tree = DraftTree()
    tree.insert(A, 0, (sparse(1, 0.25), sparse(2)))
    tree.insert(B, 0, (sparse(1, 0.75), sparse(3)))
    assert len(tree) == 4
    mine, other = tree.best_path(4, [A]), tree.best_path(4, [B])
    assert (mine.tokens[0].law.probability(1), other.tokens[0].law.probability(1)) == (0.25, 0.75)
    assert (ids(mine), ids(other)) == ((1, 2), (1, 3))


def test_a_path_never_changes_from_one_proposer_to_another():
    tree = DraftTree()
    tree.insert(A, 0, one_hot(1))
    tree.insert(B, 0, one_hot(1, 2))
    assert tree.best_path(4, [A, B]) == DraftPath(A, one_hot(1))


def test_laws_of_two_draws_of_the_same_token_stay_apart():
    tree = DraftTree()
    tree.insert(A, 0, (sparse(1, 0.25),))
    tree.insert(A, 1, (sparse(1, 0.75),))
    assert len(tree) == 2
    assert tree.best_path(1, [A]).tokens[0].law.probability(1) == 0.25


def test_an_assumed_token_attaches_to_the_same_proposers_node_whose_law_stays():
    tree = DraftTree()
    tree.insert(A, 0, (sparse(1),))
    tree.insert(A, 1, (*assumed(1), sparse(2)))
    path = tree.best_path(4, [A])
    assert ids(path) == (1, 2)
    assert path.tokens[0].kind is LawKind.SPARSE


def test_an_assumed_token_does_not_attach_to_another_proposers_node():
    tree = DraftTree()
    tree.insert(A, 0, (sparse(1),))
    tree.insert(B, 1, (*assumed(1), *one_hot(2)))
    assert ids(tree.best_path(4, [A])) == (1,)
    assert tree.best_path(4, [B]) == DraftPath()


def test_an_assumed_token_is_never_submitted_but_opens_the_way_when_it_comes_true():
    tree = DraftTree()
    tree.insert(A, 0, (*assumed(7), sparse(2)))
    assert tree.best_path(4, [A]) == DraftPath()
    tree.advance([7])
    assert ids(tree.best_path(4, [A])) == (2,)


def test_assumed_and_drawn_nodes_of_one_token_both_lead_on():
    tree = DraftTree()
    tree.insert(A, 5, (*assumed(1), sparse(8)))  # overtook the message that it builds on
    tree.insert(A, 4, (sparse(1), sparse(9)))
    assert ids(tree.best_path(4, [A])) == (1, 9)
    tree.advance([1])
    assert ids(tree.best_path(4, [A])) == (9,), "both are candidates; the lower draw goes first"
    tree.advance([8])
    assert len(tree) == 0


def test_the_lowest_draw_goes_first_whatever_the_order_of_arrival():
    for order in ([0, 1, 2], [2, 1, 0]):
        tree = DraftTree()
        for draw in order:
            tree.insert(A, draw, one_hot(10 + draw))
        assert ids(tree.best_path(1, [A])) == (10,)


def test_proposers_are_preferred_in_the_order_of_the_request():
    tree = DraftTree()
    tree.insert(B, 0, one_hot(2, 3, 4))
    tree.insert(A, 9, one_hot(1))
    assert tree.best_path(4, [A, B]).proposer == A
    assert tree.best_path(4, [B, A]).proposer == B


def test_a_proposer_that_has_only_assumed_tokens_gives_way_to_the_next():
    tree = DraftTree()
    tree.insert(A, 0, (*assumed(1), *one_hot(2)))
    tree.insert(B, 0, one_hot(5))
    assert tree.best_path(4, [A, B]) == DraftPath(B, one_hot(5))


def test_a_duplicate_adds_nothing():
    tree = DraftTree()
    for _ in range(3):
        assert tree.insert(A, 0, (sparse(1), *one_hot(2)))
    assert len(tree) == 2


def test_one_hot_tokens_of_one_proposer_are_the_same_token_in_every_draw():
    tree = DraftTree()
    tree.insert(B, 0, one_hot(1, 2))
    tree.insert(B, 1, one_hot(1, 2, 3))
    assert len(tree) == 3


def test_another_token_under_the_number_of_an_earlier_draw_is_refused():
    tree = DraftTree()
    assert tree.insert(A, 0, (sparse(1), sparse(2)))
    assert not tree.insert(A, 0, (sparse(4),))
    assert not tree.insert(A, 0, (*assumed(1), sparse(5)))
    assert ids(tree.best_path(4, [A])) == (1, 2)
    assert len(tree) == 2


def test_it_is_bounded_by_dropping_the_oldest_draws():
    tree = DraftTree(max_nodes=8)
    for draw in range(6):
        tree.insert(A, draw, one_hot(10 * draw, 10 * draw + 1))
        assert len(tree) <= 8
    assert ids(tree.best_path(2, [A])) == (20, 21)


def test_a_path_longer_than_the_whole_tree_is_refused():
    tree = DraftTree(max_nodes=4)
    assert not tree.insert(A, 0, one_hot(*range(5)))
    assert len(tree) == 0


def test_a_late_draft_counts_from_where_it_came_true():
    draft = Draft(1, 3, A, 0, one_hot(10, 11, 12))
    assert after_committed(draft, [0, 1, 2]) == one_hot(10, 11, 12)
    assert after_committed(draft, [0, 1, 2, 10]) == one_hot(11, 12)
    assert after_committed(draft, [0, 1, 2, 10, 99]) == ()
    assert after_committed(draft, [0, 1, 2, 10, 11, 12]) == ()


def test_a_draft_on_tokens_that_are_not_final_is_dropped():
    assert after_committed(Draft(1, 4, A, 0, one_hot(10)), [0, 1, 2]) == ()
