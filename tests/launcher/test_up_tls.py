"""`slipstream up` with certificates: all parts speak TLS, and the asking commands reach them with the right files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.launcher.up_process import Up
from tests.tiny_models import make_checkpoint
from tests.wire.certificates import Authority


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_up_serves_over_tls_and_is_asked_with_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.sign()
    files = {"ca": str(authority.file), "certificate": str(identity.certificate), "key": str(identity.key)}
    verifier = {"model": str(make_checkpoint(tmp_path / "target")), "dtype": "float32", "kv_memory": "16MiB"}
    (tmp_path / "slipstream.yaml").write_text(yaml.safe_dump({"verifiers": [verifier], "tls": files}))
    up = Up(tmp_path, "--config", str(tmp_path / "slipstream.yaml"))
    try:
        asked = ("--target", up.gateway, "--tls-ca", files["ca"])
        assert run("generate", "a b", "--max-tokens", "4", *asked).returncode == 0
        refused = run("generate", "a b", "--max-tokens", "4", "--timeout", "5", "--target", up.gateway)
        assert (refused.returncode, "--tls-ca is for one that speaks TLS only" in refused.stderr) == (1, True)
        service = ("--service", up.services["verifier"][0])
        shown = ("--tls-cert", files["certificate"], "--tls-key", files["key"])
        assert run("status", *service, *asked, *shown).returncode == 0
        assert run("status", *service, *asked).returncode == 1  # a verifier wants a certificate
        assert "https://" in up.descriptions["gateway"]
    finally:
        up.kill()
