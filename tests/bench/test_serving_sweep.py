"""Which points are measured, and that the first are worth most."""

from __future__ import annotations

from itertools import islice

from bench.serving_point import Policy
from bench.serving_sweep import FIRST_LOADS, Sweep

SWEEP = Sweep(proposers=("draft_model", "ngram", "auto"))


def test_plain_decoding_comes_before_all_others_of_its_load_and_once() -> None:
    loads = [(temperature, streams) for temperature in SWEEP.temperatures for streams in SWEEP.streams]
    for load in loads:
        names = [policy.name for policy, *rest in SWEEP.points() if tuple(rest) == load]
        assert names[0] == "none"
        assert len(set(names)) == len(names)


def test_modes_differ_only_where_there_is_chance_and_ngrams_enumerate_nothing() -> None:
    greedy = [policy.name for policy, temperature, streams in SWEEP.points() if (temperature, streams) == (0.0, 1)]
    warm = [policy.name for policy, temperature, streams in SWEEP.points() if (temperature, streams) == (1.0, 1)]
    assert greedy == ["none", "draft_model-fan8-ratio", "draft_model-ratio", "ngram-ratio", "auto"]
    assert len(warm) == 1 + 2 * 3 + 1


def test_what_is_asked_about_first_comes_first() -> None:
    first = list(islice(SWEEP.points(), 3 * len(FIRST_LOADS)))
    assert [tuple(rest) for _, *rest in first[::3]] == list(FIRST_LOADS)
    assert {policy.proposer for policy, *_ in first} == {"none", "draft_model"}


def test_asked_for_less_it_has_less() -> None:
    few = Sweep(proposers=("draft_model",), streams=(4,), temperatures=(0.5,), modes=("coupled",), fan_out=0)
    assert [policy.name for policy, *_ in few.points()] == ["none", "draft_model-coupled"]


def test_the_first_point_with_laws_warms_up_longer() -> None:
    enumerating, turns = (Policy(proposer="draft_model", num_draft_tokens=5, fan_out=n) for n in (SWEEP.fan_out, 0))
    assert SWEEP.warm_seconds_of(enumerating, 1.0, 1) == SWEEP.first_warm_seconds
    assert SWEEP.warm_seconds_of(enumerating, 0.0, 1) == SWEEP.warm_seconds_of(turns, 1.0, 1) == SWEEP.warm_seconds


def test_where_the_drafter_runs_ahead_of_one_stream_only_several_are_measured_without() -> None:
    sweep = Sweep(proposers=("draft_model",), most_ahead=1)
    enumerated = {streams for policy, _, streams in sweep.points() if policy.fan_out}
    assert enumerated == {1}
    assert {streams for policy, _, streams in sweep.points() if policy.proposer != "none"} == set(sweep.streams)
