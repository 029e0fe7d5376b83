"""Times the whole verify step in one CUDA graph against its floor: `python -m bench.bench_verify`.

Random weights: the time does not depend on them. Floor = (weights + KV bytes) / copy bandwidth of the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.timing import captured, copy_bandwidth, graph_microseconds
from slipstream.cache.kv_cache import KVCache
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu import linear as gpu_linear
from slipstream.kernels.gpu.check_table import pack_checks
from slipstream.kernels.gpu.verification import verify_table
from slipstream.layers.linear import Linear
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

BLOCK_SIZE = 16
COMMON = {"model_type": "llama", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
SMOLLM2 = ModelConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64,
    tie_word_embeddings=True, **COMMON,
)  # fmt: skip
LLAMA_8B = ModelConfig(
    vocab_size=49152, hidden_size=4096, intermediate_size=14336, num_layers=32, num_heads=32, num_kv_heads=8,
    head_dim=128, **COMMON,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    config: ModelConfig
    sequences: int
    tokens: int  # of each sequence
    context: int
    target: str

    @property
    def shape(self) -> str:
        return f"{self.sequences} x {self.tokens} over {self.context}"


STEPS = (
    Step("SmolLM2-135M", SMOLLM2, 1, 5, 1024, "0.9 ms"),
    Step("SmolLM2-135M", SMOLLM2, 32, 5, 256, ""),
    Step("8B shape", LLAMA_8B, 1, 1, 1024, ""),
    Step("8B shape", LLAMA_8B, 1, 5, 1024, "1.32 x floor"),
    Step("8B shape", LLAMA_8B, 32, 5, 256, "1.9 x floor"),
    Step("8B shape", LLAMA_8B, 1, 2048, 2048, "55 % of matrix rate"),
)


def random_model(config: ModelConfig) -> LlamaModel:
    with torch.device("cuda"):
        model = LlamaModel(config, torch.bfloat16)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.02)
    return model


def step_of(model: LlamaModel, step: Step) -> tuple[Callable[[], object], int]:
    """The step as a function of no arguments, and the bytes of keys and values that it reads."""
    config = model.config
    per_sequence = -(-step.context // BLOCK_SIZE)
    cache = KVCache(config, step.sequences * per_sequence, BLOCK_SIZE, torch.bfloat16, torch.device("cuda"))
    decoding = step.tokens <= 32
    chunks = [
        Chunk(
            list(range(step.tokens)),
            step.context - step.tokens,
            range(i * per_sequence, (i + 1) * per_sequence),
            step.tokens if decoding else 1,
        )
        for i in range(step.sequences)
    ]
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, torch.device("cuda"))
    draft = tuple(DraftToken(token, LawKind.ONE_HOT) for token in range(step.tokens - 1 if decoding else 0))
    check = SequenceCheck(draft=draft, base=step.context, sampling=SamplingParams(), mode=VerificationMode.COUPLED)
    table = pack_checks([check] * step.sequences, config.vocab_size, torch.device("cuda"))
    kv_bytes = 4 * config.num_layers * step.sequences * step.context * config.num_kv_heads * config.head_dim

    def run() -> torch.Tensor:
        return verify_table(model.logits(model(batch, cache)), table)

    return run, kv_bytes


def products_alone(model: LlamaModel, num_tokens: int) -> Callable[[], object]:
    """The model's matrix products through the library, one after another, and nothing else."""
    weights = [module.weight for module in model.modules() if isinstance(module, Linear)]
    weights.append(model.embedding if model.head is None else model.head)
    inputs = {w.shape[1]: torch.randn(num_tokens, w.shape[1], device="cuda", dtype=w.dtype) for w in weights}
    return lambda: [torch.nn.functional.linear(inputs[w.shape[1]], w) for w in weights]


def matrix_rate(size: int = 8192) -> float:
    """bf16 operations per second of a large product on random data."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / (graph_microseconds(captured(lambda: a @ b), 10) * 1e-6)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="steps whose shape contains this, as in '1 x 5 over'")
    parser.add_argument("--no-overlap", action="store_true", help="start each kernel after the one before it ended")
    parser.add_argument("--library-products", action="store_true", help="no products of our own")
    parser.add_argument("--wide-products", action="store_true", help="wide products of few rows are our own too")
    parser.add_argument("--nothing-near", action="store_true", help="no weights fetched before the inputs are there")
    arguments = parser.parse_args()
    if arguments.no_overlap:
        launch.overlap_options = lambda: {"OVERLAP": False}
    if arguments.library_products:
        gpu_linear.suits = lambda x, weight: False
    if arguments.wide_products:
        gpu_linear.WIDEST = 1 << 30
    if arguments.nothing_near:
        gpu_linear.NEAR_LINES = 0
    bandwidth, rate = copy_bandwidth(), matrix_rate()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s, bf16 {rate / 1e12:.0f} TFLOP/s")
    print(f"{'model':<14}{'step':<20}{'ms':>8}{'floor':>8}{'x floor':>9}{'products':>10}{'of rate':>9}  target")
    model, config = None, None
    for step in STEPS:
        if arguments.only not in step.shape:
            continue
        if step.config is not config:
            model = None  # two models at a time are one too many
            model, config = random_model(step.config), step.config
        assert model is not None
        run, kv_bytes = step_of(model, step)
        time = graph_microseconds(captured(run)) / 1e3
        products = graph_microseconds(captured(products_alone(model, step.sequences * step.tokens))) / 1e3
        head, layers = config.vocab_size * config.hidden_size, sum(p.numel() for p in model.layers.parameters())
        floor = (2 * (head + layers) + kv_bytes) / bandwidth * 1e3
        share = 2 * layers * step.sequences * step.tokens / (time * 1e-3) / rate  # head and attention not counted
        figures = f"{time:>8.3f}{floor:>8.3f}{time / floor:>9.2f}{products:>10.3f}{share:>9.0%}"
        print(f"{step.name:<14}{step.shape:<20}{figures}  {step.target}", flush=True)


if __name__ == "__main__":
    main()
