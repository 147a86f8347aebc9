"""A model's name that does not exist: one question to the hub, near folder names first, one line."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli

from tellapart.captioners import load_captioner
from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.language_model import load_language_model
from tellapart.scorers import load_scorer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What a hub that has no model is asked."""
    paths: list[str] = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            if "/resolve/" in self.path:  # the client asks about itself as well
                paths.append(f"{self.command} {self.path}")
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        online(monkeypatch, f"http://127.0.0.1:{server.server_port}", tmp_path)
        yield paths
        server.shutdown()


def online(monkeypatch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))


@pytest.mark.long
@pytest.mark.parametrize("load", [load_captioner, load_scorer, load_language_model])
def test_the_hub_is_asked_once(load: object, asked: list[str]) -> None:
    with pytest.raises(
        TellapartError, match=r"cannot load some/typo: there is no such folder, and the hub has no"
    ) as told:
        load("some/typo")  # type: ignore[operator]
    assert len(asked) == 1 and "some/typo" in asked[0] and len(str(told.value).splitlines()) == 1


def test_near_folders_come_first(
    asked: list[str], tiny_captioner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_captioner, "runs/flickr8k_mle-24f539bb")
    shutil.copytree(tiny_captioner, "blip-out")
    with pytest.raises(UsageError, match=r"model folder .* does not exist .*did you mean 'runs/flickr8k_mle-24f539bb'"):
        load_captioner("runs/flickr8k_mle-24f539b")
    with pytest.raises(UsageError, match=r"does not exist"):
        load_captioner("runs/flickr8k_mle/model")
    assert not asked  # a path that begins with a folder of here is no name of the hub
    with pytest.raises(TellapartError, match=r"no such folder .did you mean 'blip-out'\?., and the hub has no"):
        load_captioner("blip_out")
    with pytest.raises(TellapartError, match=r"did you mean 'scenes'"):
        load_captioner("scene")


def test_without_a_network_it_is_one_quick_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        online(monkeypatch, f"http://127.0.0.1:{closed.getsockname()[1]}", tmp_path)
        started = time.monotonic()
        done = cli("caption", "some/model", "scenes:plain?n=2", "-o", tmp_path / "c.jsonl")
    assert done.status == 1 and time.monotonic() - started < 8
    assert "the hub did not answer" in done.line
    assert "a local folder works offline" in done.line


def test_offline_nothing_is_asked(cli: Cli, tmp_path: Path) -> None:
    done = cli("caption", "some/model", "scenes:plain?n=2", "-o", tmp_path / "c.jsonl")
    assert done.status == 1 and "it is not in the hub's cache, and HF_HUB_OFFLINE disables downloads" in done.line
