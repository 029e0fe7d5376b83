"""Prompt files of each kind, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.prompt_file import DEMO_PROMPTS, Prompt, load_prompts

CHAT_EVAL = Path(__file__).parents[2] / "bench" / "prompts" / "chat_eval.jsonl"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.jsonl", '{"prompt": "one"}\n{"prompt": "two"}\n'),
        ("p.yaml", "- {text: one}\n- {text: two}\n"),
        ("p.txt", "one\n\ntwo\n"),
    ],
)
def test_prompts_come_in_the_order_of_the_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert load_prompts(tmp_path / name) == [Prompt(text="one"), Prompt(text="two")]


@pytest.mark.parametrize("file", [DEMO_PROMPTS, CHAT_EVAL])
def test_the_files_that_we_ship_are_good(file: Path) -> None:
    assert load_prompts(file)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", "\n", "holds no prompt"),
        ("p.jsonl", '{"prompt": "one"}\n{', r"p\.jsonl:2: is not JSON"),
        ("p.jsonl", '{"text": "one"}', "entry 1 is {'text': 'one'}; it must hold `prompt`"),
        ("p.yaml", "a: b", "must be a list"),
        ("p.yaml", "[", "is not YAML"),
        ("p.yaml", "- {text: 3}", "it must hold `text`"),
    ],
)
def test_a_bad_file_is_told_with_place_and_what_is_wanted(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        load_prompts(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.txt: cannot be read"):
        load_prompts(tmp_path / "absent.txt")
