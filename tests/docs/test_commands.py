"""Every command of README and docs runs: in a folder of photos, captions and clips, with tiny models for large ones.

A command is a line of a ``console`` block that starts with ``$``; what follows is its output, compared where it is
stated (``…`` stands for anything). The commands of a page run in their order, in one folder.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from command_line import Cli, Done
from fault_server import FaultServer, text_of
from workspace import make_workspace

from tellapart.captions.provenance import Provenance

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What stands for large models, data of other places and the runs of hours. Everything else runs as it is written.
SUBSTITUTIONS = {
    "Salesforce/blip-image-captioning-base": "models/captioner",
    "openai/clip-vit-base-patch32": "models/scorer",
    "google/siglip-base-patch16-224": "models/scorer",
    "runs/flickr8k_scorer": "models/scorer",
    "runs/flickr8k_judge": "models/scorer",
    "runs/photos_scorer": "models/scorer",
    "runs/flickr8k_sr": "models/captioner",
    "'flickr8k:../shared/data/flickr8k?split=test'": "photos",
    "../shared/data/framepairs/images": "photos",
    "--llm openai:MODEL@http://127.0.0.1:8000/v1 --mllm openai:OTHER@URL": "--llm scripted --mllm scripted",
    "--llm openai:MODEL@URL": "--llm scripted",
    "openai:MODEL@http://127.0.0.1:8000/v1": "openai:MODEL",  # at the address in OPENAI_BASE_URL: `server`
    "openai:MODEL@URL": "openai:MODEL",
    "'openai:MODEL?batch=1&in=2.5&out=10' photos/ -o batch.jsonl": "openai:MODEL photos/ -o batch.jsonl",
    "coco:coco?split=val": "'scenes:plain?n=20'",
    "--device cuda:1 --precision fp16": "--device cpu --precision bf16",
    "n=3000": "n=30",
    "--nproc 8": "--nproc 2",
    "n=1000": "n=30",
    "my_captioner:make?width=128": "my_captioner:make?width=16&tokenizer=models/words",
    "--size 3,5,7": "--size 3,5",
    "n=200": "n=20",
}

# Options that make a command small: the beginning of a command, and what is added to it.
ADDED = {
    "tellapart study create pick": "--candidates 4 --controls 2 --max-cosine 1 --raters 2",
    "tellapart study create rate": "--pictures 6 --raters 2",
    "tellapart study create compare": "--pictures 6 --raters 2",
    "tellapart finetune": "--batch-size 10 --max-tokens 6 --scorer models/scorer",
    "tellapart eval --captions five_samples.jsonl": "--allow-missing",  # random weights write empty ones
    "tellapart train": (
        "--set training.steps=2 --set training.batch_size=10 --set validation.every=2"
        " --set evaluation.decoding.kind=greedy"
        " --set data.train='scenes:plain?n=40&split=train' --set data.validation='scenes:plain?n=20&split=validation'"
        " --set data.test='scenes:plain?n=20&split=test'"
    ),
}

SCHEMA_ANSWER = '{"caption": "A dog.", "objects": ["dog"], "people": 0}'

# What cannot run here, with the reason: the beginning of a command.
NOT_RUN = {
    "pip install": "changes the environment of the tests",
    "hf upload": "uploads to the hub; tests/training/test_hub.py does it against a local server",
    "make": "what it runs are tests and checks of their own",
    "pytest": "a test of its own",
    "python -m pytest": "tests of their own",
    "tellapart demo": "tests/cli/test_demo.py runs a fifth of it (mark long) and the whole (mark slow)",
    "tellapart review": "a server that runs until Ctrl-C; tests/review drives it",
    "tellapart bags review": "a server that runs until Ctrl-C; tests/bags drives it",
    "python -m benchmarks": "minutes of measuring; tests/benchmarks runs each row on little data (jobs: mark slow)",
    "tellapart bags export": "needs a reviewer's decisions; tests/bags makes some",
    "python -m replication claims vcb-captions": "trains for minutes; tests/replication does it on little data",
    "python -m replication claims smile-length": "trains for minutes; tests/replication does it on little data",
    "python -m replication objectives": "trains for an hour; tests/replication does it on little data",
    "python -m replication front": "trains for an hour; tests/replication does it on little data",
    "python -m replication tradeoff": "trains for half an hour; tests/replication does it on little data",
    "python -m replication claims --seeds": "trains for hours; tests/replication does it on little data",
    "python -m replication claims --power": "reads what hours of training left; tests/replication does it",
    "python -m replication photos --findings --seeds": "trains for an hour; tests/replication has it on little data",
    "python -m replication photos --findings --rows": "trains for minutes; tests/replication has it on little data",
    "python -m replication claims --quick": "trains for 20 minutes; tests/replication does it on little data",
    "tellapart eval --captions mle.jsonl": "reads three runs of hours, and frames that are not part of the project",
    "tellapart eval --captions before.jsonl --references references.jsonl --set bertscore": "needs a hub model",
    "tellapart eval --captions before.txt --captions after.txt --set language_model": "needs a hub model",
    "TELLAPART_JAVA=": "needs SPICE's 500 MB and Java 8; tests/metrics holds the wrapper",
    "tellapart train papers/smile_alpaca": "needs a language model of the hub; test_papers.py trains a tiny one",
    "tellapart caption runs/answers": "captions with the model of the command before",
    "tellapart caption 'runs/NAME": "needs a run and files of region features; tests/features makes some",
    "tellapart train photos_mle --out runs/lm_mle": "needs packages of weights; tests/captioners makes small ones",
    "tellapart train photos_smile --out runs/lm_smile": "continues a run of an hour; tests/recipe has the recipe",
    "tellapart caption runs/lm_smile": "captions with the model of the command before",
    "tellapart eval --captions start.jsonl --captions smile.jsonl": "reads the captions of runs of an hour",
    "tellapart train flickr8k_sr": "trains for 40 minutes; tests/recipe has these recipes on little data",
    "tellapart train ndlb_": "trains three recipes for minutes; tests/test_papers.py and tests/recipe read them all",
    "tellapart serve": "a server that runs until Ctrl-C; tests/inference/test_serve.py asks one",
    "tellapart study serve": "a server that runs until Ctrl-C; tests/study drives it",
    "tellapart study simulate pick": "some seconds of requests; tests/study/test_study_cli.py runs it (mark long)",
    "tellapart study simulate rate": "some seconds of requests; tests/study/test_study_cli.py runs it (mark long)",
    "tellapart study simulate compare": "some seconds of requests; tests/study/test_study_cli.py runs it (mark long)",
    "python tools/flickr8k_truthful.py": "trains for an hour; tests/recipe has it on little data",
    "python tools/openings.py": "reads the real data; its rules are tested in tests/inference/test_not_captions.py",
    "python tools/reference_statistics.py": "reads COCO; tests/scenes/test_grammar.py checks the figures of scenes",
    "sed -i": "changes the code of another project; tests/metrics makes its calls",
    "tellapart boost 'flickr8k:": "needs a package of weights; tests/models asks that model",
    "ray start": "starts servers that stay; tests/jobs/ray_nodes.py starts a cluster",
    "tellapart caption MODEL s3://": "needs a bucket and a cluster; tests/jobs has both",
    "torchrun": "tests/training/test_launchers.py runs it with two processes (mark long)",
    "accelerate launch": "tests/training/test_launchers.py runs it with two processes (mark long)",
    "tellapart tables": "trains for minutes; tests/replication does it on little data",
    "tellapart eval --captions before.jsonl --captions after.jsonl --references references.jsonl --data photos/ "
    "--llm-judge": "needs a server; tests/evaluation has one",
    "tellapart caption 'openai:MODEL?batch=1'": "needs a batch endpoint; tests/inference has one",
    "tellapart caption 'anthropic:MODEL?batch=1'": "needs a batch endpoint; tests/inference has one",
    "tellapart study arena": "needs a server; tests/evaluation has one",
}


class Command(NamedTuple):
    """A documented command with the output that is stated below it, and where it stands."""

    text: str
    output: list[str]
    place: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        if "--push-to-hub" in self.text:
            return "uploads to the hub; tests/training/test_hub.py does it against a local server"
        if "--seeds verdict" in self.text:
            return "a verdict is given once, by a person"
        if "--dry-run" in self.text:
            return None
        return next((why for start, why in NOT_RUN.items() if self.text.startswith(start)), None)


def commands(page: Path) -> list[Command]:
    """The commands of a page's console blocks."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip().startswith("```"):
            inside = line.strip() == "```console"
        elif inside and found and found[-1].text.endswith("\\"):
            found[-1] = found[-1]._replace(text=f"{found[-1].text[:-1].rstrip()} {line.strip()}")
        elif inside and line.startswith("$ "):
            found.append(Command(line[2:], [], f"{page.relative_to(ROOT)}:{number}"))
        elif inside and line.strip():
            found[-1].output.append(line)
    return found


