"""Services on this machine's cores as `slipstream up` runs them, for a measurement. Knows a topology, no options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from launcher.processes import Processes
from launcher.stack import Stack, single_machine, start_stack


@contextmanager
def running_on_cores(
    model: Path, draft_model: Path | None, tenants: Sequence[dict[str, Any]], num_threads: int = 0
) -> Iterator[Stack]:
    """All of them, until the block ends. `num_threads`: of the verifier; 0: one for each core. Raises ServiceFailed."""
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        file = Path(folder) / "tenants.yaml"
        file.write_text(yaml.safe_dump({"tenants": list(tenants)}))
        topology = single_machine(model, draft_model, tenants=file)
        if num_threads:
            topology = replace(topology, verifiers=(replace(topology.verifiers[0], threads=num_threads),))
        yield start_stack(processes, topology)
