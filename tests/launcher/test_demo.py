"""The demo's own parts: prompts, tenants, verdict. The whole of it runs in tests/e2e."""

from __future__ import annotations

from pathlib import Path

from gateway.tenants import load_tenants
from launcher.demo import PROMPTS, find_draft_model, load_prompts, make_policies, verdict, write_tenants
from launcher.figures import Figures


def make_figures(tokens_per_second: float) -> Figures:
    return Figures(num_decoded=int(tokens_per_second * 100), decode_us=100_000_000)


def test_the_prompts_hold_chat_and_text_to_repeat() -> None:
    assert {"chat", "repeat"} <= {prompt.kind for prompt in load_prompts(PROMPTS)}


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
    (tmp_path / "small" / "config.json").write_text("{}")
    assert find_draft_model(tmp_path) == tmp_path / "small"


def test_the_verdict_tells_what_paid_and_what_cost() -> None:
    table = [
        ("repeat", make_figures(30), make_figures(20)),
        ("chat", make_figures(20), make_figures(20)),
        ("code", make_figures(15), make_figures(20)),
    ]
    assert verdict(table) == "Drafting paid on repeat; made no difference on chat; cost time on code."


def test_a_verdict_without_gain_claims_none() -> None:
    assert verdict([("chat", make_figures(10), make_figures(20))]) == "Drafting cost time on chat."