def with_small_names(text: str) -> str:
    """The text with small models and data."""
    for large, small in SUBSTITUTIONS.items():
        text = text.replace(large, small)
    return text


def substituted(text: str) -> str:
    """The command with small models and data, and with the options that make it small."""
    text = with_small_names(text)
    text, comment, note = text.partition("  #")
    added = [options for start, options in ADDED.items() if text.removeprefix("PYTHONPATH=. ").startswith(start)]
    if text.startswith("tellapart finetune") and "--epochs" not in text:
        added.append("--steps 2")
    return " ".join([text, *added]) + comment + note


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, tiny_captioner: Path, tiny_scorer: Path) -> Path:
    """The folder that each page's commands get a copy of."""
    folder = tmp_path_factory.mktemp("docs") / "workspace"
    make_workspace(folder, tiny_captioner, tiny_scorer)
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server at the address that ``openai:MODEL`` means."""
    with FaultServer() as running:
        running.refuses = 10**15
        running.says = lambda body: SCHEMA_ANSWER if b'"response_format"' in body else text_of(body, running.refuses)
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield


def run_command(text: str, cli: Cli) -> Done:
    """Runs one command: tellapart and the examples in this process, everything else in a shell."""
    words = shlex.split(text, comments=True)
    words = words[words[0] == "PYTHONPATH=." :]  # the folder is on the path
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], Path(words[-1])
    if words[:2] == ["tellapart", "caption"] and "-o" in words:
        written = Path(words[words.index("-o") + 1])
        if Provenance.open(written).settings is None:
            written.unlink(missing_ok=True)  # one of the folder's own, which this page makes itself
    if words[0] == "tellapart":
        done = cli(*words[1:])
        if target:
            target.write_text(done.out)
        return done
    if words[0] == "python" and words[1].startswith("examples/"):
        return run_example(*words[1:])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    answer = subprocess.run(text, shell=True, capture_output=True, text=True, timeout=120, env=environment, check=False)
    return Done(answer.returncode, answer.stdout, answer.stderr)


def run_example(path: str, *arguments: str) -> Done:
    """Runs a script; an error of it is the test's."""
    with patch.object(sys, "argv", [path, *arguments]), redirect_stdout(StringIO()) as printed:
        runpy.run_path(path, run_name="__main__")
    return Done(0, printed.getvalue(), "")


