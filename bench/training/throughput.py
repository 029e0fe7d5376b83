"""How fast a target writes chats in lockstep and a draft trains on one GPU, on random weights of a real shape.

python bench/training/throughput.py            # SmolLM2-135M's shape; prints figures and floors
python bench/training/throughput.py --tiny     # anywhere, to try the script
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from slipstream.models.config import ModelConfig, RopeConfig
from slipstream.models.llama import LlamaModel
from slipstream.training.draft_lm import DraftTraining
from slipstream.training.generate import Chats, sample
from slipstream.training.lockstep import DenseCache, decode
from slipstream.training.settings import DraftSettings


def shape(tiny: bool) -> ModelConfig:
    sizes = (320, 64, 128, 3, 4, 2, 16) if tiny else (49152, 576, 1536, 30, 9, 3, 64)
    vocab, hidden, inner, layers, heads, kv_heads, head_dim = sizes
    return ModelConfig(
        model_type="llama",
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=1e5),
        tie_word_embeddings=True,
    )


def random_model(config: ModelConfig, device: torch.device) -> LlamaModel:
    with torch.device(device):
        model = LlamaModel(config, torch.bfloat16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.04) if parameter.dim() == 2 else torch.nn.init.ones_(parameter)
    return model.eval()


def milliseconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Median wall time of `work`, the device idle before and after."""
    times = []
    for _ in range(repeats + 2):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times[2:])[repeats // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def writing(model: LlamaModel, batch: int, length: int, device: torch.device) -> None:
    cache = DenseCache(model, batch, length)
    tokens = torch.zeros(batch, dtype=torch.long, device=device)
    temperatures = torch.ones(batch, device=device)
    generator = torch.Generator(device)
    kv_bytes = cache.layer(0, 0).numel() * 2 * model.config.num_layers
    for position in (length // 8, length // 2, length - 1):
        step = milliseconds(lambda: decode(model, tokens, position, cache), device)  # noqa: B023
        floor = kv_bytes * (position + 1) / 4.3e9
        print(f"decode batch {batch} position {position}: {step:.2f} ms (KV bytes at 4.3 TB/s: {floor:.2f} ms)")
    hidden = torch.randn(batch, model.config.hidden_size, dtype=torch.bfloat16, device=device)
    step = milliseconds(lambda: sample(model.logits(hidden), temperatures, generator), device)
    print(f"logits and sampling, batch {batch}: {step:.2f} ms")


def training(model: LlamaModel, settings: DraftSettings, length: int, device: torch.device) -> None:
    rows = 4 * settings.batch
    token_ids = torch.randint(0, model.config.vocab_size, (rows, length), dtype=torch.int32)
    answers = torch.rand(rows, length) < 0.6
    start = time.perf_counter()
    run = DraftTraining(model, torch.arange(settings.draft_vocab_size), Chats(token_ids, answers), settings)
    chosen = torch.arange(settings.batch, device=device)
    run.train_step(chosen)
    _wait(device)
    first = time.perf_counter() - start
    step = milliseconds(lambda: run.train_step(chosen), device)
    tokens = settings.batch * length
    print(f"train step, compiled={settings.compiled}: {step:.1f} ms, {tokens / step:.0f}k tok/s (first {first:.1f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    tiny = parser.parse_args().tiny
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}", flush=True)
    model = random_model(shape(tiny), device)
    batches, length = ((4,), 64) if tiny else ((2048, 4096), 768)
    for batch in batches:
        writing(model, batch, length, device)
    sizes = {"batch": 4, "draft_vocab_size": 128, "num_layers": 2} if tiny else {"batch": 64}
    for compiled in (False, True):
        training(model, DraftSettings(compiled=compiled, **sizes), length, device)


if __name__ == "__main__":
    main()
