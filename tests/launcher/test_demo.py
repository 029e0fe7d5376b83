"""The demo: its prompts, tenants and verdict, and the whole of it on the real model."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.policy.tenants import load_tenants
from launcher.demo import faster, find_draft_model, make_policies, threads_used, topologies, verdict, write_tenants
from launcher.figures import Figures
from launcher.prompt_file import DEMO_PROMPTS, load_prompts
from launcher.topology import num_cores
from tests.launcher.process_table import children, gone


def make_figures(tokens_per_second: float) -> Figures:
    return Figures(num_decoded=int(tokens_per_second * 100), decode_us=100_000_000)


def test_the_prompts_hold_chat_and_text_to_repeat() -> None:
    assert {"chat", "repeat"} <= {prompt.kind for prompt in load_prompts(DEMO_PROMPTS)}


def test_the_gateway_knows_both_tenants_by_their_keys(tmp_path: Path) -> None:
    policies = make_policies(with_drafter=True)
    tenants = load_tenants(write_tenants(tmp_path / "tenants.yaml", policies))
    drafting, plain = (tenants.authenticate(f"Bearer {policy.key}") for policy in policies)
    assert (drafting.name, "draft_model" in drafting.active_proposers) == ("drafting", True)
    assert (plain.name, plain.active_proposers) == ("plain", ())
    assert policies[0].key not in (tmp_path / "tenants.yaml").read_text()


def test_a_draft_model_is_used_if_the_repository_ships_one(tmp_path: Path) -> None:
    assert find_draft_model(tmp_path / "absent") is None
    (tmp_path / "small").mkdir()
    assert find_draft_model(tmp_path) is None
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    assert find_draft_model(tmp_path) is None
    (tmp_path / "small" / "config.json").write_text("{}")
    assert find_draft_model(tmp_path) == tmp_path / "small"


def test_it_drafts_as_it_is_told(tmp_path: Path) -> None:
    drafting, plain = topologies(tmp_path, tmp_path, tmp_path, "pard")
    assert [drafter.proposer for drafter in drafting.drafters] == ["pard"]
    assert plain.drafters == ()
    assert make_policies(with_drafter=True, proposer="pard")[0].proposers == ("ngram", "pard")


def test_plain_runs_have_every_core_and_drafted_ones_share_them_in_turns(tmp_path: Path) -> None:
    drafting, plain = topologies(tmp_path, tmp_path, tmp_path)
    assert f"with {num_cores()} threads while the drafter rests" in threads_used(drafting, plain)
    assert plain.threads_of(plain.verifiers[0]) == num_cores()
    assert drafting.threads_of(drafting.verifiers[0]) == num_cores(), "they take turns"


def test_without_a_drafter_one_verifier_serves_both(tmp_path: Path) -> None:
    drafting, plain = topologies(tmp_path, None, tmp_path)
    assert drafting is plain
    assert threads_used(drafting, plain) == ""


def test_of_two_runs_the_less_disturbed_counts() -> None:
    slow, fast = make_figures(10), make_figures(20)
    assert faster(slow, fast) is fast
    assert faster(fast, slow) is fast


def test_the_verdict_tells_what_paid_and_what_cost() -> None:
    table = [
        ("repeat", make_figures(30), make_figures(20)),
        ("chat", make_figures(20), make_figures(20)),
        ("code", make_figures(15), make_figures(20)),
    ]
    assert verdict(table) == "Drafting paid on repeat; made no difference on chat; cost time on code."


def test_a_verdict_without_gain_claims_none() -> None:
    assert verdict([("chat", make_figures(10), make_figures(20))]) == "Drafting cost time on chat."


def start_demo(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "launcher", "demo", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_demo_answers_every_prompt_both_ways_and_says_what_paid() -> None:
    process = start_demo("--max-tokens", "4")
    out, errors = process.communicate(timeout=280)
    assert (process.returncode, errors) == (0, "")
    assert out.count("without drafts") == len(load_prompts(DEMO_PROMPTS))
    assert "tok/pass" in out
    assert out.splitlines()[-1].startswith("Drafting ")


@pytest.mark.model
@pytest.mark.slow  # as test_up.py shows of `up`, which is quicker
def test_stopping_the_demo_leaves_no_process() -> None:
    process = start_demo()
    assert process.stdout is not None
    assert "cores for the verifier" in process.stdout.readline()
    services = children(process.pid)
    assert len(services) >= 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert all(gone(pid) for pid in services)
