"""Output keeps to its grammar, drafts stay on, and no draft changes what is said."""

import json
import random

import jsonschema
import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import FinishReason, LawKind
from slipstream.request import Grammar, GrammarKind, VerificationMode
from tests.grammar.random_schemas import random_schema
from tests.scripted_runner import random_law
from tests.tiny_models import EOS_TOKEN_ID
from tests.verifier_svc.guided import VOCAB, BlindDrafter, closing_law, one_at_a_time, regex
from tests.verifier_svc.harness import REMOTE, Harness, tiny_tokenizer
from verifier_svc.guide import NAME as GRAMMAR

PROMPT = (40, 41, 42)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(PERSON))
MODES = list(VerificationMode)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tiny_tokenizer(tmp_path_factory.mktemp("bytes"), VOCAB)


@pytest.fixture(scope="module")
def law(tokenizer):
    return closing_law(random_law(VOCAB, seed=1, spread=1.5), tokenizer)


@pytest.fixture
def make_harness(law, tokenizer):
    def make(**options):
        defaults = {"vocab_size": VOCAB, "max_model_len": 256, "num_blocks": 400, "eos_token_ids": (EOS_TOKEN_ID,)}
        proposers = {"local_proposers": ("ngram", GRAMMAR), "max_num_batched_tokens": 96}
        return Harness(options.pop("law", law), tokenizer, **(defaults | proposers | options))

    return make


def open_guided(harness, grammar, sequence_id=1, *, temperature=0.0, max_tokens=120, prompt=PROMPT, **options):
    sampling = {"grammar": grammar, "temperature": temperature, "max_tokens": max_tokens} | options.pop("sampling", {})
    defaults = {"proposers": (REMOTE, "ngram"), "seed": sequence_id, "mode": VerificationMode.COUPLED}
    harness.open(prompt, sequence_id, sampling=sampling, **(defaults | options))


def run_drafted(harness, drafter, sequence_ids, count=4):
    """Steps until nothing is open, with new drafts before every step."""
    for _ in range(600 + 50 * len(sequence_ids)):
        open_ids = {active.request.sequence_id: active for active in harness.verifier.sequences.all}
        if not open_ids:
            return
        for sequence_id in sequence_ids:
            if sequence_id in open_ids:
                drafter.send(harness, sequence_id, tuple(open_ids[sequence_id].engine.token_ids), count)
        harness.step()
    raise AssertionError("still open")


def text_of(tokenizer, output):
    return b"".join(tokenizer.token_bytes(token_id) for token_id in output).decode()


def num_accepted(harness, proposer=None):
    commits = [commit for commits in harness.commits.values() for commit in commits]
    return sum(commit.num_accepted for commit in commits if proposer in (None, commit.proposer))


def check_random_schemas(harness, tokenizer, law, num_schemas):
    """Every completed output at T = 0 and 1 validates; returns how many completed."""
    schemas = {}
    for i in range(num_schemas):
        schema = random_schema(random.Random(i))
        for temperature in (0.0, 1.0):
            schemas[len(schemas)] = schema
            grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
            open_guided(harness, grammar, len(schemas) - 1, temperature=temperature, mode=MODES[i % 2])
    run_drafted(harness, BlindDrafter(law, REMOTE, VerificationMode.COUPLED), schemas)
    assert not harness.failures
    completed = [i for i in schemas if harness.commits[1, i][-1].finish_reason is FinishReason.STOP]
    for i in completed:
        jsonschema.validate(json.loads(text_of(tokenizer, harness.output(i))), schemas[i])
    return len(completed)


