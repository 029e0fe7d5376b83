"""The tokenizer and its fingerprint, on small tokenizers made here."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from slipstream.errors import CheckpointError
from slipstream.text.tokenizer import TOKENIZER_FILE, Tokenizer, content_hash
from tests.text.tiny_tokenizers import byte_level, metaspace


def test_a_folder_and_its_shipped_files_give_the_same_tokenizer(tmp_path: Path) -> None:
    files = byte_level().files
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    loaded = Tokenizer.from_folder(tmp_path)
    shipped = Tokenizer.from_files(loaded.files)
    assert loaded.files == files
    assert loaded.vocabulary_hash == shipped.vocabulary_hash
    assert loaded.content_hash == content_hash(files)


def test_the_vocabulary_hash_sees_every_entry_and_nothing_else() -> None:
    base = byte_level()
    assert byte_level(special="<|other|>").vocabulary_hash != base.vocabulary_hash
    same_entries = dict(base.files) | {"tokenizer_config.json": b'{"eos_token": "x"}'}
    assert Tokenizer.from_files(same_entries).vocabulary_hash == base.vocabulary_hash
    assert Tokenizer.from_files(same_entries).content_hash != base.content_hash


@pytest.mark.parametrize("text", ["hello world", "héllo wörld", "日本語 🙂", ""])
def test_the_bytes_of_the_tokens_make_up_the_text(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text


def test_sentencepiece_tokens_keep_the_space_before_them_and_their_byte_tokens_are_bytes() -> None:
    tokenizer = metaspace()
    ids = tokenizer.encode("hello world🙂", add_special_tokens=False)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == " hello world🙂"


def test_special_tokens_and_unknown_ids_add_no_text() -> None:
    tokenizer = byte_level(special="<|end|>")
    end = tokenizer.vocab_size - 1
    assert tokenizer.token(end) == "<|end|>"
    assert tokenizer.token_bytes(end) == b""
    assert tokenizer.token_bytes(10**6) == b""


def test_special_tokens_are_added_only_as_the_tokenizer_says() -> None:
    with_bos = metaspace()
    assert with_bos.token(with_bos.encode("hello")[0]) == "<s>"
    assert with_bos.token(with_bos.encode("hello", add_special_tokens=False)[0]) != "<s>"
    assert byte_level().encode("hello") == byte_level().encode("hello", add_special_tokens=False)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "tokenizer.json is missing in the files received"),
        ({TOKENIZER_FILE: b"{}"}, "tokenizer.json in the files received cannot be read"),
        ({"tokenizer_config.json": b"{"}, "tokenizer_config.json in the files received is not JSON"),
        ({"tokenizer_config.json": b"[]"}, "must hold an object, not list"),
    ],
)
def test_unusable_files_are_named(files: dict[str, bytes], message: str) -> None:
    base = {} if files == {} else byte_level().files
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.from_files(base | files)


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer, ended, beats = byte_level(), threading.Event(), []

    def beat() -> None:
        while not ended.wait(0.001):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    started = time.monotonic()
    tokenizer.encode("hello world " * 40_000)
    took = time.monotonic() - started
    ended.set()
    thread.join()
    longest = max(later - earlier for earlier, later in pairwise([started, *beats, started + took]))
    assert longest < max(0.1, 0.7 * took)


def test_truncation_left_over_from_training_is_ignored() -> None:
    files = byte_level().files
    settings = json.loads(files[TOKENIZER_FILE])
    settings["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    assert len(Tokenizer.from_files(files | {TOKENIZER_FILE: json.dumps(settings).encode()}).encode("hello")) == 5
