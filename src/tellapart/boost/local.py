"""Backend ``local:FOLDER``: a transformers chat model on this machine that answers several threads in batches."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.auto import modeling_auto

from tellapart.boost.types import IN_USER_TURN, Answer, BackendError, Message, Request
from tellapart.errors import PictureError, UsageError
from tellapart.models.chat import RefusedMessages, rendered
from tellapart.models.devices import resolve_device
from tellapart.models.memory import BatchSize
from tellapart.models.names import check_name
from tellapart.models.packages import PARTS, packaged_folder
from tellapart.models.precision import DTYPES, Precision, dtype_of, resolve_precision
from tellapart.models.saved import loading_errors
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json

EXPECTED = "a chat model in transformers format (config.json, weights, tokenizer with a chat template)"
HASHED_BYTES = 1 << 20  # bytes at each end of a weights file that are hashed for the name
AT_ONCE = 64  # maximum batch size of a local model


@dataclass(eq=False)
class _Queued:
    """A request waiting for its batch, and its answer or error."""

    request: Request
    prepared: Any
    answer: Answer | None = None
    error: Exception | None = None


class Batcher:
    """Answers requests from several threads, and batches similar ones that wait at the same time.

    work: ``work(requests, prepared)`` returns an answer or an error for each request; called by one thread at a time.
        ``prepared`` has what each thread prepared for its request, such as its decoded picture.
    like: requests with equal ``like(request)`` share a batch.
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
        """Returns the answer. One thread at a time answers the requests of all. Raises the errors that ``work``
        returns.
        """
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
    """A model in a folder or on the hub, loaded on first use.

    Requests that wait at the same time are answered in one batch, except for sampled ones, which have their own seeds.
    If the chat template rejects system prompts, they go into the first user turn.
    """

    def __init__(self, source: str, folder: Path, name: str, device: torch.device, precision: Precision) -> None:
        self.source, self._folder, self.name, self.device, self.precision = source, folder, name, device, precision
        self._batcher = Batcher(self._generate, _greedy_settings)
        self._no_system = False

    @classmethod
    def open(cls, source: str, device: str = "auto", precision: str = "auto") -> Local:
        """Finds the model's files. Their hash ends the model's name, because different weights give different answers.

        The name includes the precision if it differs from the files'. ``device`` and ``precision``: see
        `tellapart.models.devices`.
        """
        if not source:
            raise UsageError("local: missing folder; use local:FOLDER")
        with loading_errors(source, EXPECTED):
            folder = _folder(source)
            saved = _saved_precision(folder)
        where = resolve_device(device)
        chosen = resolve_precision(precision, where)
        other = "" if chosen == saved else f"-{chosen}"
        return cls(source, folder, f"local:{Path(source).name}-{_fingerprint(folder)}{other}", where, chosen)

    def complete(self, request: Request) -> Answer:
        """Returns one answer. Raises `BackendError` if the model does not accept pictures, and `PictureError` for bad
        pictures.
        """
        return self._batcher.answer(request, request.picture.image() if request.picture is not None else None)

    def _generate(self, requests: list[Request], images: list[Image.Image | None]) -> list[Answer]:
        """Generates the answers of one batch; requests share their settings, and all or none have pictures."""
        model, processor = self._loaded
        sees, request = hasattr(processor, "tokenizer"), requests[0]
        if images[0] is not None and not sees:
            raise BackendError(
                f"{self.name}: this model does not accept pictures; specify another one with --mllm", fatal=True
            )
        tokenizer = processor.tokenizer if sees else processor
        inputs = self._templated(requests, images, processor, sees).to(model.device)
        settings: dict[str, Any] = {"max_new_tokens": request.max_tokens, "do_sample": bool(request.temperature)}
        settings |= {"num_beams": 1, "num_return_sequences": 1}  # overrides the settings in the folder
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
        """Tokenizes the requests, padded on the left, together with the pictures. Raises `UsageError`."""
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
            say(f"{self.name}: {IN_USER_TURN}, because its chat template reports: {error.words}")
            return self._templated(requests, images, processor, sees)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The model and its processor, or its tokenizer for a text-only model."""
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
            raise UsageError(f"{self.source} has no chat template, so it cannot answer requests; specify a chat model")
        tokenizer = processor.tokenizer if vision else processor
        tokenizer.padding_side = "left"  # padding is on the left, because generation continues at the right end
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model.to(self.device), processor


def _conversation(messages: tuple[Message, ...], image: Image.Image | None, *, parts: bool) -> list[dict[str, Any]]:
    """Formats messages for a chat template. ``parts``: as content parts, with the picture in the last user turn."""
    if not parts:
        return [{"role": message.role, "content": message.text} for message in messages]
    turns = [{"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in messages]
    if image is not None:
        last = max(n for n, message in enumerate(messages) if message.role == "user")
        turns[last]["content"] = [{"type": "image", "image": image}, *turns[last]["content"]]
    return turns


def _greedy_settings(request: Request) -> object:
    """Returns a key that is equal for requests that can share a batch: the settings if greedy, unique if sampled."""
    return id(request) if request.temperature else (request.picture is None, request.max_tokens, request.stop)


def _ends(model: Any) -> list[int]:
    end = model.generation_config.eos_token_id
    return end if isinstance(end, list) else [end]


def _up_to_end(row_T: list[int], ends: Sequence[int], pad: int) -> tuple[list[int], bool]:
    """Returns a row's tokens up to its end token, without padding, and whether it has an end token."""
    if (place := next((place for place, token in enumerate(row_T) if token in ends), None)) is not None:
        return row_T[: place + 1], True
    length = len(row_T)
    while length and row_T[length - 1] == pad:
        length -= 1
    return row_T[:length], False


def has_chat_template(source: str) -> bool:
    """Returns whether a model's files (for a hub model, those in the cache) include a chat template."""
    folder = _folder(source)
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    files = (folder / name for name in ("processor_config.json", "tokenizer_config.json"))
    return any("chat_template" in parse_json(file.read_text(encoding="utf-8")) for file in files if file.is_file())


def _folder(source: str) -> Path:
    """Returns the folder that contains the model's files: a local folder, a packaged model, or the hub cache."""
    if source in PARTS:
        return packaged_folder(source)
    folder = Path(source).expanduser()
    check_name(source, "chat model")
    return Path(
        str(transformers.utils.hub.cached_file(str(folder) if folder.is_dir() else source, "config.json"))
    ).parent


def _saved_precision(folder: Path) -> str:
    """Returns the precision of the weights according to ``config.json``, e.g. ``bf16``."""
    config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == dtype), dtype)


def _fingerprint(folder: Path) -> str:
    """Hashes the names and sizes of the model's files, small files entirely, and both ends of weights files."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".jinja", ".model", ".txt", ".safetensors"):
            with path.open("rb") as file:
                size = path.stat().st_size
                digest.update(f"{path.name} {size} ".encode() + file.read(HASHED_BYTES))
                file.seek(max(0, size - HASHED_BYTES))
                digest.update(file.read())
    return digest.hexdigest()
