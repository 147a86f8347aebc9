"""A local transformers model: a language model or a vision-language model.

Requests are answered one at a time. The model is loaded on the first request, so a job
whose answers are all in the ledger loads none.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.boost.types import Answer, BackendError, Message, Request
from tellapart.errors import UsageError
from tellapart.models.device import DTYPES, Precision, dtype_of, resolve_device, resolve_precision
from tellapart.models.loading import check_name, loading_errors
from tellapart.utils.text import parse_json

if TYPE_CHECKING:
    import torch
    from PIL import Image

EXPECTED = "a chat model of transformers (config.json, weights, tokenizer with a chat template)"
SAMPLE = 1 << 20  # bytes of each end of a weights file that the name's hash covers


class Local:
    """A model in a folder or of the hub, which loads when it is first asked."""

    def __init__(self, source: str, folder: Path, name: str, device: torch.device, precision: Precision) -> None:
        self.source, self._folder, self.name, self.device, self.precision = source, folder, name, device, precision
        self._turn = threading.Lock()

    @classmethod
    def open(cls, source: str, device: str = "auto", precision: str = "auto") -> Local:
        """Find the model's files. Its name ends in a hash of them: of other weights, other answers.

        It names the precision, too, where that is another than the files are in. ``device`` and ``precision``: see
        `tellapart.models.device`.
        """
        if not source:
            raise UsageError("local: names no model; type local:FOLDER")
        with loading_errors(source, EXPECTED):
            folder = _folder(source)
        where = resolve_device(device)
        chosen = resolve_precision(precision, where)
        other = "" if chosen == _saved_precision(folder) else f"-{chosen}"
        return cls(source, folder, f"local:{Path(source).name}-{_fingerprint(folder)}{other}", where, chosen)

    def complete(self, request: Request) -> Answer:
        """One answer. Raises `BackendError` for a picture that the model does not see, `PictureError` for a bad one."""
        image = request.picture.image() if request.picture is not None else None
        with self._turn:
            return self._generate(request, image)

    def _generate(self, request: Request, image: Image.Image | None) -> Answer:
        import torch

        model, processor = self._loaded
        sees = hasattr(processor, "tokenizer")
        if image is not None and not sees:
            raise BackendError(f"{self.name}: this model sees no pictures; name another with --mllm", fatal=True)
        inputs = processor.apply_chat_template(
            _conversation(request.messages, image, parts=sees),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(model.device)
        tokenizer = processor.tokenizer if sees else processor
        settings: dict[str, Any] = {"max_new_tokens": request.max_tokens, "do_sample": bool(request.temperature)}
        if request.temperature:
            settings |= {"temperature": request.temperature, "top_p": request.top_p or 1.0, "top_k": 0}
        if request.stop:
            settings |= {"stop_strings": list(request.stop), "tokenizer": tokenizer}
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(request.seed or 0)
            written_T = model.generate(**inputs, **settings)[0, inputs["input_ids"].shape[1] :]
        text = tokenizer.decode(written_T, skip_special_tokens=True)
        finish = "length" if len(written_T) >= request.max_tokens and not _ended(model, written_T) else "stop"
        for end in request.stop:
            text = text.partition(end)[0]
        return Answer(text, inputs["input_ids"].shape[1], len(written_T), finish)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """Model and processor; for a text-only model its tokenizer."""
        from transformers import (
            AutoConfig,
            AutoModelForCausalLM,
            AutoModelForImageTextToText,
            AutoProcessor,
            AutoTokenizer,
        )
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as VISION_MODELS

        with loading_errors(self.source, EXPECTED):
            config = AutoConfig.from_pretrained(self._folder, trust_remote_code=False)
            vision = config.model_type in VISION_MODELS
            processor = (AutoProcessor if vision else AutoTokenizer).from_pretrained(
                self._folder, trust_remote_code=False
            )
            kind = AutoModelForImageTextToText if vision else AutoModelForCausalLM
            model: Any = kind.from_pretrained(self._folder, dtype=dtype_of(self.precision), trust_remote_code=False)
            model.eval()
        if not processor.chat_template:
            raise UsageError(f"{self.source}: has no chat template, so it cannot answer requests; name a chat model")
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


def _ended(model: Any, written_T: Any) -> bool:
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list) else [end]
    return len(written_T) > 0 and int(written_T[-1]) in ends


def _folder(source: str) -> Path:
    """Where the model's files lie: the folder itself, or the hub's in the cache."""
    from transformers.utils.hub import cached_file

    folder = Path(source).expanduser()
    check_name(source, "chat model")
    return Path(str(cached_file(str(folder) if folder.is_dir() else source, "config.json"))).parent


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
