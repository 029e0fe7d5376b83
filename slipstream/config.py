"""What an engine needs to know before it starts. The one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MAX_THREADS = 1024  # more than any machine has cores; a slip of the finger would use up the system's threads
WIDE_SHAPES = ("8b", "70b")  # see slipstream/models/widen.py
ALL_REDUCE_METHODS = ("symmetric", "group")  # see slipstream/parallel/all_reduce.py
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """One engine: a model, its KV cache and its batch limits. Raises ValueError naming field and value."""

    model: Path  # Hugging Face folder, a .gguf file or a stored draft
    target_model: Path | None = None  # of a stored draft: where embedding and head are; None = found by name
    device: str = "cpu"
    dtype: str = "bfloat16"
    max_model_len: int = 0  # positions; 0 = what the model allows
    block_size: int = 16  # tokens per KV block
    num_kv_blocks: int = 0  # 0 = from kv_memory_bytes
    kv_memory_bytes: int = 512 << 20
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512  # token budget of one step
    num_threads: int = 1  # CPU threads of the math library
    features: Path | None = None  # verifier: an EAGLE-3 head, whose features are made beside the pass for drafters
    widen: str = ""  # copies the model into this larger shape on load: same text, the large one's cost; empty = not
    cuda_graphs: bool = True  # on a GPU: replays captured steps; off changes nothing but speed
    graph_memory_bytes: int = 2 << 30  # of the captured steps; when it is used up, steps are padded more

    tensor_parallel_size: int = 1  # processes that hold a part of the model each
    all_reduce: str = "symmetric"  # how GPUs of one machine add up: by one another's memory, or "group" = NCCL

    def __post_init__(self) -> None:
        for name in ("model", "target_model", "features"):
            path = getattr(self, name)
            if path is not None and not path.exists():
                raise ValueError(f"{name} is {path}, which does not exist; give a folder or a .gguf file")
            if path is not None and path.is_file() and path.suffix != ".gguf":
                raise ValueError(f"{name} is {path}, a file; give a folder or a .gguf file")
        if self.widen and self.widen not in WIDE_SHAPES:
            raise ValueError(f"widen is {self.widen!r}; it must be one of {', '.join(WIDE_SHAPES)}, or empty")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")
        if self.all_reduce not in ALL_REDUCE_METHODS:
            methods = ", ".join(ALL_REDUCE_METHODS)
            raise ValueError(f"all_reduce is {self.all_reduce!r}; it must be one of {methods}")
        if self.tensor_parallel_size > 1 and self.device not in ("cpu", "cuda"):
            raise ValueError(
                f"device is {self.device!r} and tensor_parallel_size {self.tensor_parallel_size}; "
                "give cpu or cuda: each rank takes the GPU of its number"
            )
        counts = ("block_size", "max_num_seqs", "max_num_batched_tokens", "num_threads", "tensor_parallel_size")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= 1")
        if self.num_threads > MAX_THREADS:
            raise ValueError(f"num_threads is {self.num_threads}; it must be <= {MAX_THREADS}")
        for name in ("max_model_len", "num_kv_blocks", "kv_memory_bytes", "graph_memory_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Torchrun:
    """Which of the processes this is that torchrun has started."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def torchrun() -> Torchrun | None:
    """None for a process that torchrun has not started."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    names = {"rank": "RANK", "size": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
    return Torchrun(**{name: int(os.environ[variable]) for name, variable in names.items()})


def default_model_dir() -> Path:
    """Where `slipstream model fetch` keeps checkpoints: $SLIPSTREAM_MODELS, else ~/.cache/slipstream/models."""
    return Path(os.environ.get("SLIPSTREAM_MODELS", Path.home() / ".cache" / "slipstream" / "models"))


def runtime_dir() -> Path:
    """Where running services are written down: $XDG_RUNTIME_DIR/slipstream, else ~/.cache/slipstream/run."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "slipstream" if base else Path.home() / ".cache" / "slipstream" / "run"


SPIN_COUNT = "20000"  # rounds, less than half a millisecond: to the next product
HUGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"  # what is smaller shares the heap's pages


def service_environment(num_threads: int) -> dict[str, str]:
    """The environment of a service that shares its CPU with others.

    Without the wait policy, math threads that spin while another process runs make a 22 ms step take near a second;
    without a little spinning, waking them for every product makes two threads slower than one. With weights in huge
    pages a step takes an eighth less; other C libraries than glibc take no notice.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", HUGE_PAGES)
    own = {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": str(num_threads), "GLIBC_TUNABLES": tunables}
    own["GOMP_SPINCOUNT"] = os.environ.get("GOMP_SPINCOUNT", SPIN_COUNT)
    return {**os.environ, **own}


def scratch_environment(folder: Path) -> dict[str, str]:
    """The environment of a tool whose temporary files shall lie in `folder`."""
    return {**os.environ, "TMPDIR": str(folder)}
