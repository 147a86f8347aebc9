"""What the fuzzer needs around it: tiny models with random weights, the corpus, and a server with odd replies."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fuzz_corpus import build_corpus


def made_corpus(root: Path) -> dict[str, Path]:
    """The corpus below ``root`` with tiny models of its own; the cache of features goes there, too."""
    import torch

    from tellapart.captioners.vision_encoders import load_vision
    from tellapart.metrics import meteor
    from tellapart.recipe.schema import NewCaptioner, NewScorer
    from tellapart.scenes import Scenes
    from tellapart.training.new_models import build_captioner, build_scorer

    index = Path(os.environ["TELLAPART_CACHE"], "meteor").resolve() if "PYTEST_XDIST_WORKER" in os.environ else None
    os.environ |= {"TELLAPART_CACHE": str(root / "cache"), "HF_HUB_OFFLINE": "1"}
    (root / "cache").mkdir(exist_ok=True)
    if index and not (root / "cache" / "meteor").exists():
        (root / "cache" / "meteor").symlink_to(index)
    meteor(["a dog"], [["a cat"]])  # its tables are made once
    if not (root / "corpus").exists():
        torch.manual_seed(0)
        texts = [text for scene in Scenes(20, detail=0.8) for text in scene.references]
        scorer = NewScorer(image_size=32, width=4, text_width=16, text_layers=1, text_heads=2, projection=16)
        build_scorer(scorer, texts, "tiny").save(root / "scorer")
        captioner = NewCaptioner(vision=str(root / "scorer"), width=16, layers=1, heads=2, prefix_length=2)
        build_captioner(captioner, texts, *load_vision(str(root / "scorer")), "tiny").save(root / "captioner")
        build_corpus(root / "corpus", root / "scorer", root / "captioner")
        _typed_once(root)
    assets = {path.name: path for path in (root / "corpus").iterdir()}
    return {**assets, "scorer": root / "scorer", "captioner": root / "captioner"}


def _typed_once(root: Path) -> None:
    """What commands leave in the corpus: a run that is done and one that was stopped, jobs, captions, a ledger."""
    from fuzzer import Enough, surroundings, typed

    corpus, model = root / "corpus", str(root / "captioner")
    for name in ("scorer", "captioner"):
        (corpus / name).symlink_to(root / name)  # which the recipes name
    short = ["--max-tokens", "2", "--beams", "1"]
    commands = [
        ["train", "tiny.toml", "--out", "begun"],
        ["caption", model, "photos", "-o", "out.jsonl", *short],
        ["caption", model, "photos", "-o", "told.jsonl", "--workers", "1", "--shard-items", "3", *short],
        ["data", "encode", str(root / "scorer"), "photos", "-o", "rows2", "--shard-items", "3"],
        [
            "boost",
            "scenes:plain?n=2",
            "-o",
            "b2.jsonl",
            "--llm",
            "scripted",
            "--mllm",
            "scripted",
            "--ledger",
            "l.jsonl",
        ],
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for command in commands:
            with surroundings(root, corpus, root), contextlib.suppress(Enough):
                assert typed(command) == "0", command
        with surroundings(root, corpus, root, whole=True):
            assert typed(["train", "tiny.toml", "--out", "done"]) == "0"
    lines = (corpus / "out.jsonl").read_text().splitlines(keepends=True)
    (corpus / "out.jsonl").write_text("".join(lines[:3]) + lines[3][:9])
    for name in ("scorer", "captioner"):
        (corpus / name).unlink()


GOOD = "A brown dog lies on the lawn with a red ball in the sun."
REPLIES: tuple[tuple[int, bytes], ...] = (
    *((200, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()) for text, usage in (
        (GOOD, {"prompt_tokens": 5, "completion_tokens": 7}), (GOOD, None), (GOOD, {"prompt_tokens": 10**400}),
        ("A dog \ud83d on the lawn.", {}), ("a\0b\x1b[31m", {}), ("", []), (None, 1), ("x" * 100_000, {}),
        ([{"text": GOOD}], {}), ([{"text": 7}], {}), ([7], {}), ({"a": 1}, {}),
    )),
    (200, b"[" * 100_000), (200, b"\xff\xfe"), (200, b""), (200, b'{"choices": [' + b"9" * 5000), (200, b"null"),
    (400, b'{"error": {"message": "\\ud800\\u001b[31mno"}}'), (422, b"[" * 100_000),
    (500, b"\x1b[2J"), (404, b"9" * 5000),
    (301, b""), (401, b"\0"), (999, b"{}"),
)  # fmt: skip


class _Odd(BaseHTTPRequestHandler):
    """Replies by the hash of the request, so that a case is the same every time."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        import hashlib

        body = self.rfile.read(int(self.headers["Content-Length"]))
        choice = int.from_bytes(hashlib.blake2b(body, digest_size=4).digest())
        status, reply = REPLIES[0] if choice % 3 else REPLIES[choice // 3 % len(REPLIES)]
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


@contextlib.contextmanager
def odd_server() -> Iterator[str]:
    """The address of a server that answers a third of the requests in odd ways."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Odd) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
