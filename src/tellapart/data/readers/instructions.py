"""``instructions:FILE``: instructions and answers for a language model, without pictures.

Reads Alpaca's file, a JSON list of ``{"instruction": "…", "input": "…", "output": "…"}``, or one such object per line
(``.jsonl``). A ``"prompt"`` instead of instruction and input is passed to the model unchanged; an instruction is
inserted into Alpaca's template. ``output`` can be a list of answers. If no entry has an answer, the entries are
questions; otherwise, entries without one (Alpaca has some) are skipped and counted. ``id`` and ``split`` are as in
``jsonl:``; the default id is the entry's number, from 1. Also reads Vicuna's questions (``{"question_id": 1, "text":
"…", "category": "generic"}``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.data.dataset import Skipped
from tellapart.data.dropped import EMPTY, drop
from tellapart.data.listed_pictures import check_unique_ids
from tellapart.data.options import Options
from tellapart.data.pictures import content_key
from tellapart.data.reader import READERS, Reader
from tellapart.data.records import checked_id
from tellapart.data.selection import choose_split
from tellapart.data.splits import checked_split
from tellapart.data.text_files import read_json, read_text
from tellapart.errors import PictureError, UsageError, nearest
from tellapart.types import Item
from tellapart.utils.strict_json import parse_json

# The prompt templates of Stanford Alpaca (Taori et al. 2023).
WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n"
    "### Response:"
)
WITHOUT_INPUT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:"
)


class TextPicture:
    """A prompt that takes the place of an item's picture. It has no pixels.

    ``asked``: the instruction and its input, without the template. ``category``: as in Vicuna's evaluation, or "".
    """

    __slots__ = ("asked", "category", "name", "text")

    def __init__(self, text: str, name: str, asked: str = "", category: str = "") -> None:
        self.text, self.name, self.asked, self.category = text, name, asked or text, category

    def key(self) -> str:
        """Returns the content key of the text."""
        return content_key(self.text.encode())

    def image(self) -> Any:
        """Raises `PictureError`, because a prompt has no pixels."""
        raise PictureError(f"{self.name}: a prompt, not a picture")


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items in the order of the file. Raises `UsageError` with the position of a malformed entry."""
    items, missing = list[Item](), Skipped()
    for number, (entry, where) in enumerate(_entries(path), start=1):
        items.append(_item(entry, where, number))
        if not items[-1].references:
            missing.add(where, "no answer")
    check_unique_ids(items, str(path))
    if len(missing) == len(items):  # questions
        return choose_split(items, options), Skipped()
    return choose_split([item for item in items if item.references], options), missing


def _entries(path: Path) -> Iterator[tuple[Any, str]]:
    """Yields each entry and its name in messages."""
    if path.suffix.lower() == ".json":
        content = read_json(path)
        if not isinstance(content, list):
            raise UsageError(
                f"{path}: expected a JSON list of instructions; if the file has one object per line, name it .jsonl"
            )
        yield from ((entry, f"{path}: entry {number}") for number, entry in enumerate(content, start=1))
        return
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield parse_json(line), f"{path}, line {number}"
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: invalid JSON ({error})") from None


def _item(entry: Any, where: str, number: int) -> Item:
    if not isinstance(entry, dict):
        raise UsageError(f'{where}: expected an object such as {{"instruction": "…", "output": "…"}}')
    if "question_id" in entry and "text" in entry:
        entry = {"id": entry["question_id"], "instruction": entry["text"], "category": entry.get("category")}
    id_ = checked_id(entry.get("id", number), where)
    answers = entry.get("output", [])
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise UsageError(f'{where}: expected "output" to be a string or a list of strings')
    split = checked_split(entry.get("split") or "", where)
    texts = tuple(answer.strip() for answer in answers if answer.strip())
    if texts:  # entries without any answer are listed by `read`
        for _ in range(len(answers) - len(texts)):
            drop(EMPTY, where)
    prompt = _prompt(entry, where)
    asked = "\n\n".join(filter(None, (entry.get("instruction"), entry.get("input"))))
    picture = TextPicture(prompt, id_, asked, str(entry.get("category") or ""))
    return Item(id_, picture, texts, split)


def _prompt(entry: dict[str, Any], where: str) -> str:
    if "prompt" in entry and "instruction" in entry:
        raise UsageError(f'{where}: both "prompt" and "instruction" are set; remove one of them')
    for key in ("prompt", "instruction", "input"):
        if not isinstance(entry.get(key, ""), str):
            raise UsageError(f'{where}: expected "{key}" to be a string, got {json.dumps(entry[key])[:60]}')
    if entry.get("prompt"):
        return str(entry["prompt"])
    if not entry.get("instruction"):
        raise UsageError(f'{where}: missing "instruction" or "prompt"{nearest("instruction", entry) if entry else ""}')
    template = WITH_INPUT if entry.get("input") else WITHOUT_INPUT
    return template.format(instruction=entry["instruction"], input=entry.get("input"))


READERS.register(
    Reader(
        name="instructions",
        factory=read,
        help="prompts and answers for a language model (Alpaca's JSON or JSONL)",
        layouts=(("instructions for a language model, no pictures", "`instructions:alpaca_data.json`"),),
    )
)