def test_completed_outputs_of_random_schemas_validate_and_drafts_stand(make_harness, tokenizer, law):
    harness = make_harness(max_waiting=100)
    assert check_random_schemas(harness, tokenizer, law, 20) > 30
    assert min(num_accepted(harness, REMOTE), num_accepted(harness, GRAMMAR)) > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_completed_outputs_of_many_random_schemas_validate(make_harness, tokenizer, law):
    harness = make_harness(max_waiting=500)
    assert check_random_schemas(harness, tokenizer, law, 200) > 300
    assert num_accepted(harness) > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_that_of_one_token_at_a_time_whatever_is_drafted(make_harness, tokenizer, law, temperature):
    other = closing_law(random_law(VOCAB, seed=2, spread=1.5), tokenizer)
    grammars = [SCHEMA, regex("(ab|cd){2,8}[0-9]+"), regex("x{3,20}y?"), regex("[^z]{5}")]
    ids = range(8)
    expected = [
        one_at_a_time(law, tokenizer, PROMPT, grammars[i % 4], temperature=temperature, seed=i, max_tokens=40)
        for i in ids
    ]
    for draft_law, proposers in ((law, ("ngram", GRAMMAR)), (other, ()), (None, ("ngram", GRAMMAR)), (None, ())):
        harness = make_harness(local_proposers=proposers)
        for i in ids:
            options = {"temperature": temperature, "max_tokens": 40, "num_draft_tokens": i}
            open_guided(harness, grammars[i % 4], i, **options)
        if draft_law is None:
            harness.finish()
        else:
            run_drafted(harness, BlindDrafter(draft_law, REMOTE, VerificationMode.COUPLED), ids, count=8)
        assert [harness.output(i) for i in ids] == expected
        assert not harness.failures


@pytest.mark.parametrize("mode", MODES)
def test_drafts_that_are_illegal_at_every_second_token_abort_nothing(make_harness, tokenizer, mode):
    harness = make_harness(local_proposers=())
    open_guided(harness, regex("[ab]{30}"), temperature=1.0, mode=mode)
    a, b, z = (tokenizer.encode(char)[0] for char in "abz")
    while harness.verifier.sequences:
        history = next(iter(harness.verifier.sequences.all)).engine.token_ids
        harness.draft(len(history), [a, z, b, z], draw=len(history), kind=LawKind.ONE_HOT)
        harness.step()
    assert set(text_of(tokenizer, harness.output())) == set("ab")
    assert len(harness.output()) == 31
    commits = harness.commits[1, 1]
    assert {commit.num_draft_tokens for commit in commits[:-1]} == {1}, (
        "no row is spent on what is illegal or behind it"
    )
    assert sum(commit.num_accepted for commit in commits) > 5


def test_a_grammar_without_drafts_works(make_harness, tokenizer):
    harness = make_harness()
    open_guided(harness, SCHEMA, num_draft_tokens=0, proposers=())
    harness.finish()
    jsonschema.validate(json.loads(text_of(tokenizer, harness.output())), PERSON)
    assert num_accepted(harness) == 0


@pytest.mark.parametrize(
    "grammar, texts",
    [
        (regex("(yes|no)!"), {"yes!", "no!"}),
        (Grammar(GrammarKind.EBNF, 'root ::= "<" letter ">"\nletter ::= "p" | "q"'), {"<p>", "<q>"}),
        (Grammar(GrammarKind.CHOICE, '["rot", "grün"]'), {"rot", "grün"}),
    ],
)
def test_each_kind_of_grammar_gives_its_language_and_nothing_else(make_harness, tokenizer, grammar, texts):
    harness = make_harness(max_waiting=40)
    for i in range(24):
        open_guided(harness, grammar, i, temperature=1.5, max_tokens=20)
    harness.finish()
    assert {text_of(tokenizer, harness.output(i)) for i in range(24)} == texts
    assert {harness.output(i)[-1] for i in range(24)} == {EOS_TOKEN_ID}
    assert num_accepted(harness, GRAMMAR) > 0


def test_a_grammar_that_slows_the_others_down_ends_its_own_sequence_alone(make_harness, monkeypatch):
    monkeypatch.setattr("verifier_svc.grammar_budget.SLACK_SECONDS", 0.0)
    monkeypatch.setattr("verifier_svc.grammar_budget.SECONDS_PER_TOKEN", 0.0)
    harness = make_harness()
    open_guided(harness, regex("(a|b){50}"), 1)
    harness.open(PROMPT, 2, sampling={"max_tokens": 40, "ignore_eos": True})
    harness.finish()
    assert "grammar is too slow after" in str(harness.error(1))
    assert len(harness.output(2)) == 40


