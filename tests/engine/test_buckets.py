"""Every step up to the limits finds a bucket, and a small one."""

from __future__ import annotations

import pytest

from slipstream.engine.buckets import Bucket, StepSize, choose_bucket, make_buckets

BUCKETS = make_buckets(max_num_seqs=32, max_num_tokens=512)


def chosen(num_seqs: int, queries: int) -> Bucket | None:
    rows = num_seqs * queries
    return choose_bucket(BUCKETS, StepSize(num_tokens=rows, num_seqs=num_seqs, num_rows=rows, num_checks=num_seqs))


@pytest.mark.parametrize("queries", [1, 2, 5, 9, 16])
def test_every_batch_size_up_to_the_limits_has_a_bucket(queries: int) -> None:
    for num_seqs in range(1, 33):
        assert (chosen(num_seqs, queries) is not None) == (num_seqs * queries <= 512)


def test_a_step_takes_the_smallest_bucket_that_holds_it() -> None:
    assert chosen(1, 1) == Bucket(1, 1, 1)
    assert chosen(1, 5) == Bucket(5, 1, 5)
    assert chosen(3, 1) == Bucket(4, 4, 4)
    assert chosen(32, 5) == Bucket(160, 32, 160)


def test_a_prompt_chunk_pays_for_few_logits() -> None:
    bucket = choose_bucket(BUCKETS, StepSize(num_tokens=512, num_seqs=1, num_rows=1, num_checks=1))
    assert bucket == Bucket(512, 1, 16)


def test_padding_wastes_at_most_half_and_a_third_of_large_steps() -> None:
    for num_tokens in range(1, 513):
        bucket = choose_bucket(BUCKETS, StepSize(num_tokens=num_tokens, num_seqs=1, num_rows=1, num_checks=1))
        assert bucket is not None
        assert bucket.num_tokens <= (2 * num_tokens if num_tokens <= 32 else 1.97 * num_tokens)
        if num_tokens > 64:
            assert bucket.num_tokens <= 1.5 * num_tokens


def test_a_padded_sequence_always_has_an_unused_row_to_look_at() -> None:
    bucket = Bucket(8, 4, 8)
    assert bucket.fits(StepSize(num_tokens=8, num_seqs=4, num_rows=8, num_checks=4))
    assert not bucket.fits(StepSize(num_tokens=8, num_seqs=4, num_rows=8, num_checks=3))
    assert bucket.fits(StepSize(num_tokens=8, num_seqs=4, num_rows=7, num_checks=3))


def test_what_is_beyond_the_largest_bucket_has_none() -> None:
    assert choose_bucket(BUCKETS, StepSize(num_tokens=513, num_seqs=1, num_rows=1, num_checks=1)) is None
    assert choose_bucket(BUCKETS, StepSize(num_tokens=33, num_seqs=33, num_rows=33, num_checks=33)) is None


def test_large_budgets_stop_where_graphs_no_longer_pay() -> None:
    assert max(make_buckets(max_num_seqs=4, max_num_tokens=8192)).num_tokens == 1024


def test_attention_is_cut_for_a_verify_pass_at_least() -> None:
    assert [bucket.query_len for bucket in (Bucket(1, 1, 1), Bucket(160, 32, 160), Bucket(512, 4, 64))] == [1, 8, 128]
