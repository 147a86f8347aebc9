"""Extracts the answer from a model's raw output: removes reasoning, wrapping tags, coordinates and control tokens."""

from __future__ import annotations

import re

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
_ANSWER = re.compile(  # because of their prompt or training, some models wrap the answer in tags
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
_END = re.compile(  # the end of a turn; any text after it belongs to the next turn
    r"<\|(?:im_end|end|eot_id|eom_id|endoftext|end_of_text|return|user|im_start|start)\|>|<｜end▁of▁sentence｜>"
    r"|</s>|<eos>|<(?:start|end)_of_turn>|<end_of_utterance>|\[INST\]",
    re.IGNORECASE,
)


def answer_text(text: str) -> str | None:
    """Removes reasoning and control tokens from a model's answer. Returns None if the reasoning does not end.

    Reasoning ends with ``</think>``, ``[/THINK]``, ``◁/think▷`` or similar. Its opening tag may be part of the chat
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
