"""Which services a measurement of serving starts, as a command line says it. Measures nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.live_services import Drafter, Services
from gateway.policy.tenants import DRAFT_MODEL, EAGLE3, PARD
from launcher.topology import PLACEMENTS, SEPARATE
from slipstream.config import default_model_dir


def add_service_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    for name in ("--draft-model", "--eagle3", "--pard"):
        parser.add_argument(name, type=Path, help="folder; without it this proposer is left out")
    parser.add_argument("--round-bits", type=int, default=0, help="draft with the target, rounded to so many bits")
    parser.add_argument("--placement", choices=PLACEMENTS, default=SEPARATE)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--drafter-device", default="", help="by default the verifier's")
    parser.add_argument("--drafter-cores", default="", help="those of a drafter on a CPU, as taskset names them")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--widen", default="")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, help="GPUs of the verifier")
    parser.add_argument("--kv-memory-mib", type=int, default=512)
    parser.add_argument("--drafter-kv-memory-mib", type=int, default=512)
    parser.add_argument("--max-model-len", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of the verifier")
    parser.add_argument("--drafter-threads", type=int, default=1)
    parser.add_argument("--drafter-options", default="", help="any others of the drafter, in one word")
    parser.add_argument("--trace", type=Path)


def asked_services(asked: argparse.Namespace, scratch: Path, max_num_seqs: int) -> Services:
    """`scratch`: an empty folder, for a draft model that is made."""
    is_rounded = asked.round_bits > 0
    draft_model = rounded(asked.model, asked.round_bits, scratch) if is_rounded else asked.draft_model
    folders = {DRAFT_MODEL: draft_model, EAGLE3: asked.eagle3, PARD: asked.pard}
    drafters = tuple(
        Drafter(
            model=path,
            proposer=name,
            device=asked.drafter_device or asked.device,
            num_threads=asked.drafter_threads,
            cores=asked.drafter_cores,
            kv_memory_mib=asked.drafter_kv_memory_mib,
            options=tuple(asked.drafter_options.split()),
        )
        for name, path in folders.items()
        if path
    )
    return Services(
        model=asked.model, device=asked.device, dtype=asked.dtype, widen=asked.widen, num_threads=asked.threads,
        kv_memory_mib=asked.kv_memory_mib, max_model_len=asked.max_model_len, max_num_seqs=max_num_seqs,
        tensor_parallel_size=asked.tensor_parallel_size, trace=asked.trace, drafters=drafters,
        placement=asked.placement,
    )  # fmt: skip


def rounded(model: Path, bits: int, folder: Path) -> Path:
    """Its greedy tokens agree with the model's about three times in four at 4 bits."""
    from slipstream.models.derive import round_weights  # torch, which clients do without

    made = folder / f"{model.name}-{bits}-bits"
    round_weights(model, made, bits=bits)
    return made
