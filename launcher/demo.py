"""`slipstream demo`: real prompts through real services, with drafting and without, and what it gave."""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from rich.console import Console

from gateway.policy.tenants import DRAFT_MODEL
from launcher.client import Client, chat_prompt, connect
from launcher.figures import Figures, comparison, speedup, time_spent
from launcher.processes import Processes
from launcher.prompt_file import DEMO_PROMPTS, Prompt, load_prompts
from launcher.stack import single_machine, start_stack
from launcher.terminal import DRAFTED, show
from launcher.topology import Topology, num_cores
from slipstream.models.eagle3_config import ARCHITECTURE
from slipstream.wire.v1 import generation_pb2 as pb

DRAFTERS = Path(__file__).parents[1] / "drafters"
SECONDS_PER_ANSWER = 120.0
WORTH_IT = 1.05  # a smaller gain than this is noise on a busy machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A tenant of the demo: its key, and who drafts for it."""

    name: str
    key: str
    proposers: tuple[str, ...]


def run_demo(console: Console, model: Path, max_tokens: int, proposer: str = DRAFT_MODEL) -> None:
    draft_model = find_draft_model(DRAFTERS)
    policies = make_policies(with_drafter=draft_model is not None, proposer=proposer)
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        tenants = write_tenants(Path(folder) / "tenants.yaml", policies)
        drafting, plain = topologies(model, draft_model, tenants, proposer)
        with console.status("starting verifier and gateway"):
            addresses = [start_stack(processes, drafting).gateway]
            addresses.append(addresses[0] if plain is drafting else start_stack(processes, plain).gateway)
        introduce(console, policies[0], drafting, plain)
        with clients(addresses, policies) as (drafted_by, undrafted):
            prompts = load_prompts(DEMO_PROMPTS)
            rows = [ask(console, drafted_by, undrafted, prompt, max_tokens) for prompt in prompts]
    report(console, rows, threads_used(drafting, plain))


def topologies(
    model: Path, draft_model: Path | None, tenants: Path, proposer: str = DRAFT_MODEL
) -> tuple[Topology, Topology]:
    """What runs with drafts, and without: a drafter shares its verifier's cores; plain decoding has them alone."""
    plain = single_machine(model, tenants=tenants)
    if draft_model is None:
        return plain, plain
    drafting = single_machine(model, draft_model, tenants=tenants)
    return replace(drafting, drafters=tuple(replace(one, proposer=proposer) for one in drafting.drafters)), plain


def threads_used(drafting: Topology, plain: Topology) -> str:
    """What the reader must know to compare the two; empty if nothing differs."""
    if plain is drafting:
        return ""
    (verifier,), (alone,) = drafting.verifiers, plain.verifiers
    return (
        f"Plain runs have a verifier of their own with {plain.threads_of(alone)} threads while the drafter rests; "
        f"drafted ones take turns with the drafter, {drafting.threads_of(verifier)} threads for the verifier."
    )


def introduce(console: Console, policy: Policy, drafting: Topology, plain: Topology) -> None:
    (verifier,) = drafting.verifiers
    cores = f"{drafting.threads_of(verifier)} of {num_cores()} cores for the verifier"
    console.print(f"{verifier.model.name if verifier.model else ''} in {verifier.dtype}, {cores}.")
    if note := threads_used(drafting, plain):
        console.print(note)
    drafters = " and ".join(policy.proposers)
    console.print(f"Drafted by {drafters}; accepted draft tokens are [{DRAFTED}]in this colour[/].")
    console.print("Every prompt is asked twice with drafts and twice without; of each two the faster counts.")


