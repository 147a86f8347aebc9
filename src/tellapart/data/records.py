"""Finds the picture, id and captions in records of common file formats, by their keys and nesting.

Shared by the readers of data sets (`tellapart.data.columns`, `tellapart.data.readers.jsonl`) and of caption files
(`tellapart.data.caption_files`). Keys are case-insensitive.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import tokenize
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tellapart.data.dropped import MISSING, drop, stands_for_nothing
from tellapart.errors import UsageError
from tellapart.language.answers import answer_text
from tellapart.utils.strict_json import parse_json
from tellapart.utils.untrusted_text import clean_text

PICTURE_KEYS = (
    *("image", "picture", "photo", "img", "jpg", "jpeg", "png", "webp", "video", "clip", "gif"),
    *("image_path", "img_path", "video_path", "filepath", "file_path", "path", "file_name", "filename", "file"),
    *("image_name", "image_file", "image_url", "img_url", "url", "images", "videos", "captioning", "sourcefile"),
)
ID_KEYS = (
    *("image_id", "img_id", "imgid", "video_id", "custom_id", "id", "cocoid", "question_id", "doc_id"),
    *("key", "__key__", "uid", "index", "idx"),
)
CAPTION_KEYS = (
    *("captions", "caption", "references", "sentences", "sentence", "descriptions", "description"),
    *("texts", "text", "txt", "comment", "title", "alt_text", "raw", "conversations", "messages"),
    *("caption_str", "paragraph", "vlm_caption", "long_caption", "extra_caption", "short_caption"),
    *("alttextaccessibility", "caption-abstract", "imagedescription"),  # metadata fields, as exiftool names them
)
# A model's output takes precedence over fields that can be the prompt or a human caption.
GENERATED_KEYS = (
    *("prediction", "predictions", "pred", "predict", "response", "responses", "generated_text", "generated_caption"),
    *("generation", "hypothesis", "output", "outputs", "filtered_resps", "resps", "caption", "captions", "answer"),
    *("references", *CAPTION_KEYS[2:], "result", "annotations"),
)
# Human captions take precedence over a model's output.
REFERENCE_KEYS = (
    *("references", "reference", "refs", "ground_truth", "ground_truths", "gt", "gts", "target", "targets"),
    *("answers", "captions", "caption", "answer", *CAPTION_KEYS[3:], "output", "annotations", "label", "labels"),
)
# Captions of a data set. Unlike REFERENCE_KEYS, these exclude "label" and "labels", which often hold a class.
DATA_KEYS = (*(*CAPTION_KEYS, "reference", "refs", "ground_truth", "ground_truths", "gt", "gts", "answers", "answer"),)
MAY_LACK = "(none)"  # in a list of caption keys: a record without captions is allowed
EXIFTOOL_KEY = "SourceFile"
VIZWIZ_FLAGS = ("is_rejected", "is_precanned")
_NUMBERED_STEMS = ("caption", "reference", "ref", "sentence", "description", "answer", "text", "raw", "comment")
_NESTED_KEYS = (
    *("raw", "caption", "generated_text", "text", "content", "en", "response", "prediction", "body", "message"),
    *("parts", "output", "result", "value"),
)
_SPOKEN_KEYS = ("content", "parts", "output")  # keys of a server's answer, whose parts are joined into one caption
_UNSPOKEN_TYPES = ("thinking", "redacted_thinking", "reasoning")  # content parts outside the caption
_UPLOADED = re.compile(r"^/data/(?:upload/\d+/[0-9a-f]{8}-|local-files/\?d=)")  # Label Studio's prefix of file names
_TASK = re.compile(r"^<\w+>$")  # Florence-2 writes {"<CAPTION>": text}
_ASSISTANT_ROLES = ("gpt", "assistant", "model", "bot")
_MAX_DEPTH = 8  # maximum nesting of lists and objects in a value
# Matches a printed list or dictionary, but neither "[sic] a dog" nor a model's "[unk]".
_LIST = re.compile(
    r"""[\[{]\s*["'\[{]|\(\s*["'\[{].*\)$|(?:array|list|dict|tuple|set)\("""
    r"""|\[(?!\w+\]$)(?:[^\[\]]*|.*["'].*)\]$|\{(?!\w+\}$)[^{}]*\}$""",
    re.DOTALL,
)
MEDIA = "(?:jpe?g|png|webp|gif|bmp|tiff?|heic|mp4|avi|webm|mov|mkv)"
_FILE = re.compile(rf"\S.*\.{MEDIA}", re.IGNORECASE)
# The first bytes of JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC and MP4 files in base64, including its URL-safe form.
_BASE64 = re.compile(
    r"data:(?:image|video)/[\w+.-]+;base64,[\w+/\s-]+=*|"
    r"(?:[/_]9j[/_]|iVBORw0KGgo|UklGR|R0lGOD|Qk|SUkqA|TU0AK|AAAA.GZ0eX)[\w+/\s-]{24,}=*",
    re.ASCII,
)


class RowError(UsageError):
    """An error that affects one row, which is then skipped and reported.

    The row's caption is a file name or a broken list, or the row has several pictures.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason


class MarkedText(str):
    """A caption that needs special treatment.

    error: set if the text looks like a list, a dictionary or a file name.
    flag: VizWiz's flag of the record, such as ``is_rejected``; empty if there is none.
    """

    error: RowError | None
    flag: str

    def __new__(cls, text: str, error: RowError | None = None, flag: str = "") -> MarkedText:
        made = super().__new__(cls, text)
        made.error, made.flag = error, flag
        return made


def with_flags(texts: list[str], record: Mapping[str, Any], where: str) -> list[str]:
    """Returns the texts of a record; those that VizWiz excludes become `MarkedText`.

    ``is_rejected`` marks spam, ``is_precanned`` the canned text for unrecognizable pictures. A flag is one value for
    all texts, or a list (possibly printed as a string) with one value per text. Raises `RowError` if the lengths
    differ.
    """
    for flag in VIZWIZ_FLAGS:
        value = find_value((flag,), record)
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = _parsed(value)
        if isinstance(value, list | tuple) and len(value) != len(texts):
            raise RowError(
                where, f"'{flag}' has {len(value)} values for {len(texts)} captions; expected one per caption"
            )
        values = value if isinstance(value, list | tuple) else [value] * len(texts)
        texts = [
            MarkedText(text, flag=flag) if str(one).strip().lower() in ("true", "1", "1.0") else text
            for text, one in zip(texts, values, strict=True)
        ]
    return texts


_FINISHED = ("stop", "eos", "end_turn", "stop_sequence")


def _unfinished(answer: Any) -> str:
    """Returns why a server's answer is incomplete, such as ``length``; "" if it is complete."""
    if not isinstance(answer, Mapping):
        return ""
    choices = [answer.get(key) for key in ("choices", "candidates")]
    for part in (answer, *(choice[0] for choice in choices if choice and isinstance(choice, list))):
        for key in ("finish_reason", "stop_reason", "finishReason"):
            reason = part.get(key) if isinstance(part, Mapping) else None
            if isinstance(reason, str) and reason and reason.lower() not in _FINISHED:
                return reason
    return ""


def batch_failure(record: Mapping[str, Any]) -> str:
    """Returns why a line of batch results has no complete answer; "" if it has one.

    For example ``status 400: too long``, ``expired`` or ``ended with 'length'``. Recognizes Anthropic's
    ``{"custom_id", "result": {"type": "errored", "error": …}}``, OpenAI's ``{"custom_id", "response": {"status_code":
    400, "body": {"error": …}}}`` and ``{"custom_id", "error": …}``, and Gemini's ``{"key", "error": …}``.
    """
    if not {"custom_id", "key"} & record.keys():
        return ""
    result, response = (value if isinstance(value := record.get(key), dict) else {} for key in ("result", "response"))
    status, error = response.get("status_code"), record.get("error")
    if (kind := result.get("type")) in ("errored", "expired", "canceled"):
        found, error = str(kind), result.get("error")
    elif isinstance(status, int) and status != 200:
        body = response.get("body")
        found, error = f"status {status}", body.get("error") if isinstance(body, dict) else None
    elif isinstance(error, dict) and not response:
        found = str(error.get("code") or error.get("status") or "error")
    else:
        answers = result.get("message"), response.get("body"), response
        reason = next(filter(None, map(_unfinished, answers)), "")
        return f"ended with {clean_line(reason)!r}" if reason else ""
    while isinstance(error, dict):  # Anthropic nests an error inside the error
        error = error.get("error") or error.get("message")
    return clean_line(f"{found}: {error}" if isinstance(error, str) else found)


def clean_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def find_key(names: Iterable[str], keys: Collection[str]) -> str:
    """Returns the record's key that matches the earliest of ``names``, ignoring case; "" if none matches."""
    lower = {str(key).strip().lower(): key for key in reversed(list(keys))}
    return next((lower[name] for name in names if name in lower), "")


def exiftool_names(keys: list[str]) -> list[str]:
    """Strips the group that exiftool's ``-G`` adds to keys (``XMP:Description``); other keys are unchanged."""
    return [str(key).rpartition(":")[2] for key in keys] if EXIFTOOL_KEY in keys else keys


def picture_key(keys: Collection[str]) -> str:
    """Returns the picture's key: one of `PICTURE_KEYS`, else the only key that ends in ``file_name``, else ""."""
    ends = [key for key in keys if str(key).strip().lower().endswith("file_name")]
    return find_key(PICTURE_KEYS, keys) or (ends[0] if len(ends) == 1 else "")


def text_keys(names: Iterable[str], keys: Collection[str]) -> list[str]:
    """Returns the key that matches the earliest of ``names``, else all numbered keys (``caption_0``, …)."""
    if found := find_key(names, keys):
        return [found]
    for stem in _NUMBERED_STEMS:
        matches = ((re.fullmatch(rf"\s*{stem}[ _-]?(\d+)\s*", str(key), re.IGNORECASE), key) for key in keys)
        if numbered := {int(match[1]): key for match, key in matches if match}:
            return [numbered[number] for number in sorted(numbered)]
    return []


def is_file_name(text: str) -> bool:
    """Returns whether a text is the name or path of a picture or clip."""
    return bool(_FILE.fullmatch(text))


def is_base64(value: Any) -> bool:
    """Returns whether a value is a data URI, or a picture in base64 as in VLMEvalKit's tables."""
    return isinstance(value, str) and bool(_BASE64.fullmatch(value.strip()))


def decode_base64(text: str) -> bytes:
    """Decodes a text that `is_base64` accepts. Raises ValueError if it is damaged."""
    digits = "".join(text.rpartition(",")[2].split()).rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)


def sole(value: Any, where: str) -> Any:
    """Unwraps a list of one value; returns other values unchanged. Raises `RowError` for longer lists."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) != 1:
        raise RowError(where, f"expected one picture per row, got {len(value)}")
    return sole(value[0], where)


def find_value(names: Iterable[str], record: Mapping[str, Any]) -> Any:
    """Returns the first non-empty value under one of the names, or None."""
    lower = {str(key).strip().lower(): value for key, value in record.items()}
    return next((lower[name] for name in names if lower.get(name) not in (None, "", [], {})), None)


def picture_value(record: Mapping[str, Any]) -> Any:
    """Returns a record's picture as given: a path, a URL, base64, a mapping or a list; None if there is none.

    In Karpathy's JSON of COCO, ``filepath`` (``val2014``) is the folder of ``filename`` (``COCO_val2014_….jpg``).
    """
    value = find_value(PICTURE_KEYS, record) or record.get(picture_key(record))
    folder, name = find_value(("filepath",), record), find_value(("filename",), record)
    if value == folder and isinstance(name, str) and isinstance(folder, str) and not is_file_name(folder):
        value = f"{folder.rstrip('/')}/{name}"
    return value


def picture_path(record: Mapping[str, Any]) -> str:
    """Returns the path or URL of a record's picture as written; "" if the record has none, or several."""
    value = picture_value(record)
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, Mapping):  # Hugging Face's {"bytes", "path"}, a chat's {"type": "image", "image": path}
        value = find_value(("path", *PICTURE_KEYS), value)
    return _UPLOADED.sub("", value) if isinstance(value, str) and not is_base64(value) else ""


def record_id(record: Mapping[str, Any], where: str) -> str:
    """Returns a record's id, or "". Raises `UsageError` if it is neither a string nor an integer."""
    value = find_value(ID_KEYS, record)
    if value is None and isinstance(number := find_value(PICTURE_KEYS, record), int) and not isinstance(number, bool):
        value = number  # {"image": 391895}
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not (isinstance(value, str | int) or (isinstance(value, float) and value % 1 == 0)):
        raise UsageError(
            f"{where}: expected the id to be a string or an integer, got {json.dumps(value, default=str)[:40]}"
        )
    return id_text(value)


def checked_id(value: Any, where: str) -> str:
    """Returns an id as text. Raises `UsageError` if it is neither a non-empty string nor an integer."""
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise UsageError(f'{where}: expected "id" to be a string or an integer, got {json.dumps(value)}')
    return str(value)


def id_text(value: Any) -> str:
    """Returns an id as text. Drops the ``.0`` of whole floats, which pandas creates if some ids are missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def caption_texts(value: Any, where: str, depth: int = 0) -> list[str]:
    """Returns the captions in a value.

    A value is a text, a list, ``{"raw": text}``, the turns of a conversation, or any of these printed as a string by
    JSON, Python or NumPy.

    File names, unreadable lists and dictionaries, and texts with a VizWiz flag become `MarkedText`. Raises
    a `UsageError` whose message begins with ``where``.
    """
    if value is None or (isinstance(value, float) and value != value):  # pandas writes NaN for an empty cell
        return []
    if isinstance(value, str):
        return _texts_of_cell(value, where, depth)
    if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        if value and all(isinstance(turn, Mapping) and {"from", "role"} & turn.keys() for turn in value):
            return _first_answer(value, where, depth)
        return [text for part in value for text in caption_texts(part, where, depth + 1)]
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        answers = value.get("choices") or value.get("candidates")  # OpenAI's and Gemini's names
        if isinstance(answers, list) and answers:
            texts = caption_texts(answers[0], where, depth + 1)
            said = [answer_text(text) or "" for text in texts]  # parsed like an answer to `caption`
            return [text if one == text else one for text, one in zip(texts, said, strict=True)]
        if len(value) == 1 and _TASK.match(str(next(iter(value)))):
            return caption_texts(next(iter(value.values())), where, depth + 1)
        if spoken := next((value[key] for key in _SPOKEN_KEYS if _is_spoken(value.get(key))), None):
            pieces = [piece for piece in spoken if piece.get("type") not in _UNSPOKEN_TYPES]
            return [" ".join(caption_texts(pieces, where, depth + 1))]
        inner = find_value(_NESTED_KEYS, value)
        if inner is not None or find_key(_NESTED_KEYS, value):
            texts = caption_texts(inner if inner is not None else "", where, depth + 1)
            return with_flags(texts, value, where)
    raise UsageError(f"{where}: expected the caption to be a string, got {type(value).__name__}")


def _is_spoken(value: Any) -> bool:
    """Returns whether a value is a list of content parts: objects with a ``type`` or ``text`` key."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(piece, Mapping) and {"type", "text"} & piece.keys() for piece in value)
    )


