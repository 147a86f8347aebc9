"""Describes training captions: lengths, token limits, and tags that contradict prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import transformers

from tellapart.captions.paths_beside import NAMED_FILES
from tellapart.data.pictures import FilePicture
from tellapart.language.tag_contradictions import tag_contradictions, tags_and_prose
from tellapart.purposes.training_text_files import text_of
from tellapart.types import Item
from tellapart.utils.listed_names import few

# Text encoders of image generators: name, token limit without start and end tokens, repository of the tokenizer.
ENCODERS = (("CLIP", 75, "openai/clip-vit-large-patch14"), ("T5", 512, "google/t5-v1_1-xxl"))
LENGTHS = (10, 30)  # maximum number of words of a short and of a medium text
PIECE = 9  # letters per token, to estimate the tokens of a long word


def findings(items: Sequence[Item], texts: Mapping[str, str], suffix: str | None) -> Iterator[str]:
    """Yields one line per finding.

    Args:
        texts: the texts of each picture by id, one per line.
        suffix: the suffix of the text files; tags may be in files with the other suffix.
    """
    lines = {id_: [line for line in text.split("\n") if line.strip()] for id_, text in texts.items()}
    words = [len(line.split()) for some in lines.values() for line in some]
    if words:
        short, long = sum(n <= LENGTHS[0] for n in words), sum(n > LENGTHS[1] for n in words)
        shares = (round(100 * n / len(words)) for n in (short, len(words) - short - long, long))
        mix = "; ".join(f"{what}: {next(shares)}%" for what in (f"up to {LENGTHS[0]}", f"up to {LENGTHS[1]}", "more"))
        yield f"words per text: {min(words)} to {max(words)}, median {round(float(np.median(words)))}; {mix}"
    for name, budget, repository in ENCODERS:
        count, estimated = token_counter(repository)
        if over := [id_ for id_, some in lines.items() if any(count(line) > budget for line in some)]:
            how = f" (estimated, because the tokenizer {repository} is not available)" if estimated else ""
            yield (
                f"{len(over):,} texts exceed the {budget} tokens of {name}{how} and will be "
                f"truncated: {few(over, NAMED_FILES)}; shorten them, or increase the trainer's limit"
            )
    wrong = {item.id: said for item in items if (said := _contradictions(item, lines.get(item.id, []), suffix))}
    if wrong:
        named = few((f"{id_} ({'; '.join(said)})" for id_, said in wrong.items()), NAMED_FILES)
        yield f"{len(wrong):,} pictures have tags that contradict their prose: {named}; fix the tags or the prose"


def _contradictions(item: Item, lines: Sequence[str], suffix: str | None) -> list[str]:
    parts = [tags_and_prose(line) for line in lines]
    other = {".caption": ".txt", ".txt": ".caption"}.get(suffix or "")
    if other is not None and isinstance(item.picture, FilePicture):
        parts.append(tags_and_prose(text_of(item.picture.path.with_suffix(other))))
    tags = [tag for some, _ in parts for tag in some]
    return tag_contradictions(tags, " . ".join(prose for _, prose in parts)) if tags else []


def token_counter(repository: str) -> tuple[Callable[[str], int], bool]:
    """Returns a function that counts tokens, excluding start and end tokens, and whether it only estimates the count.

    Uses a tokenizer from Hugging Face's cache, and never downloads one.
    """
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            repository, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, ImportError):
        return estimated_tokens, True
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]), False


def estimated_tokens(text: str) -> int:
    """Estimates the number of tokens in an English text: one per word and punctuation mark, more for long words."""
    pieces = re.findall(r"\w+|[^\w\s]", text)
    return sum(1 + (len(piece) - 1) // PIECE for piece in pieces)
