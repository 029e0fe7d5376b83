"""From a target's folder to a stored draft, in slices, and on to a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from slipstream.models.loader import load_model
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_lm_run import train_draft_lm
from slipstream.training.export import export_draft
from slipstream.training.held_out import HeldOut
from slipstream.training.material import REPORT_FILE, Places, Slice
from slipstream.training.settings import ChatSettings, DraftSettings
from slipstream.training.slices import Progress

CPU = torch.device("cpu")
PROMPTS = ["What grows in a garden pond?", "Count the yellow umbrellas."]


@pytest.fixture(scope="module")
def places(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("training")
    (root / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    return Places(target=target_folder, run=root / "run", out=root / "draft", prompts=root / "prompts.jsonl")


@pytest.fixture(scope="module")
def trained(places: Places) -> tuple[Acceptance, list[str], list[Progress]]:
    """Two slices: one without time for more than a step, one that ends."""
    said: list[str] = []
    progress: list[Progress] = []
    chat = ChatSettings(chat_tokens=2000, length=200, batch=4)
    draft = DraftSettings(num_layers=2, draft_vocab_size=200, train_tokens=6000, batch=3)
    for seconds in (0.0, 600.0):
        now = Slice(seconds=seconds, measure_every=600.0, say=said.append, progress=progress.append)
        acceptance = train_draft_lm(places, chat, draft, CPU, now)
        assert (acceptance is None) == (seconds == 0.0)
    assert acceptance is not None
    return acceptance, said, progress


def test_a_slice_goes_on_where_the_one_before_stopped(trained: tuple[Acceptance, list[str], list[Progress]]) -> None:
    starts = [line for line in trained[1] if line.startswith("before this slice")]
    assert [start.split(",")[0] for start in starts] == ["before this slice: step 0", "before this slice: step 1"]
    assert trained[2][-1].step == trained[2][-1].num_steps == 10


def test_the_stored_draft_measures_as_reported(
    places: Places, trained: tuple[Acceptance, list[str], list[Progress]]
) -> None:
    acceptance = trained[0]
    report = json.loads((places.out / REPORT_FILE).read_text())
    assert report["acceptance_length"] == acceptance.length
    assert report["target"] == places.target.name
    assert report["draft"]["train_tokens"] == 6000


def test_an_exported_folder_drafts_the_same(
    places: Places, trained: tuple[Acceptance, list[str], list[Progress]], tmp_path: Path
) -> None:
    export_draft(places.out, tmp_path / "hf", places.target)
    stored = load_model(places.out, torch.bfloat16, CPU, target=places.target)
    exported = load_model(tmp_path / "hf", torch.bfloat16, CPU)
    token_ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = stored.logits(stored.forward_dense(token_ids))
        assert torch.equal(exported.logits(exported.forward_dense(token_ids)), expected)
    assert (
        Tokenizer.from_folder(tmp_path / "hf").vocabulary_hash == Tokenizer.from_folder(places.target).vocabulary_hash
    )


def test_transformers_reads_an_exported_folder(
    places: Places, trained: tuple[Acceptance, list[str], list[Progress]], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    from slipstream.models.draft_checkpoint import draft_tokens

    export_draft(places.out, tmp_path / "hf", places.target)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    ours = load_model(tmp_path / "hf", torch.float32, CPU)
    token_ids = torch.arange(3, 40)[None]
    tokens = draft_tokens(tmp_path / "hf")
    with torch.no_grad():
        expected = theirs(token_ids).logits[..., tokens]
        torch.testing.assert_close(ours.logits(ours.forward_dense(token_ids)), expected, rtol=1e-4, atol=1e-4)


def test_only_stored_drafts_are_exported(places: Places, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no stored draft"):
        export_draft(places.target, tmp_path / "hf")


def test_evaluation_answers_are_the_targets_greedy_ones(places: Places, tokenizer: Tokenizer) -> None:
    frame = ChatFrame.of(tokenizer)
    target = load_model(places.target, torch.bfloat16, CPU)
    questions = [tokenizer.encode(prompt) for prompt in PROMPTS]
    again = [HeldOut.written_by(target, frame, questions, answer_tokens=16) for _ in range(2)]
    assert torch.equal(again[0].token_ids, again[1].token_ids)
    assert again[0].spans == again[1].spans
