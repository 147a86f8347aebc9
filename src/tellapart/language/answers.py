"""Recognizes what surrounds the caption in a model's answer: reasoning, control tokens, refusals and openings.

The refusals and openings of each language are in ``answers.toml``.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import lru_cache
from importlib.resources import files

_REASONS = re.compile(
    r"<(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning)>|\[THINK\]|◁think▷|<\|begin_of_thought\|>"
    r"|<\|channel\|>\s*(?:analysis|commentary)",
    re.IGNORECASE,
)
_REASONED = re.compile(
    r"</(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning)>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>"
    r"|<\|channel\|>\s*final\s*<\|message\|>",
    re.IGNORECASE,
)
_ANSWER = re.compile(  # some models, by prompt or training, wrap the answer in tags
    r"<(answer|caption|description|alt_text|output|response|final_answer)>(.*?)(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_BOXED = re.compile(r"\s*\\boxed\{(.*)\}\s*", re.DOTALL)
_PLACE = re.compile(  # a grounded model's bounding boxes, which are not part of the caption
    r"(?:<box>|<\|(?:box|quad|point)_start\|>|<\|det\|>)[\s\d.,;()\[\]]*(?:</box>|<\|(?:box|quad|point)_end\|>|<\|/det\|>)"
    r"|<(?:loc_?|patch_index_|bin_)\d+>",
    re.IGNORECASE,
)
_HEADER = re.compile(  # the header of a turn
    r"(?:<\|(?:im_)?start(?:_header_id)?\|>|<start_of_turn>|<\|start_of_role\|>)\s*(?:assistant|model)?"
    r"\s*(?:<\|(?:end_header_id|im_sep|end_of_role|message)\|>)?|(?:#{2,3} *)?(?:assistant|response) ?:",
    re.IGNORECASE,
)
_CONTROL = re.compile(
    r"<\|[^\s|<>]{1,40}\|>|<｜[^\s｜<>]{1,40}｜>|</?(?:s|answer|bos|eos|pad|unk|image|ref|box|object|phrase"
    r"|(?:start|end)_of_(?:turn|image)|end_of_utterance|extra_id_\d+|unused\d+)>"
    r"|\[(?:/?INST|BOS|EOS|CLS|SEP|PAD|UNK)\]|<</?SYS>>",
    re.IGNORECASE,
)
_END = re.compile(  # the end of a turn; any text after it belongs to the next one
    r"<\|(?:im_end|end|eot_id|eom_id|endoftext|end_of_text|return|user|im_start|start)\|>|<｜end▁of▁sentence｜>"
    r"|</s>|<eos>|<(?:start|end)_of_turn>|<end_of_utterance>|\[INST\]",
    re.IGNORECASE,
)


def answer_text(text: str) -> str | None:
    """Removes reasoning and control tokens from a model's answer; returns None if the reasoning does not end.

    Reasoning ends with ``</think>``, ``[/THINK]``, ``◁/think▷`` or similar; its beginning may be part of the chat
    template. The answer is the content of ``<answer>…</answer>``, ``<caption>…</caption>`` or ``\\boxed{…}``, if
    present. Discards text after an end token such as ``<|im_end|>``, and a grounded model's coordinates.
    """
    text = _REASONED.split(text)[-1]
    if _REASONS.search(text):
        return None
    if match := _ANSWER.search(text):
        text = match[2]
    text = _PLACE.sub("", text)
    while match := _HEADER.match(text.lstrip()) or _CONTROL.match(text.lstrip()):
        text = text.lstrip()[match.end() :]
    text = _CONTROL.sub("", _END.split(text)[0]).strip()
    return match[1].strip() if (match := _BOXED.fullmatch(text)) else text


_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*•])[ \t]+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<![\w*])(\*\*\*|\*\*|\*|__|`)(?=\S)(.+?)(?<=\S)\1(?![\w*])", re.DOTALL)
_CAPTION_FIELDS = ("caption", "description", "alt_text", "text", "answer")


def without_fence(text: str) -> str:
    """Returns the content of a Markdown fence (```` ```json ````), if there is one."""
    return _FENCE.sub(lambda match: match[1], text).strip()


def tidy_lines(text: str, paragraphs: bool = False) -> str:
    """Joins the lines of a text into one, or, with ``paragraphs``, into one line per paragraph."""
    if not paragraphs:
        return " ".join(text.split())
    return "\n\n".join(filter(None, (tidy_lines(part) for part in re.split(r"\n\s*\n|\r\n\s*\r\n", text))))


def without_markdown(text: str) -> str:
    """Removes Markdown (fences, headings, list markers, emphasis) from a caption. Keeps paragraphs.

    In a JSON object, fenced or not, the caption is the field ``caption`` (or ``description``, ``alt_text``, ``text``,
    ``answer``), or the only string.
    """
    text = without_fence(text)
    if text.startswith("{") and (value := _json_caption(text)):
        text = value
    text = _LINE_MARK.sub("", text)
    while (plain := _EMPHASIS.sub(r"\2", text)) != text:
        text = plain
    return text


def _json_caption(text: str) -> str:
    """Returns the caption in a JSON object; "" for other JSON, and for several strings with unknown names."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    fields = {str(name).lower(): field for name, field in value.items() if isinstance(field, str)}
    named = [fields[name] for name in _CAPTION_FIELDS if name in fields]
    return named[0] if named else next(iter(fields.values())) if len(fields) == 1 else ""


def refusal(text: str) -> str:
    """Returns the opening words of a refusal, in any language of ``answers.toml``; "" if it is not a refusal."""
    match = _patterns()[0].match(text.replace("’", "'"))
    return text[: match.end()].strip() if match else ""


def without_opening(sentence: str) -> tuple[str, str]:
    """Splits off an opening such as "The image shows": returns the sentence without it, and the opening or ""."""
    plain = sentence.replace("’", "'")
    for pattern in _patterns()[1]:
        if match := pattern.match(plain):
            start, end = match.span("rest") if pattern.groups else (match.end(), match.end())
            return (sentence[start:end] + sentence[match.end() :]).lstrip(), sentence[: min(start, match.end())].strip()
    return sentence, ""


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], list[re.Pattern[str]]]:
    """Returns a pattern for all refusals, and patterns for openings: one per opening with ``rest``, then one for the
    others.
    """
    table = tomllib.loads((files("tellapart.language") / "answers.toml").read_text(encoding="utf-8"))

    def expressions(kind: str) -> list[str]:
        return [
            expression.replace("{image}", language["image"]).replace(" ", r"\s")
            for language in table.values()
            for expression in language[kind]
        ]

    def starting(some: list[str]) -> re.Pattern[str]:
        return re.compile(rf"\W*(?:{'|'.join(some)})", re.IGNORECASE)

    openings = expressions("openings")
    framing = [starting([one]) for one in openings if "?P<rest>" in one]
    return starting(expressions("refusals")), [*framing, starting([one for one in openings if "?P<rest>" not in one])]
