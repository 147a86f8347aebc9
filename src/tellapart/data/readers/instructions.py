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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tellapart.data.dataset import ReadItems
from tellapart.data.dropped import EMPTY, drop
from tellapart.data.equal_ids import check_unique_ids
from tellapart.data.options import Options
from tellapart.data.reader import READERS, Reader
from tellapart.data.records import checked_id
from tellapart.data.selection import choose_split
from tellapart.data.skipped import Skipped
from tellapart.data.splits import checked_split
from tellapart.data.text_files import json_lines, read_json, read_text
from tellapart.data.text_picture import TextPicture
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

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


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in the order of the file. Raises `UsageError` with the position of a malformed entry."""
    items, missing = list[Item](), Skipped()
    for number, (where, entry) in enumerate(_entries(path), start=1):
        items.append(_item(entry, where, number))
        if not items[-1].references:
            missing.add(where, "no answer")
    check_unique_ids(items, str(path))
    if len(missing) == len(items):  # questions
        return choose_split(items, options), Skipped()
    return choose_split([item for item in items if item.references], options), missing


def _entries(path: Path) -> Iterable[tuple[str, Any]]:
    """Returns each entry with its location."""
    if path.suffix.lower() != ".json":
        return json_lines(path, read_text(path))
    content = read_json(path)
    if not isinstance(content, list):
        raise UsageError(
            f"{path}: expected a JSON list of instructions; if the file has one object per line, name it .jsonl"
        )
    return ((f"{path}: entry {number}", entry) for number, entry in enumerate(content, start=1))


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
    texts = tuple(answer.strip() for answer in answers if answer.strip())
    if texts:  # entries without any answer are listed by `read`
        for _ in range(len(answers) - len(texts)):
            drop(EMPTY, where)
    if "prompt" in entry and "instruction" in entry:
        raise UsageError(f'{where}: both "prompt" and "instruction" are set; remove one of them')
    for key in ("prompt", "instruction", "input"):
        if not isinstance(entry.get(key, ""), str):
            raise UsageError(f'{where}: expected "{key}" to be a string, got {json.dumps(entry[key])[:60]}')
    prompt, instruction, context = (entry.get(key) for key in ("prompt", "instruction", "input"))
    if not prompt and not instruction:
        raise UsageError(f'{where}: missing "instruction" or "prompt"{nearest("instruction", entry) if entry else ""}')
    template = WITH_INPUT if context else WITHOUT_INPUT
    prompt = prompt or template.format(instruction=instruction, input=context)
    asked = "\n\n".join(filter(None, (instruction, context)))
    picture = TextPicture(prompt, id_, asked, str(entry.get("category") or ""))
    return Item(id_, picture, texts, checked_split(entry.get("split") or "", where))


READERS.register(
    Reader(
        name="instructions",
        factory=read,
        help="prompts and answers for a language model (Alpaca's JSON or JSONL)",
        layouts=(("instructions for a language model, no pictures", "`instructions:alpaca_data.json`"),),
    )
)
