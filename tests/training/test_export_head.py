"""A small head is written out whole, for servers that borrow nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.models.eagle3_checkpoint import load_eagle3, save_eagle3
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import open_checkpoint
from slipstream.training.eagle3_head import FreshHead
from slipstream.training.export_head import export_head

CPU = torch.device("cpu")
TOKENS = torch.tensor([3, 4, 9, 100, 200, 319])


@pytest.fixture
def small(target: LlamaModel, tmp_path: Path) -> Path:
    """A head as it begins, in int8 rows."""
    head = FreshHead(target, TOKENS, torch.Generator().manual_seed(0))
    save_eagle3(tmp_path / "small", head.config, head.master_weights().weights, TOKENS, dtype=None)
    return tmp_path / "small"


def test_it_needs_no_target_and_gives_the_same_logits(small: Path, target_folder: Path, tmp_path: Path) -> None:
    export_head(small, tmp_path / "whole", target_folder)
    written = load_file(tmp_path / "whole" / "model.safetensors")
    assert {"fc.weight", "lm_head.weight", "midlayer.self_attn.q_proj.weight", "d2t", "t2d"} <= written.keys()
    assert not any(name.endswith((".int8", ".scale")) for name in written)
    models = [
        load_eagle3(small, torch.bfloat16, CPU, open_checkpoint(target_folder))[0],
        load_eagle3(tmp_path / "whole", torch.bfloat16, CPU, open_checkpoint(target_folder))[0],
    ]
    z = torch.randn(3, models[0].config.hidden_size, dtype=torch.bfloat16)
    assert torch.equal(models[0].logits(z), models[1].logits(z))
    parameters = zip(models[0].parameters(), models[1].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in parameters)


def test_without_a_record_of_its_target_one_must_be_given(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--target"):
        export_head(small, tmp_path / "whole")
    (small / "training.json").write_text(json.dumps({"target": "no-such-model"}))
    with pytest.raises(RuntimeError, match="no-such-model"):
        export_head(small, tmp_path / "whole")
