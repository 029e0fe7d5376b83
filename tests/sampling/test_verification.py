"""The batched verifier follows the plain rule token for token, and never accepts what is not a draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.draft_law import as_law, sparse_laws
from slipstream.sampling.verification import recovery_weights, verify, verify_reference

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
GREEDY = SamplingParams(temperature=0.0)
VOCAB = 11

SAMPLING = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 4]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.1]),
)


def sparse(token_id: int, **counts: int) -> DraftToken:
    """A draft token drawn from a law written as t3=16384, t5=16384."""
    token_ids = np.array([int(name[1:]) for name in counts], dtype=np.int32)
    return DraftToken(token_id, LawKind.SPARSE, SparseLaw(token_ids, np.array(list(counts.values()), dtype=np.uint16)))


def one_hot(*token_ids: int) -> tuple[DraftToken, ...]:
    return tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)


def check(draft: tuple[DraftToken, ...] = (), **changes: Any) -> SequenceCheck:
    settings: dict[str, Any] = {"base": 5, "sampling": SamplingParams(), "mode": RATIO, "seed": 1, "accept_key": 2}
    return SequenceCheck(draft=draft, **(settings | changes))


def logits_choosing(*token_ids: int) -> torch.Tensor:
    """Logits under which each row's target law is one token."""
    logits = torch.full((len(token_ids), VOCAB), -torch.inf)
    logits[torch.arange(len(token_ids)), torch.tensor(token_ids)] = 0.0
    return logits


def drafted(generator: torch.Generator, draft_logits: torch.Tensor) -> DraftToken:
    """A token of either kind; a sparse one is drawn from its law."""
    law = as_law(*(array[0] for array in sparse_laws(draft_logits[None], 4)))
    weights = torch.from_numpy(law.counts.astype(np.float32))
    token_id = int(law.token_ids[torch.multinomial(weights, 1, generator=generator)])
    if torch.rand((), generator=generator) < 0.3:
        return DraftToken(token_id, LawKind.ONE_HOT)
    return DraftToken(token_id, LawKind.SPARSE, law)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), SAMPLING, st.sampled_from([RATIO, COUPLED]), st.integers(0, (1 << 64) - 1)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 1 << 30),
    st.sampled_from([0.0, 1.0, 3.0]),
)
def test_the_batched_verifier_follows_the_rule_token_for_token(
    sequences: list[tuple[int, SamplingParams, VerificationMode, int]], seed: int, disagreement: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    target_logits = torch.randn(sum(k + 1 for k, *_ in sequences), VOCAB, generator=generator) * 2
    # Whole numbers now and then, so that ties occur.
    target_logits = target_logits.round() if seed % 3 == 0 else target_logits
    draft_logits = target_logits + disagreement * torch.randn(target_logits.shape, generator=generator)
    rows = iter(draft_logits)
    checks = []
    for index, (k, sampling, mode, key) in enumerate(sequences):
        draft = tuple(drafted(generator, next(rows)) for _ in range(k))
        next(rows)
        checks.append(
            SequenceCheck(
                draft=draft,
                base=index * 1000,
                sampling=sampling,
                mode=mode,
                seed=key,
                accept_key=key ^ 5,
                sample_index=index,
            )
        )
    assert verify(target_logits, checks) == verify_reference(target_logits, checks)


def test_greedy_accepts_exactly_the_argmax_and_adds_the_next() -> None:
    logits = logits_choosing(3, 4, 5, 6)
    assert verify(logits, [check(one_hot(3, 4, 5), sampling=GREEDY)]) == [Verdict((3, 4, 5, 6), 3)]
    assert verify(logits, [check(one_hot(3, 9, 5), sampling=GREEDY)]) == [Verdict((3, 4), 1)]
    assert verify(logits[:1], [check(sampling=GREEDY)]) == [Verdict((3,), 0)]


def test_greedy_ties_go_to_the_smaller_token_in_both_versions() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, [4, 8]] = 1.0
    for draft, verdict in ((4, Verdict((4, 4), 1)), (8, Verdict((4,), 0))):
        checks = [check(one_hot(draft), sampling=GREEDY)]
        assert verify(logits, checks) == verify_reference(logits, checks) == [verdict]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams()])
@pytest.mark.parametrize("mode", [RATIO, COUPLED])
def test_padding_is_never_accepted(sampling: SamplingParams, mode: VerificationMode) -> None:
    # Token 0 is what careless padding would look like, and every row chooses it.
    logits = logits_choosing(*[0] * 9)
    checks = [check(one_hot(*[0] * k), sampling=sampling, mode=mode) for k in (0, 5, 1)]
    assert [verdict.num_accepted for verdict in verify(logits, checks)] == [0, 5, 1]


