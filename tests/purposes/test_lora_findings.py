"""What `tellapart lora` says of a set: lengths, tokens and contradictions."""

import json
from pathlib import Path

import pytest
from command_line import Cli
from transformers import AutoTokenizer

from tellapart.purposes.findings import estimated_tokens, token_counter
from tellapart.scenes import Scenes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number, scene in enumerate(Scenes(6, split="test", seed=3)):
        scene.image().save(tmp_path / "photos" / f"{number}.jpg")
    return tmp_path / "photos"


def test_a_set_is_described(cli: Cli, folder: Path, tmp_path: Path) -> None:
    texts = {f"{n}.jpg": f"a ball {'near a very small house ' * n}in number {n}" for n in range(6)}
    texts["5.jpg"] = "word " * 90 + "end"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": k, "caption": v}) + "\n" for k, v in texts.items()))
    (folder / "0.txt").write_text("ball, outdoors, two houses\n")
    typed = ("lora", folder, "--captions", tmp_path / "a.jsonl", "--trigger", "ohwx", "--common", 1)
    done = cli(*typed, "--extension", "caption", "--dry-run")
    assert done.status == 0 and "words per text: 6 to 92, median" in done.err, done.err
    assert "1 texts exceed the 75 tokens of CLIP (estimated, because the tokenizer openai/clip" in done.err
    assert "of T5" not in done.err and "contradict" not in done.err
    (folder / "0.caption").write_text("ohwx, a ball in a house, indoors at night\n")
    done = cli(*typed, "--extension", "caption")
    assert "1 pictures have tags that contradict their prose: 0.jpg (“outdoors”, “indoors”)" in done.err, done.err


def test_files_with_several_lines_are_several_captions(cli: Cli, folder: Path) -> None:
    """As kohya's scripts read them, where the folder's files are no prose that goes on over lines."""
    for n in range(6):
        (folder / f"{n}.txt").write_text(f"a ball {n}\na round thing {n}\n" if n else "\n")
    done = cli("lora", folder, "--trigger", "ohwx")
    assert "1 of these are empty, so their pictures will be trained on without a caption: 0.txt" in done.err, done.err
    assert "5 of these have several lines, but kohya's scripts read only" in done.err
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    assert {row["file_name"]: row["text"] for row in rows}["2.jpg"] == ["a ball 2", "a round thing 2"]


def test_a_tokenizer_on_this_machine_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_captioner: Path
) -> None:
    count, estimated = token_counter(str(tiny_captioner))
    text = "a red circle on the grass"
    tokenizer = AutoTokenizer.from_pretrained(tiny_captioner)
    assert not estimated and count(text) == len(tokenizer(text, add_special_tokens=False)["input_ids"])
    count, estimated = token_counter("nobody/no-such-tokenizer")
    assert estimated and count(text) == 6 and estimated_tokens("extraordinarily red.") == 4


def test_a_scorer_is_asked(cli: Cli, folder: Path) -> None:
    done = cli("lora", folder, "--model", "scenes", "--trigger", "ohwx", "--scorer", "scenes", "--dry-run")
    assert done.status == 0 and "no text files were written" in done.err, done.err
