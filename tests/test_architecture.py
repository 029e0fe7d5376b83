"""Who may import whom (the contracts stand in pyproject.toml), and what no file of ours may do."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("slipstream", "drafter_svc", "verifier_svc", "gateway", "launcher")
MAX_LINES = 60
MAX_KERNEL_LINES = 120


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "wire/v1/" not in path.as_posix():
                yield path


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def attributes(tree: ast.Module) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def run_tool(*command: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / command[0]
    return subprocess.run([str(tool), *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


def test_dependencies_point_one_way() -> None:
    result = run_tool("lint-imports", "--no-cache")
    assert result.returncode == 0, result.stdout + result.stderr


def test_gateway_wire_and_text_load_without_torch() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'transformers')));"
        "import gateway.__main__, slipstream.wire.server, slipstream.wire.drafts, slipstream.text.tokenizer"
    )
    result = run_tool("python", "-c", code)
    assert result.returncode == 0, result.stderr


def test_every_file_says_first_what_it_is() -> None:
    silent = [name(path) for path in sources() if not ast.get_docstring(parse(path))]
    assert silent == []


def test_no_function_is_too_long_to_see() -> None:
    long = {
        f"{name(path)}: {function.name}": num_lines(function)
        for path in sources()
        for function in functions(parse(path))
        if num_lines(function) > (MAX_KERNEL_LINES if is_kernel(function) else MAX_LINES)
    }
    assert long == {}


def test_only_config_reads_the_environment() -> None:
    readers = [name(path) for path in sources() if attributes(parse(path)) & {"environ", "getenv", "putenv"}]
    assert readers == ["slipstream/config.py"]


def test_no_file_is_a_drawer_for_the_rest() -> None:
    assert [name(path) for path in sources() if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []
