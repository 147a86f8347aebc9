"""Backend ``local:FOLDER``: a transformers chat model on this machine that answers several threads in batches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.auto import modeling_auto

from tellapart.boost.batcher import Batcher
from tellapart.boost.types import IN_USER_TURN, Answer, BackendError, Request
from tellapart.errors import UsageError
from tellapart.models.chat_templates import RefusedMessages, rendered
from tellapart.models.devices import resolve_device
from tellapart.models.hub_names import check_name
from tellapart.models.loading_errors import loading_errors
from tellapart.models.packages import PARTS, packaged_folder
from tellapart.models.precision import DTYPES, Precision, dtype_of, resolve_precision
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json

EXPECTED = "a chat model in transformers format (config.json, weights, tokenizer with a chat template)"
HASHED_BYTES = 1 << 20  # number of bytes at each end of a weights file that are hashed for the model's name


@dataclass
class Local:
    """A model in a folder or on the hub, loaded on first use.

    Requests that are waiting at the same time are answered in one batch, except for those that are sampled, because
    each has its own seed. If the chat template rejects system prompts, they are moved to the first user turn.
    """

    source: str
    folder: Path
    name: str
    device: torch.device
    precision: Precision
    _no_system: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._batcher = Batcher(self._generate, _greedy_settings)

    @classmethod
    def open(cls, source: str, device: str = "auto", precision: str = "auto") -> Local:
        """Finds the model's files. Their hash is part of the model's name, because different weights give different
        answers.

        The name includes the precision if it differs from that of the files. For ``device`` and ``precision``, see
        `tellapart.models.devices` and `tellapart.models.precision`.
        """
        if not source:
            raise UsageError("local: missing folder; use local:FOLDER")
        with loading_errors(source, EXPECTED):
            folder = _folder(source)
            config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        where = resolve_device(device)
        chosen = resolve_precision(precision, where)
        saved = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
        other = "" if DTYPES.get(chosen, chosen) == saved else f"-{chosen}"
        return cls(source, folder, f"local:{Path(source).name}-{_fingerprint(folder)}{other}", where, chosen)

    def complete(self, request: Request) -> Answer:
        """Returns one answer. Raises `BackendError` if the model does not accept pictures, and `PictureError` for bad
        pictures.
        """
        return self._batcher.answer(request, request.picture.image() if request.picture is not None else None)

    def _generate(self, requests: list[Request], images: list[Image.Image | None]) -> list[Answer]:
        """Generates the answers to one batch. All requests have the same settings, and either all have pictures or
        none do.
        """
        model, processor = self._loaded
        request, tokenizer = requests[0], _tokenizer(processor)
        if images[0] is not None and tokenizer is processor:
            raise BackendError(
                f"{self.name}: this model does not accept pictures; specify another one with --mllm", fatal=True
            )
        inputs = self._templated(requests, images, processor).to(model.device)
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
        new_BT = written_BT[:, inputs["input_ids"].shape[1] :].tolist()
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        answers = []
        for row_T, read in zip(new_BT, read_B, strict=True):
            end = next((place + 1 for place, token in enumerate(row_T) if token in ends), None)
            length = end or max((n for n, token in enumerate(row_T, 1) if token != tokenizer.pad_token_id), default=0)
            text = tokenizer.decode(row_T[:length], skip_special_tokens=True)
            for stop in request.stop:
                text = text.partition(stop)[0]
            cut = length >= request.max_tokens and not end
            answers.append(Answer(text, read, length, "length" if cut else "stop"))
        return answers

    def _templated(self, requests: list[Request], images: list[Image.Image | None], processor: Any) -> Any:
        """Applies the chat template to the requests, tokenizes them with padding on the left, and processes the
        pictures. Raises `UsageError` if the template rejects the requests.
        """
        asked = [request.without_system() for request in requests] if self._no_system else requests
        parts = _tokenizer(processor) is not processor
        turns = [_turns(request, image, parts=parts) for request, image in zip(asked, images, strict=True)]
        try:
            rendered(self.source, processor, turns)
            return processor.apply_chat_template(
                turns, add_generation_prompt=True, tokenize=True, padding=True, return_dict=True, return_tensors="pt"
            )
        except RefusedMessages as error:
            if self._no_system or all(request.messages[0].role != "system" for request in requests):
                raise
            self._no_system = True
            say(f"{self.name}: {IN_USER_TURN}, because its chat template reports: {error.words}")
            return self._templated(requests, images, processor)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The model and its processor, or a text-only model and its tokenizer."""
        with loading_errors(self.source, EXPECTED):
            config = transformers.AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
            sees = config.model_type in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
            reader = transformers.AutoProcessor if sees else transformers.AutoTokenizer
            processor = reader.from_pretrained(self.folder, trust_remote_code=False)
            kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
            model: Any = kind.from_pretrained(self.folder, dtype=dtype_of(self.precision), trust_remote_code=False)
            model.eval()
        if not processor.chat_template:
            raise UsageError(f"{self.source} has no chat template, so it cannot answer requests; specify a chat model")
        tokenizer = _tokenizer(processor)
        tokenizer.padding_side = "left"  # because generation continues at the right end
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model.to(self.device), processor


def _tokenizer(processor: Any) -> Any:
    """Returns a processor's tokenizer. For a text-only model, ``processor`` is already the tokenizer."""
    return getattr(processor, "tokenizer", processor)


def _turns(request: Request, image: Image.Image | None, *, parts: bool) -> list[dict[str, Any]]:
    """Formats messages for a chat template. ``parts``: whether to split the content into parts, with the picture in the
    last user turn.
    """
    if not parts:
        return [{"role": message.role, "content": message.text} for message in request.messages]
    turns = [{"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in request.messages]
    if image is not None:
        question: Any = next(turn for turn in reversed(turns) if turn["role"] == "user")
        question["content"].insert(0, {"type": "image", "image": image})
    return turns


def _greedy_settings(request: Request) -> object:
    """Returns a key that is equal for requests that can share a batch. Greedy requests with the same settings have the
    same key; the key of a sampled request is unique.
    """
    return id(request) if request.temperature else (request.picture is None, request.max_tokens, request.stop)


def has_chat_template(source: str) -> bool:
    """Returns whether a model's files (for a hub model, its cached files) include a chat template."""
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
    name = str(folder) if folder.is_dir() else source
    return Path(str(transformers.utils.hub.cached_file(name, "config.json"))).parent


def _fingerprint(folder: Path) -> str:
    """Hashes the name and size of each of the model's files, and its content. Hashes only both ends of large files."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".jinja", ".model", ".txt", ".safetensors"):
            with path.open("rb") as file:
                size = path.stat().st_size
                digest.update(f"{path.name} {size} ".encode() + file.read(HASHED_BYTES))
                file.seek(max(0, size - HASHED_BYTES))
                digest.update(file.read())
    return digest.hexdigest()
