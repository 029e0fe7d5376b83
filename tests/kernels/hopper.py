"""Compiles a Triton kernel for Hopper on a machine without a GPU, in a process where kernels are not interpreted."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

TIMEOUT = 100  # seconds


def compile_for_hopper(kernel: str, signature: dict[str, str], constants: dict[str, int]) -> str:
    """The PTX of `package.module:kernel`; signature and constants as triton.compiler.ASTSource takes them."""
    request = json.dumps({"kernel": kernel, "signature": signature, "constants": constants})
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.kernels.hopper", request]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _compile(kernel: str, signature: dict[str, str], constants: dict[str, int]) -> str:
    import triton
    from triton.backends.compiler import GPUTarget

    module, name = kernel.split(":")
    source = triton.compiler.ASTSource(
        fn=getattr(importlib.import_module(module), name),
        signature=signature | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
    )
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])


if __name__ == "__main__":
    sys.stdout.write(_compile(**json.loads(sys.argv[1])))
