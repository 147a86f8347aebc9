"""Backends: an OpenAI-compatible server, a local model, or the scripted backend that ships with the package.

openai:MODEL@http://127.0.0.1:8000/v1       vLLM, llama.cpp, Ollama, ``transformers serve``, a hosted one
openai:MODEL@URL?key=MY_KEY&timeout=60      with settings; see `KEYS`
local:FOLDER                                a chat model of transformers on this machine (`Local`)
scripted:error=0.2                          blends and describes `scenes` by their grammar (`tellapart.boost.scripted`)

A server gets ``POST URL/chat/completions`` with the picture as a data URL. Its reply is either an `Answer` or a
`BackendError` that says whether another attempt may help. ``temperature`` and ``top_p`` are sent only where they are
set; a field that the server refuses by name is left out of all further requests, and a line says so. What not every
server has (several choices, log-probabilities) is found out by the first request that asks for it. The key is read
from the environment, goes into one header, and is struck out of the server's words, whole or in part, before anything
is cut, kept or shown.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tellapart.boost.types import REDACTED, Answer, Backend, BackendError, Message, Request
from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.errors import MissingExtra, PictureError, UsageError, nearest
from tellapart.language.words import spelled_spans
from tellapart.models.chat import RefusedMessages, rendered
from tellapart.models.devices import DTYPES, BatchSize, Precision, dtype_of, resolve_device, resolve_precision
from tellapart.models.names import check_name
from tellapart.models.packages import PARTS, packaged_folder
from tellapart.models.saved import loading_errors
from tellapart.types import Picture
from tellapart.utils.io import clean_text, parse_json, say
from tellapart.utils.registry import LazyModule

if TYPE_CHECKING:
    import torch
    import transformers
    from PIL import Image
    from transformers.models.auto import modeling_auto
else:
    Image = LazyModule("PIL.Image")
    torch = LazyModule("torch")
    transformers = LazyModule("transformers")
    modeling_auto = LazyModule("transformers.models.auto.modeling_auto")

SHORTEST = 8  # a shorter key is a placeholder, such as the EMPTY of servers at home: words of captions are like it


def redact(text: str, key: str) -> str:
    """``text`` with `REDACTED` for every run of at least half of ``key``, also where white space splits it.

    So, too, for the key in base64, alone or behind other bytes, as in the header of basic authentication.
    """
    if len(key) < SHORTEST:
        return text
    for form in (key, *_base64_forms(key)):
        text = _redact_form(text, form)
    return text


@lru_cache(8)
def _base64_forms(key: str) -> tuple[str, ...]:
    """Returns what is in the base64 of any text that holds ``key``: by its place among groups of three bytes, and
    alphabet.

    The letters that a neighbour of the key has a part in are left out.
    """
    data = key.encode("utf-8", "replace")
    forms = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        text = text[(0, 2, 3)[before] : 4 * ((before + len(data)) // 3)]
        forms += [text, text.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(forms))


def _redact_form(text: str, key: str) -> str:
    least = max(SHORTEST, len(key) // 2)
    runs = {key[start : start + least] for start in range(len(key) - least + 1)}
    packed = "".join(text.split())
    if not any(run in packed for run in runs):
        return text
    secret = bytearray(len(packed))
    for run in runs:
        at = packed.find(run)
        while at >= 0:
            secret[at : at + least] = b"\1" * least
            at = packed.find(run, at + 1)
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    kept, end = [], 0
    for start, stop in _runs_of_ones(secret):
        kept += [text[end : places[start]], REDACTED]
        end = places[stop - 1] + 1
    return "".join(kept) + text[end:]


def _runs_of_ones(marks: bytearray) -> list[tuple[int, int]]:
    """(start, end) of every run of ones."""
    runs, at = [], marks.find(1)
    while at >= 0:
        end = marks.find(0, at)
        end = len(marks) if end < 0 else end
        runs.append((at, end))
        at = marks.find(1, end)
    return runs


def number(settings: dict[str, str], key: str, default: float) -> float:
    """A setting that is a number of at least 0. Raises `UsageError`."""
    try:
        value = float(settings.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{key}={settings[key]} is not a number of at least 0")
    return value


AS_IT_IS = {"JPEG": "image/jpeg", "PNG": "image/png"}  # what every server decodes
LARGEST_SIDE = 1024  # pixels; multimodal models see less than that
LARGEST_FILE = 2 << 20  # bytes
ORIENTATION = 0x0112  # of EXIF; servers differ in whether they turn the picture


def data_url(picture: Picture) -> str:
    """``data:image/…;base64,…``: the file itself where it is upright and small, else drawn anew.

    Raises `PictureError` for a damaged picture: the server is not asked about it.
    """
    read = picture.read() if isinstance(picture, FilePicture) else picture
    if isinstance(read, BytesPicture):
        kind = _plain(read.data)
        data = read.data if kind else b""
    else:
        kind, data = None, b""
    if kind is None:
        kind, data = _drawn(read.image())
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _plain(data: bytes) -> str | None:
    """The media type of a file that can go as it is: sound, small, upright, opaque."""
    if len(data) > LARGEST_FILE:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=list(AS_IT_IS)) as opened:
            upright = opened.getexif().get(ORIENTATION, 1) == 1
            plain = upright and max(opened.size) <= LARGEST_SIDE and opened.mode in ("RGB", "L")
            plain = plain and not opened.has_transparency_data
            if plain:
                opened.load()  # a file that breaks off is found here
            return AS_IT_IS[opened.format or ""] if plain else None
    except Exception:  # Pillow answers damaged bytes with almost anything; drawing it anew says what is wrong
        return None


def _drawn(image: Image.Image) -> tuple[str, bytes]:
    """A decoded picture, no larger than `LARGEST_SIDE`: PNG where it is small (nothing is lost), JPEG else."""
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    small = max(image.size) <= LARGEST_SIDE // 4
    image.save(file, "PNG" if small else "JPEG", **({} if small else {"quality": 95}))
    return "image/png" if small else "image/jpeg", file.getvalue()


NOT_NOW = frozenset({429, 503})  # rate limits, and servers that are loading or full
LATER = frozenset({408, 409, 425, 500, 502, 504, 529})
FOR_ALL = frozenset({401, 402, 403, 404, 405})
_ACCOUNT = re.compile(
    r"insufficient[_ ](?:quota|credits?|balance|funds)|billing_(?:hard_limit|not_active)|credit balance is too low"
    r"|(?:account|key)_(?:deactivated|disabled)|invalid_api_key",
    re.IGNORECASE,
)
_MODERATED = re.compile(
    r"flagged|moderat(?:ion|ed)|content[_ ]?(?:filter|policy|management)|responsible_?ai|data_inspection_failed"
    r"|inappropriate content|safety system",
    re.IGNORECASE,
)
ADVICE = {
    401: "the server wants another key: set OPENAI_API_KEY, or name the variable with ?key=NAME",
    402: "the account has no credit, or its key no right",
    403: "the server wants another key: set OPENAI_API_KEY, or name the variable with ?key=NAME",
    404: "the server does not know this model or this path; its address usually ends in /v1",
    405: "the server does not know this path; its address usually ends in /v1",
}
SHOWN, FINISH = 200, 40  # characters of a server's own words, and of its word for why an answer ended


def failure(message: str, like: BackendError, fatal: bool | None = None) -> BackendError:
    """The same failure with another message, and ``fatal`` where it is given."""
    return BackendError(message, retry=like.retry, after=like.after, fatal=like.fatal if fatal is None else fatal)


def read_answer(status: int, retry_after: str | None, reply: bytes, key: str = "") -> Answer:
    """The answer in a reply. Raises `BackendError` for every other reply, whatever is in it.

    ``key`` is struck out of both. The answer's text is as the server wrote it: `check.trouble` says what is bad.
    """
    status = _status(status, reply)
    if status == 200:
        return _completion(reply, key)
    detail = _words(reply, key)
    if 400 <= status < 500 and _ACCOUNT.search(reply.decode("utf-8", "replace")):
        raise BackendError(f"{ADVICE[402]} ({status}{detail})", fatal=True)
    if status in NOT_NOW:
        raise BackendError(f"not now ({status}{detail})", retry=True, after=seconds(retry_after) or 0.0)
    if "image input is not supported" in detail:  # llama.cpp, as a 500 that no second try changes
        raise BackendError(f"the server's model reads no pictures ({status}{detail})", fatal=True)
    if status in LATER or status > 500:
        raise BackendError(f"the server failed ({status}{detail})", retry=True, after=seconds(retry_after))
    if status in FOR_ALL:
        raise BackendError(f"{ADVICE[status]} ({status}{detail})", fatal=True)
    if 300 <= status < 400:
        raise BackendError(f"the server sends us elsewhere ({status}); name the address that it means", fatal=True)
    raise BackendError(f"the server refuses this request ({status}{detail})")


def _status(status: int, reply: bytes) -> int:
    """Returns the status of a reply; if that is 200 and it holds an error instead of choices, the error's ``code``."""
    error = _error(reply) if status == 200 else {}
    code = error.get("code") or 500
    return (code if type(code) is int and 400 <= code < 600 else 500) if error else status