def test_a_draft_token_of_target_probability_zero_is_a_rejection_that_draws_from_the_residual() -> None:
    # Target: 1/2 on 3 and on 4. Draft law: 1/2 on 3 and on 9, and 9 was drawn. All that is left over is token 4.
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[0, [3, 4]] = 0.0
    logits[1, 6] = 0.0
    draft = sparse(9, t3=LAW_TOTAL // 2, t9=LAW_TOTAL // 2)
    checks = [check((draft,), seed=seed) for seed in range(50)]
    verdicts = verify(logits.repeat(50, 1), checks)
    assert verdicts == [Verdict((4,), 0)] * 50
    assert verify_reference(logits.repeat(50, 1), checks) == verdicts


def test_equal_laws_accept_always() -> None:
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[:, [3, 4]] = 0.0
    draft = (sparse(3, t3=LAW_TOTAL // 2, t4=LAW_TOTAL // 2),)
    verdicts = verify(logits.repeat(200, 1), [check(draft, accept_key=key) for key in range(200)])
    assert {verdict.num_accepted for verdict in verdicts} == {1}


def test_a_residual_without_mass_draws_from_the_target() -> None:
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    draft_probs = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert recovery_weights(probs, draft_probs).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.25, 0.0]]


def test_a_law_that_promises_more_than_everything_still_gives_a_possible_token() -> None:
    # Counts beyond the total cannot come over the wire; here they leave no residual at all.
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[:, [3, 4]] = 0.0
    checks = [check((sparse(9, t3=40000, t4=40000, t9=40000),), seed=seed) for seed in range(20)]
    verdicts = verify(logits.repeat(20, 1), checks)
    assert {verdict.token_ids for verdict in verdicts} == {(3,), (4,)}
    assert verify_reference(logits.repeat(20, 1), checks) == verdicts


def test_a_sequence_gets_the_same_verdict_alone_and_among_others() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(24, VOCAB, generator=generator)
    checks = [
        check(tuple(drafted(generator, logits[row * 3 + i]) for i in range(2)), seed=row, mode=mode, sampling=sampling)
        for row, (mode, sampling) in enumerate(
            (mode, sampling) for mode in (RATIO, COUPLED) for sampling in (GREEDY, *[SamplingParams(top_p=0.9)] * 3)
        )
    ]
    together = verify(logits, checks)
    alone = [verify(logits[row * 3 : row * 3 + 3], [checks[row]])[0] for row in range(8)]
    assert together == alone


@pytest.mark.parametrize("mode", [RATIO, COUPLED])
def test_without_drafts_both_modes_choose_the_same_token(mode: VerificationMode) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    plain = verify(logits, [check(mode=COUPLED, accept_key=9, seed=4)])
    assert verify(logits, [check(mode=mode, accept_key=77, seed=4)]) == plain


def test_coupled_text_does_not_depend_on_what_was_drafted() -> None:
    generator = torch.Generator().manual_seed(3)
    table = torch.randn(VOCAB, VOCAB, generator=generator)

    def text(num_tokens: int, wrong: int) -> list[int]:
        """Drafts are the plain text, every wrong-th token replaced; the law rides along and must not matter."""
        token_ids = [0]
        while len(token_ids) <= num_tokens:
            guesses = (
                [(plain[len(token_ids) + i] + (i % wrong == wrong - 1)) % VOCAB for i in range(4)] if wrong else []
            )
            draft = tuple(sparse(token, **{f"t{token}": LAW_TOTAL}) for token in guesses)
            rows = table[torch.tensor([token_ids[-1], *guesses])]
            (verdict,) = verify(rows, [check(draft, base=len(token_ids), mode=COUPLED)])
            token_ids += verdict.token_ids
        return token_ids[: num_tokens + 1]

    plain = text(50, wrong=0)
    assert text(40, wrong=1) == text(40, wrong=2) == text(40, wrong=5) == plain[:41]


def test_greedy_batches_compute_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("slipstream.sampling.verification.gumbel_noise")
    assert verify(logits_choosing(3, 4), [check(one_hot(3), sampling=GREEDY)]) == [Verdict((3, 4), 1)]


def test_only_rows_that_need_noise_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of_noise: list[int] = []

    def counted(keys: torch.Tensor, positions: torch.Tensor, samples: torch.Tensor, vocab_size: int) -> torch.Tensor:
        rows_of_noise.append(len(keys))
        return torch.zeros(len(keys), vocab_size)

    monkeypatch.setattr("slipstream.sampling.verification.gumbel_noise", counted)
    draft = (sparse(3, t3=LAW_TOTAL),) * 4
    checks = [check(one_hot(3, 3), sampling=GREEDY), check(draft), check(draft)]
    verify(logits_choosing(*[3] * 13), checks)
    assert rows_of_noise == [2]  # one for each sampled sequence's last token, whatever it has drafted
    verify(logits_choosing(*[3] * 5), [check(one_hot(3, 3), mode=COUPLED), check(one_hot(3))])
    assert rows_of_noise[1:] == [4, 1]  # coupled: all its rows; one-hot in ratio mode: its row, then the last token


def test_the_device_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        plain = getattr(torch.Tensor, name)

        def read(*args: Any) -> Any:
            reads.append(name)
            return plain(*args)

        return read

    for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, noted(name))
    draft = (sparse(3, t3=LAW_TOTAL), *one_hot(4))
    checks = [check(draft, sampling=SamplingParams(top_k=3, top_p=0.9, min_p=0.1)), check(one_hot(1), sampling=GREEDY)]
    verify(torch.zeros(5, VOCAB), checks)
    assert reads == ["tolist"]


def test_an_assumed_token_is_refused_where_a_law_would_decide() -> None:
    assumed = (DraftToken(3, LawKind.ASSUMED),)
    with pytest.raises(ValueError, match="assumed token cannot be verified in ratio mode"):
        check(assumed)
    assert check(assumed, mode=COUPLED).is_matched(assumed[0])
    assert check(assumed, sampling=GREEDY).is_matched(assumed[0])


def test_a_wrong_number_of_rows_is_refused_by_number() -> None:
    with pytest.raises(ValueError, match="target_logits has 3 rows; the checks need 2"):
        verify(torch.zeros(3, VOCAB), [check(one_hot(1))])


def test_no_checks_give_no_verdicts() -> None:
    assert verify(torch.zeros(0, VOCAB), []) == []
