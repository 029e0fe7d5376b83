"""Plain decoding through verifier and gateway as processes, measured at the client: `python -m bench.bench_decode`.

Random weights, widened: the rate does not depend on them. `--device cpu` with a small shape tries the script out.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc
from tests.tiny_models import make_checkpoint

TENANTS = """\
tenants:
  - {name: public, anonymous: true, proposers: [none], max_tokens: 4096, max_concurrent: 64}
"""
PROMPT_TOKENS = 64


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


async def ask(stub: rpc.GenerationStub, index: int, num_tokens: int) -> list[tuple[float, int]]:
    """When how many tokens came."""
    ids = [3 + (index * 7 + k) % 200 for k in range(PROMPT_TOKENS)]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widen", default="8b")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--trace", action="store_true", help="have the verifier write build/trace.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_checkpoint(
            Path(folder) / "model", vocab_size=49152, layers=2, hidden=576, intermediate_size=1536,
            num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=2048,
        )  # fmt: skip
        tenants = Path(folder) / "tenants.yaml"
        tenants.write_text(TENANTS)
        options = ["--model", str(model), "--device", arguments.device, "--widen", arguments.widen]
        options += [
            "--max-num-seqs",
            "32",
            "--max-num-batched-tokens",
            "64",
            "--max-model-len",
            "1024",
            "--log-level",
            "warning",
        ]
        options += ["--kv-memory-mib", "6000" if arguments.device != "cpu" else "64"]
        options += ["--trace", "build/trace.json"] if arguments.trace else []
        with (
            service("verifier_svc", *options, seconds=90) as verifier,
            service("gateway", "--verifier", verifier, "--tenants", str(tenants), seconds=30) as gateway,
        ):
            for streams in (1, 1, 32, 32):
                asyncio.run(measure(gateway, streams, arguments.tokens))


if __name__ == "__main__":
    main()
