"""Our services beside transformers' `generate` on this machine's CPU, in one run. Prints hardware, figures and ratios.

    python -m bench.cpu [--model DIR] [--draft-model DIR] [--tokens N] [--repeats N] [--json]

Transformers runs first, alone, in both dtypes. Then two stacks start as real processes: verifier and gateway, and the
same with the shipped draft model. They answer the same chats over gRPC, greedy, in turns, so that what else the machine
does disturbs all alike: plain and drafted by n-gram on the first, by the draft model and by both on the second. Of each
answer's `--repeats` runs the fastest counts, from the first message with tokens to the last, so that prompts do not
enter. Eight streams at once are counted from their start to their end, prompts and all.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from launcher.demo import DRAFTERS, find_draft_model
from launcher.processes import Processes
from launcher.stack import single_machine, start_stack
from launcher.topology import num_cores
from slipstream.config import default_model_dir
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

CHATS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a sailor who finds a map.",
    "How do I bake bread at home?",
)
COPIES = (
    "Repeat this text word for word, but write Maria instead of Anna:\n\nAnna opened the old wooden box that her "
    "grandmother had left in the attic. Inside the old wooden box Anna found a letter, a silver ring and a map of the "
    "island. Anna read the letter twice, put on the silver ring and decided to sail to the island with the map of the "
    "island in her pocket.",
    "Repeat this list word for word, but write green instead of red:\n\n- red apples, two pounds, from the market on "
    "Main Street\n- yellow apples, two pounds, from the market on Main Street\n- yellow pears, two pounds, from the "
    "market on Main Street\n- black grapes, two pounds, from the market on Main Street",
)
KINDS = (("chat", CHATS), ("copy", COPIES))
TENANTS = {"plain": ["none"], "ngram": ["ngram"], "draft": ["draft_model"], "both": ["ngram", "draft_model"]}
DRAFT_TENANTS = ("draft", "both")
NUM_STREAMS = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """What was timed of one answer: everything after its first message."""

    seconds: float
    num_tokens: int
    usage: pb.Usage


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens over the time they took."""

    tokens_per_second: float
    tokens_per_pass: float = 1.0


@dataclass(slots=True)
class Report:
    machine: str
    cores: int
    tokens: int
    rates: dict[str, Rate] = field(default_factory=dict)

    def ratio(self, name: str, base: str) -> float:
        return self.rates[name].tokens_per_second / self.rates[base].tokens_per_second

    def lines(self) -> list[str]:
        width = max(map(len, self.rates))
        table = [
            f"{name:{width}}  {rate.tokens_per_second:7.1f} tok/s  {rate.tokens_per_pass:5.2f} tokens per pass"
            for name, rate in self.rates.items()
        ]
        return [f"{self.machine}, {self.cores} cores, {self.tokens} tokens an answer", *table, *self._ratios()]

    def _ratios(self) -> list[str]:
        faster = max(("transformers bfloat16", "transformers float32"), key=lambda n: self.rates[n].tokens_per_second)
        pairs = [
            ("plain chat", faster, 1.2),
            ("ngram copy", "plain copy", 1.8),
            (f"plain chat x{NUM_STREAMS}", "plain chat", 3.0),
        ]
        if "draft chat" in self.rates:
            better = max(("ngram copy", "draft copy"), key=lambda name: self.rates[name].tokens_per_second)
            pairs += [("draft chat", "plain chat", 1.3), ("both copy", better, 1.0)]
        return [f"{name} / {base}: {self.ratio(name, base):.2f} (at least {least})" for name, base, least in pairs]


def measure_transformers(model: Path, dtype: torch.dtype, tokens: int, repeats: int) -> Rate:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(num_cores())
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)

    def generate(chat: str, count: int) -> tuple[float, int]:
        """Seconds, and tokens generated."""
        messages = [{"role": "user", "content": chat}]
        prompt: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        started = time.perf_counter()
        output = network.generate(**prompt, max_new_tokens=count, do_sample=False)
        return time.perf_counter() - started, output.shape[1] - prompt["input_ids"].shape[1]

    def decode(chat: str) -> tuple[float, int]:
        """Of all tokens after the first."""
        (first, _), (whole, num_tokens) = generate(chat, 1), generate(chat, tokens)
        return whole - first, num_tokens - 1

    generate(CHATS[0], 8)
    best = [min(decode(chat) for _ in range(repeats)) for chat in CHATS]
    return Rate(sum(count for _, count in best) / sum(seconds for seconds, _ in best))