def _error(reply: bytes) -> dict[str, Any]:
    """Returns the ``error`` of a reply that has no choices; empty if there is none."""
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return {}
    error = value.get("error") if isinstance(value, dict) and not value.get("choices") else None
    return error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}


def moderated(status: int, reply: bytes, key: str = "") -> str:
    """Returns the words with which a server refuses what one request shows or asks; "" if it does not."""
    if _status(status, reply) not in (400, 403, 422, 451) or not (error := _error(reply)):
        return ""
    reasons = isinstance(error.get("metadata"), dict) and error["metadata"].get("reasons")  # as OpenRouter writes them
    if not reasons and not _MODERATED.search(json.dumps(error)):
        return ""
    return _readable(_error_text(reply), key)[:SHOWN] or "content_filter"


def refused_field(status: int, reply: bytes, sent: Sequence[str]) -> str | None:
    """Returns which of the fields ``sent`` a server refuses: its error's ``param``, else the first that its words
    name.
    """
    if status not in (400, 422):
        return None
    try:
        param = json.loads(reply)["error"]["param"]
    except (ValueError, KeyError, TypeError, RecursionError):
        param = None
    words = param if isinstance(param, str) and param else _error_text(reply)
    return next((name for name in sent if re.search(rf"\b{re.escape(name)}\b", words)), None)


def seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` in seconds from now: a number, or a date (RFC 9110, 10.2.3). None where it says neither."""
    if retry_after is None:
        return None
    try:
        wait = float(retry_after)
    except ValueError:
        try:
            wait = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, wait) if wait < float("inf") else None


def _completion(reply: bytes, key: str) -> Answer:
    """Of a reply of the right form; any other may be right the next time."""
    try:
        value = json.loads(reply)
        usage = value.get("usage")
        counts = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        first, *others = [_choice(choice, key) for choice in value["choices"]]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BackendError(f"not a chat completion: {_quoted(reply, key)}", retry=True) from None
    prompt_tokens, completion_tokens = counts
    return replace(first, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, others=tuple(others))


def _choice(choice: Any, key: str) -> Answer:
    """One of a reply's choices. Raises ValueError, or what Python does of another form."""
    content = choice["message"]["content"]
    finish = choice.get("finish_reason") or "stop"
    if isinstance(content, list):  # parts, as some servers write them
        content = "".join(part.get("text") or "" for part in content)
    # None is an empty answer: a model that spent its tokens on thinking, or a refusal by the server's own filter.
    if not isinstance(content, str | None) or not isinstance(finish, str):
        raise ValueError("neither text nor nothing")
    text = redact(content or "", key)
    tokens = _log_probs((choice.get("logprobs") or {}).get("content") or (), "token") if text == content else ()
    return Answer(text, finish=clean_text(redact(finish, key))[:FINISH], tokens=tokens)


def _log_probs(entries: Any, named: str) -> tuple[tuple[str, float], ...]:
    """Tokens and their log-probabilities in nats; a token is its ``bytes``, else the text that is ``named``.

    Raises ValueError, or what Python does of another form.
    """
    found = []
    for entry in entries:
        data, log_p = entry.get("bytes"), float(entry["logprob"])
        text = bytes(data).decode("utf-8", "surrogateescape") if isinstance(data, list) else str(entry[named])
        if log_p != log_p:
            raise ValueError("NaN is no log-probability")
        found.append((text, min(log_p, 0.0)))
    return tuple(found)


def read_scores(reply: bytes, text: str) -> tuple[tuple[str, float], ...]:
    """The tokens of ``text`` in vLLM's ``prompt_logprobs``, those of a prompt that ends with the text.

    Empty where the reply has none, or where they do not spell the text.
    """
    try:
        entries = json.loads(reply).get("prompt_logprobs") or ()
        first = [next(iter(entry.values())) for entry in entries if entry]  # the prompt's own token, then likelier ones
        tokens = _log_probs([one for one in first if one["logprob"] is not None], "decoded_token")
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        return ()
    spans = spelled_spans(text, [piece.encode("utf-8", "surrogateescape") for piece, _ in tokens])
    own = [number for number, (start, end) in enumerate(spans or ()) if start < end]
    return tokens[own[0] : own[-1] + 1] if own else ()


def _count(usage: Any, key: str) -> int:
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 53 else 0


def _words(reply: bytes, key: str) -> str:
    """The server's error message, as ``: …``."""
    text = _readable(_error_text(reply), key)[:SHOWN]
    return f": {text}" if text else ""


def _error_text(reply: bytes) -> str:
    """Returns the reason in a reply: ``error.message`` (OpenAI), ``message`` (vLLM), ``detail`` (FastAPI); else all."""
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return reply.decode("utf-8", "replace")
    for key in ("error", "message", "detail", "message"):
        value = value.get(key, value) if isinstance(value, dict) else value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _quoted(reply: bytes, key: str) -> str:
    return repr(_readable(reply.decode("utf-8", "replace"), key)[:60])


def _readable(text: str, key: str) -> str:
    """A server's own words, whole, without the key: on one line, clean."""
    return " ".join(clean_text(redact(text, key)).split())


KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
KEYS = ("key", "timeout", "limit", "in", "out", "temperature", "top_p")
"""Settings: the variable that holds the key; seconds for one answer; the name of the field that bounds an answer;
prices of a million tokens in and out, for the cost; sampling of requests that set none themselves."""
SAMPLING = ("temperature", "top_p")
LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
TIMEOUT, CONNECT_TIMEOUT = 120.0, 10.0
ROLES = re.compile(r"\b(system|roles?)\b", re.IGNORECASE)  # what a chat template's refusal of a system prompt names
IN_USER_TURN = "the system prompt goes into the user turn"
MOST_CHOICES = 128  # what OpenAI's own servers take
REFUSALS = (400, 422, 501)  # and 500, with which llama.cpp's server of 2024 answers n = 2: it names its one choice
LACKS = {
    "logprobs": "the server gives no log-probabilities of what it writes (logprobs)",
    "scored": "the server gives no log-probabilities of a given caption beside a picture (prompt_logprobs, which vLLM "
    "has for text alone); leave out --drop-guesses, or type --confidence, which needs only logprobs",
}
LARGEST_REPLY = 8 << 20  # bytes; a caption's is a thousandth of that


def _wants(request: Request) -> set[str]:
    """Returns what a request asks for that not every server has."""
    found = {"n": request.n > 1, "logprobs": request.logprobs, "scored": request.scored}
    return {name for name, asked in found.items() if asked}


class OpenAI:
    """A model behind a server. ``name`` has no address: a model that moves to another machine keeps its answers.

    Several threads may ask at once; each request holds one connection. ``sampling``: what the specification sets, which
    is part of the name. ``most_choices``: how many one request may ask for, as far as is known. Of the requests that
    first ask for what not every server has (`_wants`), one is sent, and the others wait for what it finds.
    """

    def __init__(self, model: str, url: str | None = None, settings: dict[str, str] | None = None) -> None:
        settings = settings or {}
        if not model:
            raise UsageError("openai: names no model; type openai:MODEL@http://127.0.0.1:8000/v1")
        self.sampling = {key: number(settings, key, 0.0) for key in SAMPLING if key in settings}
        typed = "&".join(f"{key}={value:g}" for key, value in self.sampling.items())
        self.model, self.name = model, f"openai:{model}" + (f"?{typed}" if typed else "")
        self._url = _checked(url or os.environ.get(URL_VARIABLE, ""), self.name) + "/chat/completions"
        self._key = _key(settings.get("key"), self.name)
        self.timeout = number(settings, "timeout", TIMEOUT) or TIMEOUT
        self._limit = settings.get("limit", "max_tokens")
        priced = "in" in settings or "out" in settings
        self.prices = (number(settings, "in", 0.0), number(settings, "out", 0.0)) if priced else None
        self._client = self._new_client()
        self._loop = _loop()
        self._refused: dict[str, str] = {}  # fields that are not sent any more, and what the server said
        self._no_system = ""  # what the server said of a system prompt, which then goes into the user turn
        self._lock, self._first = threading.Lock(), threading.Lock()
        self.most_choices, self._served = MOST_CHOICES, False
        self._has: set[str] = set()  # what the server was found to have, or to do without

    def complete(self, request: Request) -> Answer:
        """One answer, within the time set. Raises `BackendError`."""
        if _wants(request) <= self._has:
            return self._complete(request)
        with self._first:
            return self._complete(request)

    def _complete(self, request: Request) -> Answer:
        request = replace(request, n=min(request.n, self.most_choices))
        no_system, refused = self._no_system, dict(self._refused)
        request = request.without_system() if no_system else request
        fields = self._fields(request)
        while True:
            sent = {LIMITS.get(name, "") if name in refused else name: value for name, value in fields.items()}
            status, retry_after, reply = self._exchange({name: value for name, value in sent.items() if name})
            if words := moderated(status, reply, self._key):
                return Answer("", finish=f"content_filter: {self._clean(words)}")
            try:
                answer = read_answer(status, retry_after, reply, self._key)
            except BackendError as error:
                words = self._clean(str(error))
                if request.messages[0].role == "system" and status in (400, 422, 500) and ROLES.search(words):
                    no_system, request = words, request.without_system()
                    fields = self._fields(request)
                    continue
                lacking = status in REFUSALS or (status == 500 and "choice" in words)
                if request.scored and "scored" not in self._has and (lacking or status >= 500):
                    if not lacking:  # a server that fails at all else, too, is only out of order
                        self._complete(replace(request, messages=request.messages[:-1], scored=False))
                    raise self._lacking("scored", f": {words}") from None
                if status == 403 and self._served and error.fatal:  # not the key, then, but this request
                    error = failure(words, error, fatal=False)
                named = refused_field(status, reply, [name for name in (*LIMITS, *SAMPLING, "seed") if name in sent])
                if named is None and lacking and self._unknown(request):
                    return self._with_less(request, words)
                if named is None or named in refused or LIMITS.get(named) in refused:
                    raise failure(f"{self.name}: {words}", error) from None
                refused[named] = words
                continue
            self._served = True
            self._learn(refused, no_system)
            return self._found(request, answer, reply)

    def _unknown(self, request: Request) -> set[str]:
        return _wants(request) - self._has

    def _lacking(self, what: str, words: str = "") -> BackendError:
        """The failure of a server that has no log-probabilities."""
        return BackendError(f"{self.name}: {LACKS[what]}{words}", fatal=True)

    def _with_less(self, request: Request, words: str) -> Answer:
        """The answer to a refused request without what the server may not have. Raises `BackendError`."""
        if request.n > 1:
            answer = self._complete(replace(request, n=1))
            self._learn_choices(1, f": {words}")
            return answer
        self._complete(replace(request, logprobs=False))  # answered: so that is what the server refuses
        raise self._lacking("logprobs", f": {words}")

    def _found(self, request: Request, answer: Answer, reply: bytes) -> Answer:
        """The answer with what was asked for. Raises `BackendError` where the server is found to lack it."""
        unknown = self._unknown(request)
        if request.scored:
            answer = replace(answer, text="", finish="stop", tokens=read_scores(reply, request.messages[-1].text))
            if not answer.tokens and "scored" in unknown:
                raise self._lacking("scored")
        elif request.logprobs and not answer.tokens and answer.text and "logprobs" in unknown:
            raise self._lacking("logprobs")
        if request.n > 1 and len(answer.others) + 1 < request.n:
            self._learn_choices(len(answer.others) + 1)
        if answer.text or answer.tokens:  # an empty answer shows nothing
            with self._lock:
                self._has |= unknown
        return replace(answer, others=answer.others[: request.n - 1])

    def _learn_choices(self, most: int, words: str = "") -> None:
        with self._lock:
            fewer = most < self.most_choices
            self.most_choices, self._has = min(most, self.most_choices), self._has | {"n"}
        if fewer:
            each = "one choice" if most == 1 else f"{most} choices"
            say(f"{self.name}: the server gives {each} a request ('n'{words}), so more requests are sent")

    def _learn(self, refused: Mapping[str, str], no_system: str) -> None:
        """Change all further requests as the one that was answered, and say so once."""
        with self._lock:
            told, self._no_system = self._no_system, self._no_system or no_system
            new = {name: words for name, words in refused.items() if name not in self._refused}
            self._refused = {**self._refused, **new}
        for name, words in new.items():
            instead = f"sent as '{LIMITS[name]}'" if name in LIMITS else "left out"
            say(f"{self.name}: '{name}' is {instead} from now on: {words}")
        if no_system and not told:
            say(f"{self.name}: {IN_USER_TURN} from now on: {no_system}")

    def _exchange(self, body: dict[str, Any]) -> tuple[int, str | None, bytes]:
        """Status, ``Retry-After`` and body of the reply, within the time set. Raises `BackendError`."""
        import httpx2

        try:
            return asyncio.run_coroutine_threadsafe(self._post(json.dumps(body).encode()), self._loop).result()
        except (TimeoutError, httpx2.TimeoutException):
            raise BackendError(f"{self.name}: no answer within {self.timeout:g} s", retry=True) from None
        except httpx2.HTTPError as error:
            detail = self._clean(str(error)) or type(error).__name__
            raise BackendError(
                f"{self.name}: {self._server} broke off or is not there ({detail})", retry=True
            ) from None

    async def _post(self, body: bytes) -> tuple[int, str | None, bytes]:
        """One deadline for connection, headers and body: httpx's own limit is per read, and a 1xx starts it anew."""
        reply = bytearray()
        async with asyncio.timeout(self.timeout), self._client.stream("POST", self._url, content=body) as response:
            async for part in response.aiter_bytes():
                reply += part
                if len(reply) > LARGEST_REPLY:
                    raise BackendError(f"{self.name}: an answer of more than {LARGEST_REPLY >> 20} MiB", retry=True)
            return response.status_code, response.headers.get("retry-after"), bytes(reply)

    def _fields(self, request: Request) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": m.role, "content": m.text} for m in request.messages]
        if request.picture is not None:
            last = max(n for n, message in enumerate(messages) if message["role"] == "user")
            shown = {"type": "image_url", "image_url": {"url": data_url(request.picture)}}
            messages[last]["content"] = [shown, {"type": "text", "text": messages[last]["content"]}]
        body: dict[str, Any] = {"model": self.model, "messages": messages, self._limit: request.max_tokens}
        own = {"temperature": request.temperature, "top_p": request.top_p, "seed": request.seed}
        body |= self.sampling | {name: value for name, value in own.items() if value is not None}
        if request.stop:
            body["stop"] = list(request.stop)
        if request.n > 1:
            body["n"] = request.n
        if request.logprobs:
            body["logprobs"] = True
        if request.scored:
            body |= {"prompt_logprobs": 0, "add_generation_prompt": False, "continue_final_message": True}
        return body

    @property
    def address(self) -> str:
        """Returns where the server is."""
        return self._url.removesuffix("/chat/completions")

    @property
    def _server(self) -> str:
        return urlsplit(self._url).netloc

    def _clean(self, text: str) -> str:
        """One line with the key removed: some servers repeat it."""
        text = clean_text(redact(text, self._key))
        return " ".join((text.replace(self._key, REDACTED) if self._key else text).split())

    def _new_client(self) -> Any:
        try:
            import httpx2
        except ImportError:
            raise MissingExtra("boost", "a server's model") from None
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # Proxies of the environment do not lead to this machine itself.
        here = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=not here,
        )


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all servers, in a thread of its own: what it runs can be cancelled at a deadline."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # requests that the end of the program cuts off
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _checked(url: str, name: str) -> str:
    """An address without credentials and without the last slash. Raises `UsageError`."""
    if not url:
        raise UsageError(f"{name}: on which server? type {name}@http://127.0.0.1:8000/v1, or set {URL_VARIABLE}")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username or parts.password or "?" in url or "#" in url:
        raise UsageError(
            f"{name}: a server's address has no user, password or '?' in it; keys come from {KEY_VARIABLE}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{name}: '{url}' is no server's address; type one such as http://127.0.0.1:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


def _key(variable: str | None, name: str) -> str:
    """The key that an environment variable holds; none where `KEY_VARIABLE` is not set (servers at home need none)."""
    key = os.environ.get(variable or KEY_VARIABLE, "").strip()
    if variable and not key:
        raise UsageError(f"{name}: the environment has no {variable}; type: export {variable}=…, or leave out key=")
    if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise UsageError(f"{name}: what {variable or KEY_VARIABLE} holds is no key (blanks or unprintable characters)")
    return key


EXPECTED = "a chat model of transformers (config.json, weights, tokenizer with a chat template)"
SAMPLE = 1 << 20  # bytes of each end of a weights file that the name's hash covers
AT_ONCE = 64  # requests in a batch of a model on this machine, where so many are in flight


@dataclass(eq=False)
class _Queued:
    """A request that waits for its batch, and the answer or error that it gets."""

    request: Request
    prepared: Any
    answer: Answer | None = None
    error: Exception | None = None


class Batcher:
    """Answers requests of several threads in batches of those that wait at the same time and are alike.

    ``work(requests, prepared)`` returns answers, or errors in their places, and is called by one thread at a time;
    ``prepared`` is what each thread made of its request (such as its decoded picture). ``like(request)``: requests of
    equal values share a batch.
    """

    def __init__(
        self,
        work: Callable[[list[Request], list[Any]], Sequence[Answer | PictureError]],
        like: Callable[[Request], object],
        what: str = "answering",
    ) -> None:
        self._work, self._like, self._batch = work, like, BatchSize(AT_ONCE, what)
        self._queue: list[_Queued] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def answer(self, request: Request, prepared: Any = None) -> Answer:
        """Returns the answer; whoever has the turn works for others, too. Raises what ``work`` does."""
        mine = _Queued(request, prepared)
        with self._lock:
            self._queue.append(mine)
        with self._turn:
            while mine.answer is None and mine.error is None:
                self._answer_some()
        if mine.error is not None:
            raise mine.error
        assert mine.answer is not None
        return mine.answer

    def _answer_some(self) -> None:
        with self._lock:
            like = self._like(self._queue[0].request)
            chosen = [one for one in self._queue if self._like(one.request) == like][: self._batch.size]
            self._queue = [one for one in self._queue if one not in chosen]

        def work(some: slice) -> Sequence[Answer | PictureError]:
            return self._work([one.request for one in chosen[some]], [one.prepared for one in chosen[some]])

        try:
            answers = [answer for part in self._batch.batches(len(chosen), work) for answer in part]
            for one, answer in zip(chosen, answers, strict=True):
                one.answer, one.error = (answer, None) if isinstance(answer, Answer) else (None, answer)
        except Exception as error:
            for one in chosen:
                one.error = error


class Local:
    """A model in a folder or of the hub, which loads when it is first asked.

    Requests that wait at the same time are answered in one batch, but for sampled ones, whose seed is their own. A
    system prompt that the chat template refuses goes into the first user turn.
    """

    def __init__(self, source: str, folder: Path, name: str, device: torch.device, precision: Precision) -> None:
        self.source, self._folder, self.name, self.device, self.precision = source, folder, name, device, precision
        self._batcher = Batcher(self._generate, _greedy_settings)
        self._no_system = False

    @classmethod
    def open(cls, source: str, device: str = "auto", precision: str = "auto") -> Local:
        """Find the model's files. Its name ends in a hash of them: of other weights, other answers.

        It names the precision, too, where that is another than the files are in. ``device`` and ``precision``: see
        `tellapart.models.devices`.
        """
        if not source:
            raise UsageError("local: names no model; type local:FOLDER")
        with loading_errors(source, EXPECTED):
            folder = _folder(source)
            saved = _saved_precision(folder)
        where = resolve_device(device)
        chosen = resolve_precision(precision, where)
        other = "" if chosen == saved else f"-{chosen}"
        return cls(source, folder, f"local:{Path(source).name}-{_fingerprint(folder)}{other}", where, chosen)

    def complete(self, request: Request) -> Answer:
        """One answer. Raises `BackendError` for a picture that the model does not see, `PictureError` for a bad one."""
        return self._batcher.answer(request, request.picture.image() if request.picture is not None else None)

    def _generate(self, requests: list[Request], images: list[Image.Image | None]) -> list[Answer]:
        """Answers of one batch; all requests have the settings of the first, a picture or none."""
        model, processor = self._loaded
        sees, request = hasattr(processor, "tokenizer"), requests[0]
        if images[0] is not None and not sees:
            raise BackendError(f"{self.name}: this model sees no pictures; name another with --mllm", fatal=True)
        tokenizer = processor.tokenizer if sees else processor
        inputs = self._templated(requests, images, processor, sees).to(model.device)
        settings: dict[str, Any] = {"max_new_tokens": request.max_tokens, "do_sample": bool(request.temperature)}
        settings |= {"num_beams": 1, "num_return_sequences": 1}  # whatever the folder's own settings are
        if request.temperature:
            settings |= {"temperature": request.temperature, "top_p": request.top_p or 1.0, "top_k": 0}
        if request.stop:
            settings |= {"stop_strings": list(request.stop), "tokenizer": tokenizer}
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(request.seed or 0)
            written_BT = model.generate(**inputs, pad_token_id=tokenizer.pad_token_id, **settings)
        read_B = inputs["attention_mask"].sum(1).tolist()
        answers = []
        for row_T, read in zip(written_BT[:, inputs["input_ids"].shape[1] :].tolist(), read_B, strict=True):
            own_T, ended = _up_to_end(row_T, _ends(model), tokenizer.pad_token_id)
            text = tokenizer.decode(own_T, skip_special_tokens=True)
            for end in request.stop:
                text = text.partition(end)[0]
            cut = len(own_T) >= request.max_tokens and not ended
            answers.append(Answer(text, read, len(own_T), "length" if cut else "stop"))
        return answers

    def _templated(self, requests: list[Request], images: list[Image.Image | None], processor: Any, sees: bool) -> Any:
        """Token ids of the requests, padded at their left, and the pictures. Raises `UsageError`."""
        asked = [request.without_system() for request in requests] if self._no_system else requests
        pairs = zip(asked, images, strict=True)
        conversations = [_conversation(request.messages, image, parts=sees) for request, image in pairs]
        try:
            rendered(self.source, processor, conversations)
            return processor.apply_chat_template(
                conversations,
                add_generation_prompt=True,
                tokenize=True,
                padding=True,
                return_dict=True,
                return_tensors="pt",
            )
        except RefusedMessages as error:
            if self._no_system or all(request.messages[0].role != "system" for request in requests):
                raise
            self._no_system = True
            say(f"{self.name}: {IN_USER_TURN}: its chat template says: {error.words}")
            return self._templated(requests, images, processor, sees)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """Model and processor; for a text-only model its tokenizer."""
        with loading_errors(self.source, EXPECTED):
            config = transformers.AutoConfig.from_pretrained(self._folder, trust_remote_code=False)
            vision = config.model_type in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
            processor = (transformers.AutoProcessor if vision else transformers.AutoTokenizer).from_pretrained(
                self._folder, trust_remote_code=False
            )
            kind = transformers.AutoModelForImageTextToText if vision else transformers.AutoModelForCausalLM
            model: Any = kind.from_pretrained(self._folder, dtype=dtype_of(self.precision), trust_remote_code=False)
            model.eval()
        if not processor.chat_template:
            raise UsageError(f"{self.source}: has no chat template, so it cannot answer requests; name a chat model")
        tokenizer = processor.tokenizer if vision else processor
        tokenizer.padding_side = "left"  # where a batch begins to write
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model.to(self.device), processor


def _conversation(messages: tuple[Message, ...], image: Image.Image | None, *, parts: bool) -> list[dict[str, Any]]:
    """Messages for a chat template: in parts for vision-language models, the picture in the last user turn."""
    if not parts:
        return [{"role": message.role, "content": message.text} for message in messages]
    turns = [{"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in messages]
    if image is not None:
        last = max(n for n, message in enumerate(messages) if message.role == "user")
        turns[last]["content"] = [{"type": "image", "image": image}, *turns[last]["content"]]
    return turns


def _greedy_settings(request: Request) -> object:
    """Returns what greedy requests of one batch have in common; a sampled one is alone."""
    return id(request) if request.temperature else (request.picture is None, request.max_tokens, request.stop)


def _ends(model: Any) -> list[int]:
    end = model.generation_config.eos_token_id
    return end if isinstance(end, list) else [end]


def _up_to_end(row_T: list[int], ends: Sequence[int], pad: int) -> tuple[list[int], bool]:
    """Returns a row's own tokens, up to its end token, without the padding of its batch; whether it has that end."""
    if (place := next((place for place, token in enumerate(row_T) if token in ends), None)) is not None:
        return row_T[: place + 1], True
    length = len(row_T)
    while length and row_T[length - 1] == pad:
        length -= 1
    return row_T[:length], False


def has_chat_template(source: str) -> bool:
    """Returns whether the files of a model have a chat template; of the hub's they are those in the cache."""
    folder = _folder(source)
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    files = (folder / name for name in ("processor_config.json", "tokenizer_config.json"))
    return any("chat_template" in parse_json(file.read_text(encoding="utf-8")) for file in files if file.is_file())


def _folder(source: str) -> Path:
    """Returns where the model's files lie: the folder itself, that of a packaged part, or the hub's in the cache."""
    if source in PARTS:
        return packaged_folder(source)
    folder = Path(source).expanduser()
    check_name(source, "chat model")
    return Path(
        str(transformers.utils.hub.cached_file(str(folder) if folder.is_dir() else source, "config.json"))
    ).parent


def _saved_precision(folder: Path) -> str:
    """The precision that the model's ``config.json`` says its weights are in, such as ``bf16``."""
    config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == dtype), dtype)


def _fingerprint(folder: Path) -> str:
    """Of the names and sizes of its files, small files whole, and both ends of the weights."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".jinja", ".model", ".txt", ".safetensors"):
            with path.open("rb") as file:
                size = path.stat().st_size
                digest.update(f"{path.name} {size} ".encode() + file.read(SAMPLE))
                file.seek(max(0, size - SAMPLE))
                digest.update(file.read())
    return digest.hexdigest()


def open_backend(spec: str, device: str = "auto", precision: str = "auto") -> Backend:
    """The backend of a specification (the module's docstring has the grammar). Raises `UsageError`.

    ``device`` and ``precision``: of a local model, see `tellapart.models.devices`.
    """
    kind, _, rest = spec.partition(":")
    if kind not in (*BACKENDS, "local"):
        raise UsageError(
            f"no backend is called '{kind}'{nearest(kind, (*BACKENDS, 'local'))}; type one such as {EXAMPLE}"
        )
    return Local.open(rest, device, precision) if kind == "local" else BACKENDS[kind](rest)


def _openai(rest: str) -> Backend:
    body, settings = _settings(rest, f"openai:{rest}", KEYS)
    model, at, url = body.rpartition("@http")
    return OpenAI(model if at else body, f"http{url}" if at else None, settings)


def _scripted(rest: str) -> Backend:
    from tellapart.boost.scripted import Scripted

    _, settings = _settings(f"?{rest}" if rest else "", f"scripted:{rest}", ("error", "seed"))
    return Scripted(error=number(settings, "error", 0.0), seed=int(number(settings, "seed", 0.0)))


BACKENDS: dict[str, Callable[[str], Backend]] = {"openai": _openai, "scripted": _scripted}
EXAMPLE = "openai:MODEL@http://127.0.0.1:8000/v1, local:FOLDER or scripted"


def _settings(text: str, spec: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Returns what stands before the ``?``, and the pairs behind it."""
    body, _, query = text.partition("?")
    values = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if key not in known:
            raise UsageError(f"'{spec.partition('@')[0]}' has no setting '{key}'{nearest(key, known)}")
        if not equals or not value:
            raise UsageError(f"{spec.partition('@')[0]}: '{pair}' is not key=value")
        values[key] = unquote(value)
    return body, values
