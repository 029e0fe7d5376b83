"""Where a grammar cuts drafts, what it forces, and what of a request may not be."""

import numpy as np
import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import DraftToken, LawKind
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.request import SamplingParams, SequenceRequest
from tests.tiny_models import EOS_TOKEN_ID
from tests.verifier_svc.guided import regex
from tests.verifier_svc.harness import VOCAB
from verifier_svc.draft_tree import DraftPath
from verifier_svc.guide import Guide
from verifier_svc.local_drafts import LocalDrafts

A, B, C, D = 3, 4, 5, 6


@pytest.fixture
def make_guide(tokenizer):
    compiler = GrammarCompiler(tokenizer, VOCAB, (EOS_TOKEN_ID,))

    def make(text, output=(), **sampling):
        return Guide(compiler.compile(regex(text)), request(output, **sampling), tokenizer)

    return make


def request(output=(), proposers=("ngram",), **sampling):
    return SequenceRequest(
        sequence_id=1,
        token_ids=(7, 8, 7, *output),
        num_prompt_tokens=3,
        sampling=SamplingParams(**sampling),
        proposers=proposers,
    )


def path(*token_ids, proposer="draft_model"):
    return DraftPath(proposer, tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids))


def test_a_path_is_cut_before_its_first_illegal_token_and_keeps_it_aside(make_guide):
    guide = make_guide("AB+C?")
    whole = path(A, B, B)
    assert guide.cut(whole) is whole
    cut = guide.cut(path(A, C, B))
    assert ([token.token_id for token in cut.tokens], cut.cut.token_id, cut.proposer) == ([A], C, "draft_model")
    assert guide.cut(path(A, B, EOS_TOKEN_ID, B)).cut.token_id == B
    nothing_left = guide.cut(path(D, A))
    assert (nothing_left.tokens, nothing_left.proposer, nothing_left.cut.token_id) == ((), "", D)


def test_masks_follow_the_path_and_may_be_written_again(make_guide):
    guide = make_guide("A(B|C)")
    fill = guide.filler(guide.cut(path(A, B)))
    for _ in range(2):
        bits = np.zeros((3, 1), dtype=np.int32)
        fill(bits)
        low = (bits[:, 0] & ((1 << VOCAB) - 1)).tolist()
        assert low == [1 << A, 1 << B | 1 << C, 1 << EOS_TOKEN_ID]


def test_forced_text_follows_committed_tokens_only(make_guide):
    guide = make_guide("ABC(A|B)DD")
    assert guide.forced_tokens == (A, B, C)
    guide.cut(path(A, B))
    assert guide.forced_tokens == (A, B, C)
    guide.advance((A,))
    assert guide.forced_tokens == (B, C)
    guide.advance((B, C))
    assert guide.forced_tokens == ()
    guide.advance((B,))
    assert guide.forced_tokens == (D, D)


def test_what_is_committed_already_is_taken_in_and_must_conform(make_guide):
    assert make_guide("ABCD", output=(A, B)).forced_tokens == (C, D)
    with pytest.raises(InvalidRequest, match="grammar forbids the 2 output tokens that are committed already"):
        make_guide("ABCD", output=(A, C))


def test_a_stop_token_that_is_text_is_no_end_and_one_that_is_not_is(make_guide):
    guide = make_guide("AB", stop_token_ids=(1, B))
    assert guide.allows((A, B, 1))
    assert guide.allows((A, B, EOS_TOKEN_ID))
    assert not guide.allows((A, 1))
    assert not guide.allows((B,))


def test_forced_text_comes_first_where_it_fills_half_of_a_pass(make_guide):
    local = LocalDrafts(request(), ("ngram", "grammar"), make_guide("AB(A|B)"))
    assert [local.come_first(count) for count in (0, 1, 4, 5)] == [False, True, True, False]
    assert local.path(4, (7, 8, 7)) == path(A, B, proposer="grammar")
    assert local.path(1, (7, 8, 7)) == path(A, proposer="grammar")


def test_where_nothing_is_forced_n_grams_are_drafted_and_without_a_grammar_too(make_guide):
    for guide in (make_guide("A|B"), None):
        local = LocalDrafts(request(), ("ngram", "grammar"), guide)
        assert not local.come_first(2)
        assert local.path(1, (7, 8, 9, 7, 8)) == path(9, proposer="ngram")
        assert local.path(0, (7, 8, 7)) == DraftPath()


def test_what_the_service_does_not_have_is_not_drafted_and_waited_for_elsewhere(make_guide):
    local = LocalDrafts(request(proposers=("ngram", "draft_model")), (), make_guide("ABC"))
    assert not local.come_first(2)
    assert local.path(2, (7, 8, 7)) == DraftPath()
    assert local.waits_for_others
    assert local.is_others(path(9, proposer="draft_model"))
    assert not LocalDrafts(request(), ("ngram",)).waits_for_others
