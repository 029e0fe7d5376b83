"""What a GPU is to be asked, step by step: each a command with a time limit. Runs nothing, imports no torch.

A step needs no network, prints its table last, and imports nothing that a bare Python with torch and pytest lacks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

KERNEL_TESTS = ("tests/kernels/gpu", "tests/kernels/test_noise.py")
# takes no setting from pyproject.toml, which asks for plugins
PYTEST = (
    *("-m", "pytest", "-c", "/dev/null", "--rootdir=.", "--import-mode=importlib", "-q", "-rf"),
    *("--tb=short", "-p", "no:cacheprovider", "-W", "ignore"),
)
SANITIZER = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
EXACT_ALLOCATIONS = ("env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")  # no block has room beyond a tensor; graphs forbid it
SANITIZED_KERNELS = (
    "test_rms_norm or test_rotary or test_low_rank or test_token or test_linear or (test_attention and splits) "
    "or (test_verification and not compiled) or test_row_limits"
)
NEW_KERNELS = (
    "test_verification or test_row_limits or test_laws or test_graph_tellings or test_attention or test_linear"
)
SANITIZED_RUNNER = "test_graph_runner and (limited or ruled or greedy)"

LOGS = "LOGS"  # stands in a command for the folder of the logs

# Real services on cores that a GPU step leaves alone; the model is to lie in REAL_MODEL.
REAL_MODEL = "/tmp/slipstream-model/smollm2-135m-instruct"
EIGHT_CORES = ("env", "CUDA_VISIBLE_DEVICES=", "taskset", "-c", "0-7")
OTHER_CORES = ("env", "CUDA_VISIBLE_DEVICES=", "taskset", "-c", "8-13")
TARGET_8B = (
    f"--model {REAL_MODEL} --device cuda --widen 8b --max-model-len 1024 "
    "--kv-memory-mib 8000 --drafter-kv-memory-mib 3000"
)


@dataclass(frozen=True, slots=True)
class Step:
    seconds: int  # at most
    command: tuple[str, ...]


def python(seconds: int, *arguments: str) -> Step:
    return Step(seconds, (sys.executable, *arguments))


def on_cores(seconds: int, cores: tuple[str, ...], module: str, *arguments: str) -> Step:
    return Step(seconds, (*cores, sys.executable, "-m", module, "--model", REAL_MODEL, *arguments))


def serving(seconds: int, name: str, arguments: str) -> Step:
    """One target of an 8B model's price, and who drafts for it; figures beside the logs, for bench.simulate."""
    told = f"--minutes {(seconds - 20) / 60:.2f} --json {LOGS}/{name}.json"
    return python(seconds, "-m", "bench.bench_serving", *f"{TARGET_8B} {told} {arguments}".split())


def killing(seconds: int, arguments: str) -> Step:
    """A drafter process is killed under 32 streams and started again."""
    return python(seconds, "-m", "bench.kill_drafter", *f"{TARGET_8B} --json {LOGS}/kill.json {arguments}".split())


