"""Launches of attention are cut so that the GPU is full, the scratch holds all parts and no program reads too much."""

from __future__ import annotations

import pytest

from slipstream.kernels.gpu.attention_plan import (
    LONGEST_SPLIT,
    MAX_SPLITS,
    PROGRAMS_WANTED,
    SCRATCH_BYTES,
    AttentionPlan,
    plan_attention,
)

SHAPE = {"num_heads": 32, "kv_heads": 8, "dim": 128}


def plan(num_seqs: int, query_len: int, context_len: int) -> AttentionPlan:
    return plan_attention(
        num_tokens=num_seqs * query_len,
        num_seqs=num_seqs,
        max_query_len=query_len,
        max_context_len=context_len,
        **SHAPE,
    )


def test_a_lone_verify_pass_over_a_long_context_is_split_to_fill_the_gpu() -> None:
    cut = plan(1, 5, 8192)
    assert cut.num_splits * SHAPE["kv_heads"] >= PROGRAMS_WANTED / 2
    assert cut.num_splits & (cut.num_splits - 1) == 0, "a power of two"


def test_a_short_context_is_not_cut_into_parts_without_keys() -> None:
    assert plan(1, 5, 60).num_splits == 1


def test_many_sequences_need_no_splits() -> None:
    assert plan(256, 5, 1024).num_splits == 1


def test_where_long_contexts_may_come_short_ones_are_not_cut_for_it() -> None:
    cut = plan(32, 5, 32768)
    assert (cut.num_splits, cut.most_usual) == (32768 // LONGEST_SPLIT, 1)


def test_no_program_reads_more_than_the_longest_split_where_the_scratch_has_room() -> None:
    assert 65536 / plan(16, 5, 65536).num_splits <= LONGEST_SPLIT


@pytest.mark.parametrize(("num_seqs", "query_len"), [(1, 1), (1, 512), (8, 64), (64, 5)])
def test_parts_fit_the_scratch(num_seqs: int, query_len: int) -> None:
    cut = plan(num_seqs, query_len, 131072)
    floats = num_seqs * query_len * SHAPE["num_heads"] * SHAPE["dim"]
    assert 1 <= cut.num_splits <= MAX_SPLITS
    assert cut.num_splits == 1 or cut.num_splits * floats * 4 <= SCRATCH_BYTES


def test_tiles_of_a_prompt_are_larger_than_those_of_a_verify_pass() -> None:
    assert plan(1, 5, 1024).block_m < plan(1, 512, 1024).block_m <= 128