def ask(
    console: Console, drafting: Client, plain: Client, prompt: Prompt, max_tokens: int
) -> tuple[str, Figures, Figures]:
    """Streams the drafted answer to the terminal, then asks each again in turn and says how fast they were at best."""
    console.print(f"\n[bold]{prompt.kind}[/] [dim]{prompt.text.splitlines()[0]}[/]")
    request = pb.GenerateRequest(prompt=chat_prompt(prompt.text), temperature=0.0, max_tokens=max_tokens)
    shown = figures_of(show(console, drafting.generate(request, SECONDS_PER_ANSWER)).last)
    slow = faster(asked(plain, request), asked(plain, request))
    fast = faster(shown, asked(drafting, request))
    speeds = f"{fast.tokens_per_second:.1f} tok/s, {slow.tokens_per_second:.1f} without drafts"
    console.print(f"[dim]{fast.num_accepted} of {fast.num_tokens} tokens drafted; {speeds}[/]")
    return prompt.kind, fast, slow


def asked(client: Client, request: pb.GenerateRequest) -> Figures:
    *_, last = client.generate(request, SECONDS_PER_ANSWER)
    return figures_of(last)


def figures_of(last: pb.GenerateResponse) -> Figures:
    figures = Figures()
    figures.add(last.usage, last.timings)
    return figures


def faster(one: Figures, other: Figures) -> Figures:
    """The run that the machine's other work disturbed less."""
    return max(one, other, key=lambda figures: figures.tokens_per_second)


def report(console: Console, rows: list[tuple[str, Figures, Figures]], note: str) -> None:
    kinds = list(dict.fromkeys(kind for kind, _, _ in rows))
    table = [(kind, *summed([row for row in rows if row[0] == kind])) for kind in kinds]
    drafted, plain = summed(rows)
    console.print()
    console.print(comparison([*table, ("all", drafted, plain)], caption=note))
    console.print(time_spent([("drafting", drafted), ("plain", plain)]))
    console.print(verdict(table))


def summed(rows: list[tuple[str, Figures, Figures]]) -> tuple[Figures, Figures]:
    drafted, plain = Figures(), Figures()
    for _, one, other in rows:
        drafted.merge(one)
        plain.merge(other)
    return drafted, plain


def verdict(table: list[tuple[str, Figures, Figures]]) -> str:
    """What paid in this run, whatever was hoped for."""
    paid = [kind for kind, drafted, plain in table if speedup(drafted, plain) >= WORTH_IT]
    cost = [kind for kind, drafted, plain in table if speedup(drafted, plain) < 1 / WORTH_IT]
    even = [kind for kind, _, _ in table if kind not in paid and kind not in cost]
    parts = (("paid on", paid), ("made no difference on", even), ("cost time on", cost))
    return "Drafting " + "; ".join(f"{words} {', '.join(kinds)}" for words, kinds in parts if kinds) + "."


def find_draft_model(drafters: Path) -> Path | None:
    """A draft model that the repository ships, if it does; an EAGLE-3 head is none."""
    for file in sorted(drafters.glob("*/config.json")):
        if ARCHITECTURE not in json.loads(file.read_text(encoding="utf-8")).get("architectures", ()):
            return file.parent
    return None


def make_policies(*, with_drafter: bool, proposer: str = DRAFT_MODEL) -> tuple[Policy, Policy]:
    proposers = ("ngram", proposer) if with_drafter else ("ngram",)
    drafting = Policy(name="drafting", key=secrets.token_hex(16), proposers=proposers)
    return drafting, Policy(name="plain", key=secrets.token_hex(16), proposers=("none",))


def write_tenants(path: Path, policies: tuple[Policy, ...]) -> Path:
    tenants = [
        {
            "name": policy.name,
            "key_sha256": [hashlib.sha256(policy.key.encode()).hexdigest()],
            "proposers": list(policy.proposers),
            "num_draft_tokens": 4,
        }
        for policy in policies
    ]
    path.write_text(yaml.safe_dump({"tenants": tenants}))
    return path


@contextmanager
def clients(addresses: list[str], policies: tuple[Policy, Policy]) -> Iterator[tuple[Client, Client]]:
    with connect(addresses[0], policies[0].key) as drafting, connect(addresses[1], policies[1].key) as plain:
        yield drafting, plain