DRAFT_LM = "--draft-model drafters/smollm2-135m-instruct-draft"
ONE_PROCESS = "--placement one_process"
ON_CORES = "--drafter-device cpu --drafter-threads 4 --drafter-cores 8-11 --streams 1,8,32"
CONTROLLER = "--device cuda --widen 8b --minutes 2.5 --json build/gpu_check/controller.json"
TRACED = f"--temperatures 0 --fan-out 0 --seconds 1.5 --trace {LOGS}/trace.json"
LONE = "--streams 1 --proposers draft_model"
ALL_LOADS = "--proposers draft_model,ngram --ahead-up-to 1 --drafter-options=--draft-step=separate"
WIDE = "--draft-tokens 7 --fan-out 16 --drafter-options=--loop-steps=8"
LOADS = "--streams 8,32,64 --proposers draft_model --fan-out 0"  # one GPU: nobody runs ahead of several streams
TWO_GPUS = "--round-bits 4 --drafter-device cuda:1 --streams 1,32 --seconds 3"
SANITIZED = (*SANITIZER, sys.executable, *PYTEST, "-m", "not gpu")
STEPS = {
    "tests": python(75, *PYTEST, "-n", "14", "--maxfail=40", *KERNEL_TESTS),
    "tests_again": python(45, *PYTEST, "-n", "14", "--maxfail=40", KERNEL_TESTS[0], "-k", NEW_KERNELS),
    "memcheck": Step(60, (*EXACT_ALLOCATIONS, *SANITIZED, "-k", SANITIZED_KERNELS, KERNEL_TESTS[0])),
    "memcheck_runner": Step(60, (*SANITIZED, "-k", SANITIZED_RUNNER, KERNEL_TESTS[0])),
    "step": python(65, "-m", "bench.bench_step"),
    "step_parts": python(40, "-m", "bench.step_parts"),
    "verification_profile": python(30, "-m", "bench.profile_verification"),
    "verification": python(25, "-m", "bench.bench_kernels", "--only", "verify"),
    "attention": python(20, "-m", "bench.bench_kernels", "--only", "attention"),
    "kernels": python(60, "-m", "bench.bench_kernels"),
    "draft_tests": python(
        60,
        *PYTEST,
        "-n",
        "8",
        KERNEL_TESTS[0],
        "-k",
        "_loop or draft_choice or copy_blocks or token_rows",
    ),
    "draft_step_tests": python(75, *PYTEST, "-n", "9", f"{KERNEL_TESTS[0]}/test_draft_step.py"),
    "draft_step": python(90, "-m", "bench.bench_draft_step"),
    "draft_loop": python(120, "-m", "bench.bench_draft"),
    "decode": python(60, "-m", "bench.bench_decode"),
    "decode_apart": python(60, "-m", "bench.bench_decode", "--apart"),
    "decode_trace": python(60, "-m", "bench.bench_decode", "--trace", "--tokens", "128"),
    "prefill": python(60, "-m", "bench.bench_decode", "--prefill", "8192", "--tokens", "400"),
    "verify": python(50, "-m", "bench.bench_verify"),
    "verify_apart": python(40, "-m", "bench.bench_verify", "--no-overlap"),
    "verify_library": python(40, "-m", "bench.bench_verify", "--library-products"),
    "verify_not_near": python(30, "-m", "bench.bench_verify", "--only", "1 x 5 over", "--nothing-near"),
    "verify_wide": python(30, "-m", "bench.bench_verify", "--only", "1 x 5 over", "--wide-products"),
    "sweep_attention": python(40, "-m", "bench.sweep_attention"),
    "linear": python(60, "-m", "bench.sweep_linear"),
    "linear_32": python(35, "-m", "bench.sweep_linear", "--rows", "32", "--only", "qkv", "o", "down"),
    "serving": serving(150, "serving", f"{ONE_PROCESS} {DRAFT_LM} {ALL_LOADS} --seconds 2.5"),
    "serving_wide": serving(80, "serving_wide", f"{ONE_PROCESS} {DRAFT_LM} {LONE} {WIDE} --modes coupled --seconds 3"),
    "serving_loads": serving(100, "serving_loads", f"{ONE_PROCESS} {DRAFT_LM} {LOADS} --seconds 2.5"),
    "serving_auto": serving(100, "serving_auto", f"{ONE_PROCESS} {DRAFT_LM} --proposers auto --temperatures 0"),
    "serving_rounded": serving(110, "serving_rounded", f"{ONE_PROCESS} --round-bits 4 {LONE} --seconds 3"),
    "serving_rounded_loads": serving(
        130, "serving_rounded_loads", f"{ONE_PROCESS} --round-bits 4 {LOADS} --seconds 2.5"
    ),
    "serving_separate": serving(80, "serving_separate", f"{DRAFT_LM} --temperatures 0 --seconds 2.5"),
    "serving_cores": serving(70, "serving_cores", f"{DRAFT_LM} {ON_CORES} --temperatures 0 --seconds 2.5"),
    "serving_kill": killing(60, DRAFT_LM),
    "serving_trace": serving(75, "serving_trace", f"{ONE_PROCESS} {DRAFT_LM} {TRACED} --streams 1"),
    "serving_trace_32": serving(75, "serving_trace_32", f"{ONE_PROCESS} {DRAFT_LM} {TRACED} --streams 32"),
    # two GPUs
    "tensor_parallel": python(240, "-m", "bench.bench_tp"),
    "serving_two_gpus": serving(120, "serving_two_gpus", TWO_GPUS),
    "serving_two_ranks": serving(
        120, "serving_two_ranks", f"{ONE_PROCESS} --round-bits 4 --tensor-parallel-size 2 --streams 1,32 --seconds 3"
    ),
    "controller_cores": on_cores(
        500, EIGHT_CORES, "bench.bench_controller", "--threads=6", "--minutes=7.5", "--json=build/controller_cores.json"
    ),
    "controller": python(170, *f"-m bench.bench_controller --model {REAL_MODEL} {CONTROLLER}".split()),
    "phases_cores": on_cores(150, OTHER_CORES, "bench.phases", "--threads", "4"),
    "fairness_cores": on_cores(240, OTHER_CORES, "bench.fairness", "--seconds", "60"),
}
