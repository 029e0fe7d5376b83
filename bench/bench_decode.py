"""Plain decoding through verifier and gateway as processes, measured at the client: `python -m bench.bench_decode`.

Random weights, widened: the rate does not depend on them. `--device cpu` with a small shape tries the script out.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import grpc

from bench.step_gaps import table
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc
from tests.tiny_models import make_checkpoint

TENANTS = """\
tenants:
  - {name: public, anonymous: true, proposers: [none], max_tokens: 4096, max_concurrent: 64}
"""
PROMPT_TOKENS = 64
DECODING_SECONDS = 0.4  # before a prompt comes in between
TRACE = Path("build/trace.json")


@contextmanager
def service(name: str, *options: str, seconds: float) -> Iterator[str]:
    """The address of a service, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", name, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        start = time.monotonic()
        assert process.stdout is not None
        for line in process.stdout:
            print(f"  {name}: {line.rstrip()}", flush=True)
            if line.startswith("READY"):
                print(f"  {name} ready after {time.monotonic() - start:.1f} s", flush=True)
                yield line.split()[2]
                return
        raise RuntimeError(f"{name} ended with {process.wait(seconds)}")
    finally:
        process.terminate()
        process.wait(10)


async def ask(
    stub: rpc.GenerationStub, index: int, num_tokens: int, prompt_tokens: int = PROMPT_TOKENS
) -> list[tuple[float, int]]:
    """When how many tokens came."""
    ids = [3 + (index * 7 + k) % 200 for k in range(prompt_tokens)]
    request = pb.GenerateRequest(
        prompt=pb.Prompt(token_ids=pb.TokenIds(ids=ids)), temperature=0.0, max_tokens=num_tokens, ignore_eos=True
    )
    return [(time.perf_counter(), len(message.token_ids)) async for message in stub.Generate(request, timeout=120)]


async def measure(address: str, streams: int, num_tokens: int) -> None:
    """Tokens a second while all streams run: from the last one's first token to the first one's last."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = rpc.GenerationStub(channel)
        arrivals = await asyncio.gather(*(ask(stub, i, num_tokens) for i in range(streams)))
    start, end = max(stream[0][0] for stream in arrivals), min(stream[-1][0] for stream in arrivals)
    count = sum(n for stream in arrivals for at, n in stream if start < at <= end)
    total = sum(n for stream in arrivals for _, n in stream)
    rate = count / (end - start)
    print(f"{streams:>3} streams: {rate:.1f} tok/s, {1e3 * streams / rate:.3f} ms a token ({total} tokens)", flush=True)


async def measure_beside_prefill(address: str, num_tokens: int, prompt_tokens: int, prompt: int) -> None:
    """Time per token of 8 streams before, while and after another one's prompt is computed, no cached one."""
    streams = 8
    async with grpc.aio.insecure_channel(address) as channel:
        stub = rpc.GenerationStub(channel)
        decoding = asyncio.gather(*(ask(stub, i, num_tokens) for i in range(streams)))
        await asyncio.sleep(DECODING_SECONDS)
        began = time.perf_counter()
        answer = await ask(stub, streams + prompt, 1, prompt_tokens)
        ended = answer[-1][0]
        arrivals = await decoding
    alone = [gap for at, gap in token_gaps(arrivals) if at < began or at > ended + DECODING_SECONDS / 4]
    beside = [gap for at, gap in token_gaps(arrivals) if began < at - gap and at < ended]
    if not beside or not alone:
        raise RuntimeError(f"no token came beside the prompt's {ended - began:.2f} s; ask for more of them")
    normal, slowed = statistics.mean(alone), statistics.mean(beside)
    print(
        f"{streams} streams, {prompt_tokens} prompt tokens in {ended - began:.2f} s: {normal * 1e3:.2f} ms a token"
        f" alone, {slowed * 1e3:.2f} beside: {slowed / normal:.2f} x (longest {max(beside) * 1e3:.1f} ms)",
        flush=True,
    )


def token_gaps(arrivals: list[list[tuple[float, int]]]) -> Iterator[tuple[float, float]]:
    """When each message came, and how long each of its tokens took since the one before."""
    for stream in arrivals:
        for (before, _), (at, count) in pairwise(stream):
            yield at, (at - before) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widen", default="8b", help="empty: the small model as it is")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--trace", action="store_true", help="write build/trace.json, and say where the gaps go")
    parser.add_argument("--apart", action="store_true", help="launch each step once the one before it has ended")
    parser.add_argument("--prefill", type=int, default=0, help="a prompt of so many tokens beside 8 decoding streams")
    arguments = parser.parse_args()
    max_model_len = 1024 + arguments.prefill
    with tempfile.TemporaryDirectory() as folder:
        model = make_checkpoint(
            Path(folder) / "model", vocab_size=49152, layers=2, hidden=576, intermediate_size=1536,
            num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
            max_position_embeddings=max_model_len,
        )  # fmt: skip
        tenants = Path(folder) / "tenants.yaml"
        tenants.write_text(TENANTS)
        options = ["--model", str(model), "--device", arguments.device, "--widen", arguments.widen]
        options += ["--max-num-seqs", "32", "--max-model-len", str(max_model_len), "--log-level", "warning"]
        options += ["--max-num-batched-tokens", "512" if arguments.prefill else "64"]
        options += ["--kv-memory-mib", "6000" if arguments.device != "cpu" else "64"]
        front = ["--tenants", str(tenants), "--log-level", "warning"]
        options += ["--trace", str(TRACE)] if arguments.trace else []
        options += ["--no-launch-ahead"] if arguments.apart else []
        with (
            service("verifier_svc", *options, seconds=90) as verifier,
            service("gateway", *front, "--verifier", verifier, seconds=30) as gateway,
        ):
            if arguments.prefill:
                for prompt in range(2):
                    asyncio.run(measure_beside_prefill(gateway, arguments.tokens, arguments.prefill, prompt))
            else:
                for streams in (1, 1, 32, 32):
                    asyncio.run(measure(gateway, streams, arguments.tokens))
    if arguments.trace:
        print(*table(TRACE), sep="\n", flush=True)


if __name__ == "__main__":
    main()