def write_modules(folder: Path) -> None:
    """Write the Python blocks that name their file: ``# my_module.py`` or ``\"\"\"my_module.py: …``."""
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for text in blocks:
            if name := re.match(r"(?:# |\"\"\")(\w+\.py)\b", text):
                (folder / name[1]).write_text(with_small_names(text))


def matches(stated: list[str], printed: str) -> bool:
    """Whether each stated line is printed, in this order; ``…`` stands for anything."""
    pattern = r"[\s\S]*".join(
        r".*".join(map(re.escape, line.strip().split("…")))
        for line in re.sub(r"[ \t]+", " ", "\n".join(stated)).split("\n")
    )
    return re.search(pattern, re.sub(r"[ \t]+", " ", printed)) is not None


def pages() -> list[object]:
    """Pages with commands to run; those that take long have the mark ``long``."""
    long = {
        "README.md",
        *(f"docs/{name}.md" for name in ("boost", "captioners", "howto/caption", "howto/extend", "howto/ranks")),
    }
    names = [str(page.relative_to(ROOT)) for page in PAGES if any(c.reason is None for c in commands(page))]
    return [pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in names]


@pytest.mark.long
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("page", pages())
def test_the_commands_of_a_page_run(
    page: str, workspace: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(workspace, folder, symlinks=True)
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("COLUMNS", "160")
    if page.endswith("cache.md"):  # it empties the cache, and the tables of METEOR there belong to all workers
        monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "cache"))
    write_modules(folder)
    for command in commands(ROOT / page):
        if command.reason is None:
            text = substituted(command.text)
            done = run_command(text, cli)
            assert done.status == 0, f"{command.place}: {text}\n{done.err[-2000:]}"
            assert matches(command.output, done.out + done.err), f"{command.place}: {text}\n{done.out}{done.err}"


def test_what_is_not_run_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = [command for page in PAGES for command in commands(page) if command.reason is not None]
    with capsys.disabled():
        for command in skipped:
            print(f"\nnot run: {command.place}: {command.text}: {command.reason}", end="")
    used = {start for start in NOT_RUN for command in skipped if command.text.startswith(start)}
    assert used == set(NOT_RUN), "a reason for a command that is documented nowhere"


# Pages whose commands another test reads: full-size rows, each recipe of which test_papers.py trains on tiny models.
ELSEWHERE = {"docs/papers.md"}


@pytest.mark.parametrize("page", [page for page in PAGES if str(page.relative_to(ROOT)) not in ELSEWHERE], ids=str)
def test_every_command_stands_in_a_console_block(page: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for language, text in blocks:
        if language in ("", "sh", "bash", "shell"):
            assert not re.search(r"^\s*(PYTHONPATH=\S+ )?(tellapart|pip|make|python) ", text, re.MULTILINE), text