def test_forced_text_is_drafted_and_counted_under_its_own_name(make_harness):
    harness = make_harness(local_proposers=(GRAMMAR,))
    open_guided(harness, regex("abcdefgh"), proposers=(REMOTE,))
    harness.finish()
    first, second, *_ = harness.commits[1, 1]
    assert (first.proposer, first.num_draft_tokens, first.num_accepted, len(first.token_ids)) == (GRAMMAR, 4, 4, 5)
    assert (second.num_accepted, second.token_ids[-1], second.finish_reason) == (3, EOS_TOKEN_ID, FinishReason.STOP)


def test_stops_and_limits_end_the_output_before_its_grammar_does(make_harness, tokenizer):
    harness = make_harness()
    c = tokenizer.encode("c")[0]
    open_guided(harness, regex("abcdef"), 1, max_tokens=4)
    open_guided(harness, regex("abcdef"), 2, sampling={"stop_token_ids": (c,)})
    open_guided(harness, regex("abcdef"), 3, sampling={"stop_strings": ("de",)})
    open_guided(harness, regex("abc?"), 4, temperature=1.0, sampling={"stop_token_ids": (1,), "bad_words": ((2,),)})
    harness.finish()
    texts = [text_of(tokenizer, harness.output(i)) for i in (1, 2, 3, 4)]
    assert texts[:3] == ["abcd", "abc", "abcde"]
    assert (texts[3] in ("ab", "abc"), harness.output(4)[-1]) == (True, 1), "a stop token that is no text is an end too"
    reasons = [harness.commits[1, i][-1].finish_reason for i in (1, 2, 3)]
    assert reasons == [FinishReason.LENGTH, FinishReason.STOP, FinishReason.STOP]


@pytest.mark.parametrize("num_output", [1, 5])
def test_a_sequence_that_moved_here_goes_on_where_it_was(make_harness, tokenizer, law, num_output):
    whole = one_at_a_time(law, tokenizer, PROMPT, SCHEMA, temperature=1.0, seed=1, max_tokens=60)
    harness = make_harness()
    moved = (*PROMPT, *whole[:num_output])
    open_guided(harness, SCHEMA, prompt=moved, num_prompt_tokens=len(PROMPT), temperature=1.0, max_tokens=60)
    harness.finish()
    assert harness.output() == whole[num_output:]


def test_a_preempted_sequence_keeps_its_place_in_the_grammar(make_harness, tokenizer, law):
    harness = make_harness(num_blocks=16, max_model_len=64)
    for i in (1, 2):
        open_guided(harness, regex("[a-z]{30}[0-9]"), i, temperature=1.0, max_tokens=40)
    harness.step()
    was_preempted = False
    while harness.verifier.sequences:
        harness.step()
        was_preempted |= harness.verifier.num_waiting > 0
    assert was_preempted
    for i in (1, 2):
        expected = one_at_a_time(
            law, tokenizer, PROMPT, regex("[a-z]{30}[0-9]"), temperature=1.0, seed=i, max_tokens=40
        )
        assert harness.output(i) == expected


def test_what_a_grammar_or_request_does_wrong_ends_that_request_alone(make_harness):
    harness = make_harness()
    open_guided(harness, regex("a("), 1)
    open_guided(harness, SCHEMA, 2, prompt=(*PROMPT, 50), num_prompt_tokens=3)
    open_guided(harness, regex("ab"), 3, sampling={"min_tokens": 5})
    open_guided(harness, regex("ab"), 4)
    harness.finish()
    assert "The parenthesis is not closed" in str(harness.error(1))
    assert "grammar forbids the 1 output tokens that are committed already" in str(harness.error(2))
    assert "bad_words, min_tokens and grammar together forbid all of them" in str(harness.error(3))
    assert {type(harness.error(i)) for i in (1, 2, 3)} == {InvalidRequest}
    assert harness.commits[1, 4][-1].finish_reason is FinishReason.STOP
    assert harness.verifier.pool.num_used == 0


def test_a_grammar_that_the_vocabulary_cannot_spell_ends_the_sequence(law, tmp_path):
    harness = Harness(random_law(24), tiny_tokenizer(tmp_path), eos_token_ids=(EOS_TOKEN_ID,))
    open_guided(harness, regex("A9"), prompt=(5,))
    harness.finish()
    assert isinstance(harness.error(), InvalidRequest)
    assert "no token is allowed at position 2" in str(harness.error())