def _first_answer(turns: Iterable[Mapping[str, Any]], where: str, depth: int) -> list[str]:
    """Returns a conversation's first answer (LLaVA's ``{"from": "gpt", "value"}``, or ``{"role": "assistant"}``)."""
    for turn in turns:
        if str(turn.get("from", turn.get("role"))).lower() in _ASSISTANT_ROLES:
            content = turn.get("value", turn.get("content"))
            return [" ".join(caption_texts(content, where, depth + 1))]
    raise UsageError(f"{where}: the conversation has no answer; expected a turn by 'gpt' or 'assistant'")


def _texts_of_cell(text: str, where: str, depth: int) -> list[str]:
    cell = text.strip()
    if stands_for_nothing(cell):
        drop(MISSING, where)
        return []
    if is_file_name(cell) and len(cell.split()) == 1:
        return [MarkedText(text, RowError(where, f"expected a caption, got the file name {cell[:60]!r}"))]
    if not _LIST.match(cell):
        return [text]
    value = _parsed(cell)
    if isinstance(value, list | tuple | dict) and depth < _MAX_DEPTH:
        with contextlib.suppress(UsageError):
            return caption_texts(value, where, depth + 1)
    why = (
        f"the caption {cell[:60]!r} looks like a list or a dictionary but cannot be parsed; "
        'expected a string, or a JSON list of strings: ["a dog", "the dog"]'
    )
    return [MarkedText(text, RowError(where, why))]


