"""The wheel and the sdist: what they hold, what the package index shows, and that an installation of them works."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from child import run_commands

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
INTERPRETERS = ["python3.11", "python3.12", "python3.13"]


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Returns stdout; fails with everything that was printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TELLAPART"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    pytest.importorskip("build")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "tellapart"
    modules = {f"tellapart/{file.relative_to(package)}" for file in package.rglob("*.py")}
    assert modules <= names
    assert "tellapart/py.typed" in names and "tellapart/recipe/shipped/demo.toml" in names
    assert any(name.endswith(".safetensors") for name in names) and any(name.endswith("LICENSE") for name in names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"tellapart"}


def test_the_sdist_builds_and_tests_the_package(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src/tellapart/__init__.py"} <= names


def test_the_index_accepts_the_description(dist: Path) -> None:
    pytest.importorskip("twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())


def test_links_of_the_description_are_absolute_and_lead_to_files(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    raw = PROJECT["urls"]["Repository"].replace("https://github.com/", "https://raw.githubusercontent.com/")
    places = (f"{PROJECT['urls']['Repository']}/blob/main/", f"{raw}/main/")
    ours = [link.removeprefix(place) for link in links for place in places if link.startswith(place)]
    assert all("://" in link for link in links) and len(ours) > 20
    assert all((ROOT / name.partition("#")[0]).exists() for name in ours)
    images = re.findall(r"!\[[^]]*\]\(([^)\s]+)\)", text)
    assert images and all(image.startswith(places[1]) for image in images)


def test_the_metadata_says_who_where_and_for_what(metadata: Message) -> None:
    assert metadata["Author"] == "The tellapart authors"
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= {
        line.partition(",")[0] for line in metadata.get_all("Project-URL", [])
    }
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers and any(c.startswith("Operating System ::") for c in classifiers)
    assert [c[-4:] for c in classifiers if re.search(r":: 3\.\d+$", c)] == ["3.11", "3.12", "3.13"]


def test_the_extras_are_those_that_the_docs_list() -> None:
    page = (ROOT / "docs" / "get-started.md").read_text("utf-8")
    assert re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE) == sorted(PROJECT["optional-dependencies"])


def environment_of(wheel: Path, folder: Path, interpreter: Path | None) -> Path:
    """A fresh environment with the wheel; its dependencies are read from the one that runs this test.

    Of another interpreter, whose version they are not built for, the wheel alone is there.
    """
    if interpreter is None:
        venv.create(folder, with_pip=False)
    else:
        run(interpreter, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    if interpreter is None:
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_an_installed_wheel_works(wheel: Path, tmp_path: Path) -> None:
    """Outside a clone: the version without a commit, captions offline, public names with types, no torch on import."""
    commands = environment_of(wheel, tmp_path / "environment", None)
    version = run(commands / "tellapart", "--version", cwd=tmp_path).strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) and version in wheel.name
    code = (
        "import sys, tellapart; assert 'torch' not in sys.modules; "
        "assert {'load_captioner', 'load_scorer', 'evaluate', 'open_data'} <= set(dir(tellapart)); "
        "print(tellapart.__file__); print(tellapart.load_captioner.__module__)"
    )
    place, module = run(commands / "python", "-c", code, cwd=tmp_path).split()
    assert Path(place).is_relative_to(tmp_path) and module.startswith("tellapart.captioners")
    cache = {"TELLAPART_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run(commands / "tellapart", "caption", "scenes", "scenes:plain?n=3", "-o", "c.jsonl", cwd=tmp_path, **cache)
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 3


DEMO = """
from pathlib import Path
import tellapart
from tellapart.cli import demo
print(tellapart.__file__)
demo.run_demo(Path("demo"), ["training.steps=2", {settings}])
"""


def test_a_wheel_without_the_clone_has_all_that_the_commands_read(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    small = ["data.train=scenes:plain?n=60", "data.validation=scenes:plain?n=120", "data.test=scenes:plain?n=120"]
    settings = [word for setting in ("training.steps=2", *small) for word in ("--set", setting)]
    recipes, train, mine = run_commands(
        ["recipes"],
        ["train", "scenes_smile", *settings, "--out", "run"],
        ["bags", "mine", "scenes:plain?n=30", "--scorer", "scenes", "--size", "3", "-o", "bags.jsonl"],
        environment=alone,
        cwd=tmp_path,
    )
    assert recipes.status == 0 and "scenes_smile" in recipes.out, recipes.err
    assert train.status == 0 and (tmp_path / "run" / "report.html").is_file(), train.err
    assert mine.status == 0, mine.err
    demo = DEMO.replace("{settings}", ", ".join(map(repr, small)))
    done = subprocess.run([sys.executable, "-c", demo], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
    assert (tmp_path / "demo" / "report.html").is_file() and "among look-alikes" in done.stderr
    review = subprocess.Popen(
        [sys.executable, "-c", "from tellapart.cli import main; main()", "bags", "review", "bags.jsonl", "--port", "0"],
        cwd=tmp_path, env=alone, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert review.stderr is not None
        line = next(line for line in review.stderr if "review them at" in line)
        address = re.search(r"http://\S+", line)
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as page:
            assert b"<script" in page.read()
    finally:
        review.send_signal(signal.SIGINT)
        review.communicate(timeout=60)


def find_interpreter(name: str) -> Path | None:
    """The interpreter on the path or among those of pyenv, if it runs: a shim of an inactive version does not."""
    versions = Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}.*/bin/{name}")
    for path in filter(None, (shutil.which(name), *sorted(versions))):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(path)
    return None


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_wheel_imports_on_each_python(wheel: Path, tmp_path: Path, interpreter: str) -> None:
    """What needs no dependency: the package itself, and every module compiles."""
    found = find_interpreter(interpreter)
    if found is None:
        pytest.skip(f"{interpreter} is not installed here; CI has it")
    commands = environment_of(wheel, tmp_path / "environment", found)
    code = (
        "import compileall, pathlib, tellapart; print(tellapart.__version__); root = pathlib.Path(tellapart.__file__)"
    )
    code += "; raise SystemExit(not compileall.compile_dir(root.parent, quiet=1))"
    assert run(commands / "python", "-c", code, cwd=tmp_path).strip() in wheel.name


@pytest.mark.slow
def test_uvx_runs_it(wheel: Path, tmp_path: Path) -> None:
    """Needs the package registry, or uv's cache of it."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    if not Path(uv).exists():
        pytest.skip("uv is not installed here")
    printed = run(uv, "tool", "run", "--from", wheel, "tellapart", "--version", cwd=tmp_path)
    assert printed.strip() in wheel.name
