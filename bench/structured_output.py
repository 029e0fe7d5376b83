"""What a grammar costs on this machine's CPU: a verifier and a drafter, asked with and without one, in turns.

    python -m bench.structured_output [--model DIR] [--draft-model DIR] [--tokens N] [--repeats N]

Two comparisons, each by one stream, greedy, on all that the shipped draft model and n-grams draft:

* free: a regular expression that allows any text. The answers are those without a grammar, token for token, so the
  ratio is what masks and matching cost.
* schema: answers that a JSON schema shapes, against free answers to the same chats. Other text, so drafts stand more
  or less often; forced text helps.

Of the `--repeats` runs of an answer the fastest counts, from its first message with tokens to its last. Compiling is
not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from bench.cpu import DRAFT_TENANTS, Answer, Gateway, Rate, machine, rate_of, services
from launcher.demo import DRAFTERS, find_draft_model
from launcher.topology import num_cores
from slipstream.config import default_model_dir
from slipstream.wire.v1 import exchange_pb2

LEAST = 0.85
CHATS = (
    "Describe a red fox as a JSON object with name, habitat, food and weight in kg.",
    "Invent a person and describe them as a JSON object with name, habitat, food and weight in kg.",
    "Describe a sailing ship as a JSON object, as if it were an animal: name, habitat, food and weight in kg.",
)
TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "habitat": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 6},
        "food": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 6},
        "weight_kg": {"type": "number"},
    },
    "required": ["name", "habitat", "food", "weight_kg"],
    "additionalProperties": False,
}
GRAMMARS = {
    "none": None,
    "free": exchange_pb2.Grammar(regex=r"(.|\n)*"),
    "schema": exchange_pb2.Grammar(json_schema=json.dumps(SCHEMA)),
}


async def measure(gateway: Gateway, tenant: str, repeats: int) -> dict[str, Rate]:
    """The rate under each grammar."""
    best: dict[str, list[Answer]] = {name: [] for name in GRAMMARS}
    for chat in CHATS:
        for grammar in GRAMMARS.values():
            await gateway.ask(tenant, chat, grammar)  # compiles
        runs = [
            {name: await gateway.ask(tenant, chat, grammar) for name, grammar in GRAMMARS.items()}
            for _ in range(repeats)
        ]
        for name, answers in best.items():
            answers.append(min((run[name] for run in runs), key=lambda answer: answer.seconds / answer.num_tokens))
    return {name: rate_of(answers) for name, answers in best.items()}


def lines(rates: Mapping[str, Rate]) -> list[str]:
    table = [
        f"{name:8} {rate.tokens_per_second:7.1f} tok/s  {rate.tokens_per_pass:5.2f} tokens per pass  "
        f"{rate.tokens_per_second / rates['none'].tokens_per_second:5.2f} of none"
        for name, rate in rates.items()
    ]
    return [f"{machine()}, {num_cores()} cores; at least {LEAST} of none is wanted", *table]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--draft-model", type=Path, default=find_draft_model(DRAFTERS))
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with services(options.model, options.draft_model, options.tokens) as of_tenant:
        for tenant in (*DRAFT_TENANTS, "plain") if options.draft_model else ("plain", "ngram"):
            rates = asyncio.run(measure(of_tenant[tenant], tenant, options.repeats))
            print(f"{tenant}:", *lines(rates), sep="\n  ")


if __name__ == "__main__":
    main()