def _parsed(text: str) -> Any:
    """Parses a text as JSON, or as printed by Python or NumPy; returns None if that fails."""
    try:
        return parse_json(text)
    except json.JSONDecodeError:
        pass
    except ValueError:  # a duplicate key, or nested too deeply
        return None
    try:
        return ast.literal_eval(_with_commas(text))
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _with_commas(text: str) -> str:
    """Inserts the commas that NumPy omits between the elements of an array.

    Without them, Python would concatenate adjacent strings. Raises ValueError if only some of the commas are missing.
    """
    pieces: list[str] = []
    levels: list[tuple[str, set[str]]] = [("", set())]  # open brackets, and the separators of their elements
    ended = False  # whether an element has just ended
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        piece = "None" if token.string == "nan" else token.string.strip()
        if not piece:
            continue
        opens, closes = piece in ("[", "{", "("), piece in ("]", "}", ")")
        begins = opens or token.type in (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
        bracket, separators = levels[-1]
        if piece == "," or (begins and ended):
            separators.add("," if piece == "," else " ")
        if begins and ended:
            pieces.append(",")
        if " " in separators and (bracket != "[" or "," in separators):
            raise ValueError("strings side by side")
        if opens:
            levels.append((piece, set()))
        if closes and len(levels) > 1:
            levels.pop()
        pieces.append(piece)
        ended = closes or (begins and not opens)
    return " ".join(pieces)
