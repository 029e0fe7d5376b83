"""Embedding and head of ranks that each hold a slice of the vocabulary."""

from dataclasses import replace

import torch

from slipstream.layers.vocabulary import VocabularyShare
from slipstream.parallel.ranks import ALONE, RankGroup
from tests.parallel.rank_threads import on_ranks
from tests.parallel.test_shard import SMOLLM2

CONFIG = replace(SMOLLM2, vocab_size=150, hidden_size=8)
EMBEDDING = torch.arange(150 * 8.0).view(150, 8)
TOKENS = torch.tensor([0, 149, 64, 127, 128, 7, 7])


def own_rows(ranks: RankGroup) -> torch.Tensor:
    """This rank's, padded with nonsense."""
    tokens = ranks.shard.tokens(CONFIG)
    rows = torch.full((ranks.shard.share(CONFIG).vocab_size, 8), torch.nan)
    rows[: len(tokens)] = EMBEDDING[tokens.start : tokens.stop]
    return rows


def test_every_rank_gets_every_tokens_row_from_the_rank_that_has_it() -> None:
    for embedded in on_ranks(2, lambda ranks: VocabularyShare(CONFIG, ranks).embed(TOKENS, own_rows(ranks))):
        assert torch.equal(embedded, EMBEDDING[TOKENS])
    assert torch.equal(VocabularyShare(CONFIG, ALONE).embed(TOKENS, EMBEDDING), EMBEDDING[TOKENS])


def test_nothing_can_choose_padding_and_whole_logits_have_none() -> None:
    def run(ranks: RankGroup) -> tuple[int, torch.Tensor]:
        share = VocabularyShare(CONFIG, ranks)
        tokens = ranks.shard.tokens(CONFIG)
        logits = share.hide_padding(torch.arange(tokens.start, tokens.start + 128.0)[None])
        return int(logits.isinf().sum()), share.slice.whole(logits)

    (padding, whole), (last_padding, last_whole) = on_ranks(2, run)
    assert (padding, last_padding) == (0, 128 - 22)
    assert torch.equal(whole, torch.arange(150.0)[None])
    assert torch.equal(last_whole, whole)
