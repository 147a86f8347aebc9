"""Prompt files of the stages: the papers, and files with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellapart.boost.stage_prompts import BUILTIN, read_prompt
from tellapart.boost.stages import STAGE_NAMES
from tellapart.errors import UsageError

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "2_no_detail_left_behind.txt"


@pytest.mark.skipif(not PAPER.is_file(), reason=f"no paper at {PAPER}")
def test_prompts_are_the_papers() -> None:
    def plain(text: str) -> str:
        for old, new in (("“", '"'), ("”", '"'), ("{count}", "5")):
            text = text.replace(old, new)
        return " ".join(text.split())

    paper = plain(PAPER.read_text(encoding="utf-8"))
    for name in STAGE_NAMES:
        prompt = read_prompt(name)
        fixed = prompt.turns if name == "describe" else prompt.examples
        for turn in fixed:
            for line in turn.text.splitlines():
                assert plain(line) in paper, (name, line)


def copied(folder: Path, name: str, old: str, new: str) -> Path:
    text = (BUILTIN / f"{name}.txt").read_text()
    assert old in text
    (folder / f"{name}.txt").write_text(text.replace(old, new))
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("blend", "{reference}", "{refrence}", "unknown placeholder {refrence}; did you mean 'reference'"),
        ("holistic", "New noisy caption: {describe}", "Go on", "lacks {describe}"),
        ("blend", "temperature = 0", "temprature = 0", "unknown setting 'temprature'; did you mean 'temperature'"),
        ("blend", "max_words = 60", "max_words = many", "got 'max_words = many'"),
        ("blend", "max_words = 60", "", "lacks max_words"),
        ("blend", "[system]", "[sytem]", "unknown section [sytem]; did you mean 'system'"),
        ("blend", "[assistant]\nA bathroom", "[user]\nA bathroom", "first, then alternating"),
        ("describe", "[again]", "[user]", "alternating [user] and [assistant], ending with [user]"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_it(
    tmp_path: Path, name: str, old: str, new: str, line: str
) -> None:
    with pytest.raises(UsageError) as error:
        read_prompt(name, copied(tmp_path, name, old, new))
    assert line in str(error.value) and str(tmp_path / f"{name}.txt") in str(error.value)
    assert "\n" not in str(error.value)
