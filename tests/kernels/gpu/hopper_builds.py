"""Builds every GPU kernel for Hopper without a GPU, in a process where nothing is interpreted; gives the PTX."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT = 110  # seconds
ATTENTION = "*bf16 *bf16 *bf16 *i64 *i64 *i64"
ATTENTION_SIZES = {"SHARING": 4, "HEAD_DIM": 128, "DIMS": 128, "BLOCK_SIZE": 16, "BLOCK_N": 64, "SEQUENCES": 32}
SIZES = {"TILES": 64, "CHUNKS": 64}
# name: (module:kernel, types of what is no constant, constants, warps)
BUILDS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "rms_norm": (
        "rms_norm:_rms_norm_kernel",
        "*bf16 " * 5 + "i32 i32 i32 i32 fp32",
        {"ADD": True, "BLOCK": 4096, "OVERLAP": True},
        8,
    ),
    "silu_mul": ("silu_mul:_silu_mul_kernel", "*bf16 *bf16 i32", {"BLOCK": 1024, "OVERLAP": True}, 4),
    "chain softmax": (
        "chain_softmax:_chain_softmax_kernel",
        "*bf16 *fp32 *i32 *bf16 *fp32 fp32 i32 i32 i32",
        {"BLOCK": 1024, "OWN_BLOCK": 4},
        4,
    ),
    "chain softmax backward": (
        "chain_softmax:_chain_softmax_backward_kernel",
        "*bf16 *fp32 *bf16 *fp32 *bf16 *fp32 fp32 i32 i32",
        {"BLOCK": 1024, "OWN_BLOCK": 4},
        4,
    ),
    "rotary": (
        "rotary:_rotary_write_kernel",
        "*bf16 *bf16 *bf16 *bf16 *i64 *bf16 *bf16 *bf16 i32 i32 i32 i32",
        {"HEAD_DIM": 96, "BLOCK": 128, "HEADS": 8, "NEAR": True, "OVERLAP": True},
        4,
    ),
    "rotary angles": (
        "rotary_angles:_rotary_angles_kernel",
        "*i64 *fp32 *bf16 *bf16",
        {"HALF": 48, "BLOCK": 64, "OVERLAP": True},
        1,
    ),
    "verify attention": (
        "attention:_paged_attention_kernel",
        f"{ATTENTION} *fp32 *fp32 i32 i32 fp32 i32 i32 i32",
        ATTENTION_SIZES | {"BLOCK_M": 32, "SPLIT": True, "PRECISION": "tf32", "NEAR": True, "OVERLAP": True},
        4,
    ),
    "prompt attention": (
        "attention:_paged_attention_kernel",
        f"{ATTENTION} *bf16 *bf16 i32 i32 fp32 i32 i32 i32",
        ATTENTION_SIZES | {"BLOCK_M": 128, "SPLIT": False, "PRECISION": "tf32", "NEAR": True, "OVERLAP": True},
        8,
    ),
    "fetch_words": ("fetch_words:_fetch_words_kernel", "*i32 *i32 i32", {"BLOCK": 512, "OVERLAP": True}, 4),
    "prepare_inputs": (
        "prepare_inputs:_prepare_inputs_kernel",
        "*i64 *i64 *i64 *i64 *i64 i32 i32 i32",
        {"BLOCK_SIZE": 16, "SEQUENCES": 32, "BLOCK": 128},
        4,
    ),
    "follow_up of few": (
        "follow_up:_follow_up_kernel",
        "*i32 " * 18 + "i32 i32 i32 i32",
        {
            "DRAFT_ID": 1,
            "POSITION": 2,
            "SEQUENCES": 2,
            "BRANCHES": 16,
            "DRAFTS": 8,
            "COLUMNS": 16,
            "BLOCK": 32,
            "COPIED": 1024,
        },
        4,
    ),
    "follow_up": (
        "follow_up:_follow_up_kernel",
        "*i32 " * 18 + "i32 i32 i32 i32",
        {
            "DRAFT_ID": 1,
            "POSITION": 2,
            "SEQUENCES": 32,
            "BRANCHES": 16,
            "DRAFTS": 8,
            "COLUMNS": 16,
            "BLOCK": 32,
            "COPIED": 1024,
        },
        4,
    ),
    "place tokens": (
        "token_rows:_place_tokens_kernel",
        "*i64 *i64 *i64 *i64 i32 i32",
        {"BLOCK_SIZE": 16, "BLOCK": 64, "OVERLAP": True},
        2,
    ),
    "copy blocks": ("copy_blocks:_copy_blocks_kernel", "*i32 *i32 i32 i32", {"BLOCK": 1024}, 4),
    "place loop": (
        "loop_rows:_place_loop_kernel",
        "*i32 " * 6 + "*i64 " * 7 + "i32 i32 i32 i32",
        {"STEPS": 8, "BLOCK": 128},
        2,
    ),
    "group tiles": (
        "draft_candidates:group_tiles_kernel",
        "*fp32 *i32 *i64 *i32 *i64 *i64 *fp32 i32 i32",
        {"TILE": 1024, "GROUP": 32, "WHOLE": True, "OVERLAP": True},
        4,
    ),
    "choose drafts": (
        "draft_choice:_choose_kernel",
        "*fp32 *i32 *i64 *i32 *i64 *i64 *fp32 *i32 *i64 i32 i32 i32",
        {"TILE": 1024, "GROUP": 32, "TILES": 16, "GROUPS": 64, "RANKED": 16, "NOISY": 16}
        | {"KEPT": 16, "OUTCOMES": 9, "OVERLAP": True},
        8,
    ),
    "merge": (
        "attention_merge:_merge_splits_kernel",
        "*fp32 *fp32 *i32 *i32 *bf16 i32 i32 i32 i32",
        {"HEAD_DIM": 128, "DIMS": 128, "BLOCK_N": 64, "SEQUENCES": 32, "AT_ONCE": 16, "OVERLAP": True},
        2,
    ),
    "statistics": (
        "row_statistics:_row_statistics_kernel",
        "*fp32 *i32 *fp32 *i32 i32 i32 i32 i32 i32",
        {"TILE": 1024, "OVERLAP": True},
        2,
    ),
    "sample": (
        "sampled_bracket:_sample_kernel",
        "*fp32 *i32 *fp32 *fp32 *i32 i32 i32 i32 i32 i32",
        {"TILES": 64, "OVERLAP": True},
        8,
    ),
    "candidates": (
        "candidates:_set_aside_kernel",
        "*fp32 *i32 *fp32 *fp32 *i32 *i32 *fp32 *fp32 i32 i32 i32 i32 i32",
        {"TILES": 64, "PARTS": 8, "CHUNK": 16384, "OVERLAP": True},
        4,
    ),
    "candidates bf16": (
        "candidates:_set_aside_kernel",
        "*bf16 *i32 *fp32 *fp32 *i32 *i32 *fp32 *bf16 i32 i32 i32 i32 i32",
        {"TILES": 64, "PARTS": 8, "CHUNK": 16384, "OVERLAP": True},
        4,
    ),
    "limits bf16": (
        "row_limits:_row_limits_kernel",
        "*bf16 *i32 *fp32 *i32 *fp32 *bf16 *fp32 i32 i32 i32 i32 i32",
        SIZES | {"OVERLAP": True},
        16,
    ),
    "linear": (
        "linear:_few_rows_linear_kernel",
        "*bf16 *bf16 *bf16 i32 i32 i32",
        {"ROWS": 16, "BLOCK_N": 64, "BLOCK_K": 128, "EVEN": True, "NEAR_LINES": 16, "OVERLAP": True},
        4,
    ),
    "low rank, down": (
        "low_rank:_project_down_kernel",
        "*bf16 *bf16 *i32 *i32 *bf16 i32 i32",
        {"ROWS": 16, "RANKS": 16, "BLOCK_K": 64, "OVERLAP": True},
        4,
    ),
    "low rank, up": (
        "low_rank:_add_up_kernel",
        "*bf16 *bf16 *bf16 *i32 *i32 i32 i32",
        {"ROWS": 16, "RANKS": 16, "BLOCK_N": 64, "OVERLAP": True},
        4,
    ),
    "limits": (
        "row_limits:_row_limits_kernel",
        "*fp32 *i32 *fp32 *i32 *fp32 *fp32 *fp32 i32 i32 i32 i32 i32",
        SIZES | {"OVERLAP": True},
        16,
    ),
    "kept": (
        "kept_statistics:_kept_statistics_kernel",
        "*fp32 *i32 *fp32 *i32 *fp32 i32 i32 i32 i32",
        {"SEARCHED": True, "TILE": 4096, "TILES": 64, "OVERLAP": True},
        8,
    ),
    "decide": (
        "decided_rows:_decide_rows_kernel",
        "*i32 *fp32 *i32 *fp32 *i32 *i32 *fp32 i32 i32",
        {"LIMITED": True, "TILES": 64, "OVERLAP": True},
        1,
    ),
    "second look": (
        "second_look:_second_look_kernel",
        "*fp32 *i32 *i32 *i32 *i32 *fp32 *fp32 *fp32 *i32 i32 i32 i32 i32 i32 i32",
        {"LIMITED": True, "MAX_ROWS": 8, "TILE": 1024, "OVERLAP": True},
        2,
    ),
    "token mask": ("token_mask:_mask_tokens_kernel", "*fp32 *i32 *i32 i32 i32 i32", {"TILE": 4096}, 8),
    "token rules": (
        "token_rules:_apply_token_rules_kernel",
        "*fp32 *i32 *i32 *fp32 i32",
        {"BLOCK": 512},
        4,
    ),
    "verdicts": (
        "second_look:_verdicts_kernel",
        "*i32 *i32 *i32 *fp32 *i32 *i32 i32",
        {"MAX_ROWS": 8, "TILES": 64, "OVERLAP": True},
        1,
    ),
}


def build_all() -> dict[str, str]:
    """The PTX of every build, by name."""
    command = [sys.executable, "-m", "tests.kernels.gpu.hopper_builds"]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    ptx: dict[str, str] = json.loads(done.stdout)
    return ptx


def _build(kernel: str, types: str, constants: dict[str, Any], num_warps: int) -> str:
    import triton
    from triton.backends.compiler import GPUTarget

    module, name = kernel.split(":")
    function = getattr(importlib.import_module(f"slipstream.kernels.gpu.{module}"), name)
    left = iter(types.split())
    signature = {p.name: "constexpr" if p.name in constants else next(left) for p in function.params}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = triton.compiler.ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps}).asm["ptx"])


if __name__ == "__main__":
    json.dump({name: _build(*build) for name, build in BUILDS.items()}, sys.stdout)