class Gateway:
    """Asks a running stack."""

    def __init__(self, address: str, tokens: int) -> None:
        self._address = address
        self._tokens = tokens

    async def ask(self, tenant: str, chat: str, grammar: exchange_pb2.Grammar | None = None) -> Answer:
        prompt = pb.Prompt(chat=pb.ChatMessages(messages=[pb.ChatMessage(role="user", content=chat)]))
        request = pb.GenerateRequest(prompt=prompt, temperature=0, max_tokens=self._tokens, grammar=grammar)
        async with open_channel(self._address) as channel:
            metadata = (("authorization", f"Bearer {tenant}"),)
            first = last = 0.0
            num_tokens = 0
            async for message in rpc.GenerationStub(channel).Generate(request, timeout=300, metadata=metadata):
                last = time.perf_counter()
                num_tokens += len(message.token_ids) if first else 0
                first = first or (last if message.token_ids else 0.0)
            return Answer(last - first, num_tokens, message.usage)

    async def ask_together(self, tenant: str, chats: Sequence[str]) -> Rate:
        started = time.perf_counter()
        answers = await asyncio.gather(*(self.ask(tenant, chat) for chat in chats))
        seconds = time.perf_counter() - started
        return Rate(sum(answer.usage.completion_tokens for answer in answers) / seconds)


async def measure_services(report: Report, of_tenant: dict[str, Gateway], repeats: int) -> None:
    for kind, chats in KINDS:
        best: dict[str, list[Answer]] = {tenant: [] for tenant in of_tenant}
        for chat in chats:
            runs = [
                {name: await gateway.ask(name, chat) for name, gateway in of_tenant.items()} for _ in range(repeats)
            ]
            for name in of_tenant:
                best[name].append(min((run[name] for run in runs), key=lambda answer: answer.seconds))
        report.rates |= {f"{name} {kind}": rate_of(answers) for name, answers in best.items()}
    many = [CHATS[index % len(CHATS)] for index in range(NUM_STREAMS)]
    rates = [await of_tenant["plain"].ask_together("plain", many) for _ in range(repeats)]
    report.rates[f"plain chat x{NUM_STREAMS}"] = max(rates, key=lambda rate: rate.tokens_per_second)


def rate_of(answers: Sequence[Answer]) -> Rate:
    usages = [answer.usage for answer in answers]
    return Rate(
        sum(answer.num_tokens for answer in answers) / sum(answer.seconds for answer in answers),
        sum(usage.completion_tokens for usage in usages) / sum(usage.num_passes for usage in usages),
    )


@contextmanager
def services(model: Path, draft_model: Path | None, tokens: int) -> Iterator[dict[str, Gateway]]:
    """The gateway that each tenant asks: one with both cores for its verifier, one with a drafter."""
    entries = [
        {"name": name, "key_sha256": [hashlib.sha256(name.encode()).hexdigest()], "proposers": proposers}
        for name, proposers in TENANTS.items()
    ]
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        file = Path(folder) / "tenants.yaml"
        file.write_text(yaml.safe_dump({"tenants": entries}))
        plain = Gateway(start_stack(processes, single_machine(model, tenants=file)).gateway, tokens)
        of_tenant = {name: plain for name in TENANTS if name not in DRAFT_TENANTS}
        if draft_model is not None:
            drafting = start_stack(processes, single_machine(model, draft_model, tenants=file))
            of_tenant |= dict.fromkeys(DRAFT_TENANTS, Gateway(drafting.gateway, tokens))
        yield of_tenant


def machine() -> str:
    """The processor by its own name, if the system tells it, and whether it multiplies bfloat16."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    bfloat16 = ", avx512_bf16" if any("avx512_bf16" in line for line in lines) else ""
    return (names[0] if names else platform.machine()) + bfloat16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--draft-model", type=Path, default=find_draft_model(DRAFTERS))
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = Report(machine(), num_cores(), options.tokens)
    for dtype in ("bfloat16", "float32"):
        rate = measure_transformers(options.model, getattr(torch, dtype), options.tokens, options.repeats)
        report.rates[f"transformers {dtype}"] = rate
    with services(options.model, options.draft_model, options.tokens) as of_tenant:
        asyncio.run(measure_services(report, of_tenant, options.repeats))
    print(json.dumps(asdict(report), indent=2) if options.json else "\n".join(report.lines()))


if __name__ == "__main__":
    main()
