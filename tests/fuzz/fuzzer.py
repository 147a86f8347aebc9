"""Commands with damaged arguments and damaged files, typed in this process; what a command must never do is counted.

    python tests/fuzz/fuzzer.py --seed 0 --cases 2000          # all, with what failed in the end
    python tests/fuzz/fuzzer.py --seed 0 --case 17 --keep DIR  # one again, its files left in DIR, its output shown

A case is a function of (seed, number): a valid command of `COMMANDS`, its files copied from the corpus, and one to
three changes to either. It must end within `SECONDS`, with exit status 0, 1 or 2; a failure is one line on stderr that
begins with "tellapart: "; nothing that a terminal obeys is printed; no temporary file stays behind, and after exit
status 2 no new file at all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz_mutations import damage, mutate_arguments, setting

SECONDS = 10.0  # of processor time: other processes on the machine are no hang
WALL_SECONDS = 60.0
MEMORY = 8 << 30  # bytes that the process may grow by
LIGHT = "length,vocabulary,bleu4,rouge_l,cider,repetition_rate"

TEXTS = f"--metrics {LIGHT} --resamples 5"
CAPTION = "caption %captioner {} -o out.jsonl --max-tokens 2 --beams 1"
LAYOUTS = (
    "csv:@data.csv", "@data.tsv", "@data.parquet", "@shard-000.tar", "webdataset:@shard-{000..000}.tar", "hf:@saved",
    "coco:@coco.json?images=@photos", "karpathy:@karpathy.json?images=@photos&split=test",
    "flickr8k:@flickr?split=test", "conceptual:@cc.tsv?images=@photos",
    "nocaps:@nocaps_val_captions.json?images=@photos&domain=in", "concadia:@wiki_split.json?images=@photos&text=both",
    "imagecode:@imagecode/valid_data.json?only=described", "msrvtt:@clips/msrvtt.json?images=@clips",
    "tgif:@clips/tgif.tsv?images=@clips", "msvd:@clips?language=english",
    "scenes:plain?n=4&split=test&seed=3&part=1/2", "jsonl:@data.jsonl", "@photos", "@photos/0.png", "@clips",
)  # fmt: skip
# (how often, arguments): @NAME is a copy of that file or folder of the corpus, %NAME the original; +NAME is copied, and
# not typed.
COMMANDS: tuple[tuple[int, str], ...] = (
    (6, f"eval --captions @c.jsonl --references @refs.json {TEXTS}"),
    (3, f"eval --captions @c.csv --captions @samples.jsonl --references @refs.json {TEXTS} --allow-missing"),
    (3, "eval --captions @numbered.jsonl --references @coco.json --metrics length,meteor --resamples 5 --json"),
    (3, "eval --captions @numbered.jsonl --references @karpathy.json --metrics bleu4 --resamples 5 --human mean"),
    (2, f"eval --captions @map.json --references @refs.tsv {TEXTS} --human first --set words=2"),
    (2, f"eval --captions @c.json --references @data.jsonl {TEXTS}"),
    (2, "eval --captions @c.txt --metrics length,lexical_diversity --resamples 5 --seed 3 --json"),
    (2, "eval --captions @samples.jsonl --metrics div1,mbleu --resamples 5"),
    (2, "eval --captions @c.jsonl --data folder:@photos --scorer %scorer --metrics clipscore,recall@1.lookalike "
        "--set lookalike=2 --resamples 5"),
    (2, "eval --captions @c.jsonl --data @photos --scorer %scorer --bags @bags.jsonl --metrics recall@1.bag2"),
    (1, "eval --captions @c.jsonl --data @photos --scorer %scorer --bags @2.json --distractors @clips --resamples 5"),
    (1, "eval --captions @c.jsonl --data @photos --scorer @scorer --metrics clipscore --resamples 5"),
    (1, "eval --captions @numbered.jsonl --data instructions:@chat.jsonl --metrics length --allow-missing"),
    *((1, CAPTION.format(spec)) for spec in LAYOUTS),
    (1, "caption @captioner @photos -o out.jsonl --max-tokens 3 --beams 1"),
    (1, "caption %captioner jsonl:@data.jsonl --format txt --max-tokens 2 --beams 2"),
    (1, "caption %captioner @photos -o out.csv --best-of 2 --scorer %scorer --decoding temperature=1.5 --max-tokens 2"),
    (1, "caption %captioner?features=@features @photos -o out.jsonl --samples 2 --max-tokens 2 --overwrite"),
    (4, "train @tiny.toml --out run --json"), (2, "train @smile.toml --out run"), (2, "train @new.toml --out run"),
    (1, "finetune %captioner jsonl:@data.jsonl -o out --objective smile --steps 1 --max-tokens 3 --scorer %scorer"),
    (2, "bags mine @photos --scorer %scorer -o bags2.jsonl --size 2 --json"),
    (1, "bags build @data.jsonl --scorer %scorer -o bench --size 2,3 --captions references --max-cosine 0.999 "
        "--all-pairs"),
    (1, "bags mine folder:@photos --scorer %scorer --captions @c.jsonl --approximate --size 3"),
    (1, "bags card @bags.jsonl @photos --scorer %scorer -o card --licence free --name x"),
    (3, "bags export @bags.jsonl --decisions @bags.review.sqlite -o curated --keep majority --json"),
    (2, "bags review @bags.jsonl @photos --reviewer Ann --decisions @bags.review.sqlite --port 0"),
    (3, "boost scenes:plain?n=2 -o b.jsonl --llm scripted --mllm scripted:error=0.2&seed=1 --in-flight 1 --json"),
    (3, "boost @data.jsonl -o b.jsonl --llm openai:m@{server}?in=1&timeout=2 --stages blend --in-flight 2"),
    (2, "boost @photos -o b.jsonl --mllm openai:m@{server} --stages describe --shard 1/2 --ledger l.jsonl"),
    (3, "job merge @boosted/1.jsonl @boosted/2.jsonl -o m.jsonl --json"),
    (4, "report @run -o page.html"), (1, "report @run"), (1, "report @done @run -o page.html"),
    (1, "tables 9 --seeds quick"),
    (2, "train @tiny.toml +begun --out begun --resume"), (1, "train @tiny.toml +done --out done"),
    (2, "caption %captioner @photos +out.jsonl +.tellapart-captions.jsonl -o out.jsonl --max-tokens 2 --beams 1"),
    (2, "boost scenes:plain?n=2 -o b.jsonl --llm scripted --mllm scripted --in-flight 1 --ledger @l.jsonl"),
    (1, "eval --metrics clair --captions @c.jsonl --references @refs.json --llm-judge openai:m@{server} "
        "--ledger @l.jsonl"),
    (1, f"eval --captions @c.jsonl --references @refs.json {TEXTS} -o result.md"),
    (3, "bags mine --features @rows -o b.jsonl --size 3 --cluster-size 100 --json"),
    (3, "bags mine --features @rows +b.jsonl.work -o b.jsonl --size 3 --cluster-size 100"),
    (1, "bags pool @photos/0.png --among @photos --scorer %scorer -o pool.jsonl --nearest 2"),
    (2, "data simplify @refs.json -o simple.jsonl --keep subject --json"),
    (1, "report tokens %captioner @data.jsonl --caption dog -o tokens.svg --json"),
    (2, "report changes @c.jsonl @c.csv --data @data.jsonl --scorer %scorer --top 2 --json"),
    (2, "check @c.jsonl @photos"),
    (1, "check @c.jsonl folder:@photos --scorer %scorer --json"),
    (1, "serve %captioner --port 0"),
    (1, "eval headroom %captioner @data.jsonl --samples 2 --max-tokens 2 --json"),
    (1, "recipes --json"), (1, "recipes show scenes_smile"),
    (2, "data encode %scorer @photos -o features --shard-items 3"),
    (2, "data encode %scorer @photos +rows2.job -o rows2 --overwrite"),
    (2, "caption %captioner @photos -o told.jsonl --workers 1 --shard-items 3 --max-tokens 2 --beams 1"),
    (2, "job status @rows2.job --json"), (2, "job merge @rows2.job -o rows3"),
    (2, "job merge @told.jsonl.job -o told.csv"),
    (1, "study create pick @data.jsonl --scorer %scorer --captions @c.jsonl -o new --sets 2 --candidates 2 --block 2 "
        "--controls 0 --max-cosine 0.9999"),
    (1, "study create rate @data.jsonl --captions @c.jsonl -o new --pictures 2 --block 2 --controls 1 --json"),
    (1, "study create compare @data.jsonl --captions @c.jsonl --captions @map.json -o new --pictures 2 --controls 1"),
    (3, "study report @study -o page.html --json"), (2, "study export @study -o answers --with-ids"),
    (1, "study forget @study --all-ids --json"), (2, "study simulate @study --participants 4 --json"),
    (2, "study serve @study --port 0"), (1, "study serve @study --port 0 --preview"),
    (1, "study plan pick --difference 0.1 --items 20 --raters 1 --studies 20 --json"),
    *((1, f"study judges @{name} --references @refs.json --metrics bleu4,length --resamples 5")
      for name in ("ExpertAnnotations.txt", "judged.json", "thumb.jsonl", "foil.json", "detailcaps.jsonl",
                   "composite.csv")),
    (1, "study arena --captions @c.jsonl --captions @map.json --data @photos --llm-judge openai:m@{server} "
        "--resamples 5"),
    (1, "cache --json"), (1, "demo --out run"), (1, "--version"), (1, "data kinds"),
    (2, "alt-text @photos --captions @c.jsonl -o alt.jsonl --embed"),
    (2, "lora @photos --captions @c.jsonl --trigger ohwx"),
    (1, "captions list @photos --json"), (1, "captions history @photos"), (1, "captions undo @photos --last 1"),
    (1, "review @photos --port 0"), (2, "search @photos dog --captions @c.jsonl --json"),
)  # fmt: skip
PLACE = re.compile(r"(?<![\w.])([@%+])(\.?[A-Za-z0-9](?:\{000..000\}|[\w.-])*(?:/[\w.-]+)?)")
TEMPORARY = re.compile(r"(^|/)\.(?!tellapart-captions\.jsonl$)|\.(tmp|part|again)$|\.\d{3,}$")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


class Hang(BaseException):
    """The time is up."""


class Enough(BaseException):
    """The command is valid and has begun its long work."""


@dataclass
class Outcome:
    """What a case did. ``wrong`` is empty where all is well, else the category and what was found."""

    number: int
    command: str
    changes: list[str]
    status: str
    seconds: float
    out: str = ""
    err: str = ""
    wrong: str = ""
    found: str = ""

    def report(self, seed: int) -> str:
        """For a report: how to replay it, and what was wrong."""
        changes = "; ".join(self.changes)
        return f"seed {seed} case {self.number}: {self.wrong}\n  {self.command}\n  changed: {changes}\n{self.found}"


@dataclass
class Fuzzer:
    """Cases over the corpus, below ``folder``."""

    seed: int
    corpus: dict[str, Path]
    folder: Path
    server: str = "http://127.0.0.1:9/v1"
    verb: str = ""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def case(self, number: int) -> Outcome:
        """Type one case. Its folder is removed unless something was wrong."""
        chance = random.Random(f"{self.seed}:{number}")
        commands = [one for one in COMMANDS if one[1].startswith(self.verb)]
        (command,) = chance.choices([command for _, command in commands], [often for often, _ in commands])
        return self.run(number, command, chance, chance.choice((1, 1, 1, 2, 3)))

    def run(self, number: int, command: str, chance: random.Random, changes: int) -> Outcome:
        """Type one of `COMMANDS` with so many changes."""
        home = self.folder / f"case-{number}"
        shutil.rmtree(home, ignore_errors=True)
        work = home / "one" / "two" / "work"
        work.mkdir(parents=True)
        outcome = self._typed(number, *self._prepared(chance, command, work, changes), home, work)
        self.counts[command.split(" ")[0], outcome.wrong or outcome.status] += 1
        return outcome

    def _prepared(self, chance: random.Random, command: str, work: Path, count: int) -> tuple[list[str], list[str]]:
        """The files of a command in its folder; arguments and files changed ``count`` times, and how."""
        own: list[Path] = []

        def put(match: re.Match[str]) -> str:
            name = match[2].partition("/")[0].replace("{000..000}", "000")
            if match[1] == "%":
                return str(self.corpus[name])
            if not (work / name).exists() and name in self.corpus:
                source = self.corpus[name]
                (shutil.copytree if source.is_dir() else shutil.copy2)(source, work / name)
                own.append(work / name)
            if name.startswith("data."):
                put(re.match("(@)(photos)", "@photos"))  # which it names
            return "" if match[1] == "+" else match[2]

        if ".toml" in command:  # a recipe names models and pictures beside it
            for name in ("captioner", "scorer", "photos"):
                (work / name).symlink_to(self.corpus[name])
            shutil.copy(self.corpus["data.jsonl"], work)
        words = command.replace("{server}", self.server).split(" ")
        arguments = [typed for word in words if (typed := PLACE.sub(put, word)) or not word.startswith("+")]
        changes: list[str] = []
        others = sorted(path for path in self.corpus.values() if path.is_file())
        for _ in range(count):
            if ".toml" in command and chance.random() < 0.4:
                arguments += setting(chance)
            elif own and chance.random() < 0.75:
                changes.append(damage(chance, chance.choice(own), others))
            else:
                arguments = mutate_arguments(chance, arguments)
        return arguments, changes

    def _typed(self, number: int, arguments: list[str], changes: list[str], home: Path, work: Path) -> Outcome:
        before, temporary = listed(work), home / "tmp"
        temporary.mkdir()
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        began = time.process_time()
        status, found = "", ""
        with surroundings(home, work, temporary), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = typed(arguments)
            except Enough:
                status = "began"
            except Hang:
                status, found = "hang", traceback.format_exc()
            except BaseException:
                status, found = "traceback", traceback.format_exc()
        texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]  # type: ignore[attr-defined]
        line = shlex.join(["tellapart", *arguments])
        shown = line if len(line) < 3000 else line[:3000] + "…"
        outcome = Outcome(number, shown.encode("utf-8", "backslashreplace").decode(), changes, status,
                          time.process_time() - began, *texts)  # fmt: skip
        judge(outcome, found, sorted(listed(work) - before), listed(temporary))
        if not outcome.wrong:
            shutil.rmtree(home, ignore_errors=True)
        return outcome


def judge(outcome: Outcome, found: str, new: list[str], temporary: set[str]) -> None:
    """Set what is wrong with an outcome, if anything."""
    status = outcome.status
    lines = outcome.err.split("\n")
    told = [line for line in lines if line.startswith("tellapart: ")]
    # A worker's scratch folder goes with the worker, which outlives the command here: tests/jobs/test_scratch.py.
    scratch = {name for name in temporary if name.startswith("tellapart-worker-")}
    left = [path for path in new if TEMPORARY.search(path)] + sorted(temporary - scratch)
    if status in ("traceback", "hang"):
        outcome.wrong, outcome.found = status, found
    elif status not in ("0", "1", "2", "began"):
        outcome.wrong, outcome.found = "status", status
    elif status in ("1", "2") and (len(told) != 1 or lines[-2:] != [told[0], ""]):
        outcome.wrong, outcome.found = "not one line", outcome.err[-3000:]
    elif OBEYED.search(outcome.out + outcome.err):
        outcome.wrong, outcome.found = "control characters", repr(outcome.out[-2000:] + outcome.err[-2000:])
    elif status != "began" and (left or (status == "2" and new)):
        outcome.wrong, outcome.found = "leftovers", f"{left or new} {outcome.err[-500:]}"
    elif status == "0" and "--json" in outcome.command and not_json(outcome.out):
        outcome.wrong, outcome.found = "not JSON", outcome.out[:500]


def not_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return not text.startswith((" ", "\n", "Usage"))  # --help, the version
    return False


def listed(folder: Path) -> set[str]:
    """All paths below a folder, links not followed."""
    return {
        str(Path(where, name).relative_to(folder))
        for where, folders, files in os.walk(folder)
        for name in (*folders, *files)
    }


def typed(arguments: list[str]) -> str:
    """Run a command through `main`; its exit status."""
    from tellapart.cli import main

    sys.argv = ["tellapart", *arguments]
    with time_limit():
        try:
            main()
        except SystemExit as left:
            return str(left.code or 0)
    return "0"


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise `Hang` in what takes too long."""

    def stop(number: int, frame: Any) -> None:
        raise Hang

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, WALL_SECONDS))
    old = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, old, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextlib.contextmanager
def surroundings(home: Path, work: Path, temporary: Path, *, whole: bool = False) -> Iterator[None]:
    """A folder, a home and a place for temporary files of the case's own; long work ends where it begins, unless
    ``whole``."""
    from tellapart.boost.retries import RetryingBackend

    here, argv = Path.cwd(), sys.argv
    os.chdir(work)
    patches = [
        mock.patch.dict(os.environ, {"HOME": str(home), "HF_HUB_OFFLINE": "1"}),
        mock.patch.object(tempfile, "tempdir", str(temporary)),
        mock.patch.dict(RetryingBackend.__init__.__kwdefaults__ or {}, patience=1.0),
        *(mock.patch(name, new) for name, new in long_work() if not whole),
    ]
    try:
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for patch in patches:
                stack.enter_context(patch)
            yield
    finally:
        os.chdir(here)
        sys.argv = argv


def long_work() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What is replaced, by which: training after its first step, servers that wait, claims, demo."""
    from tellapart.training import loop as training

    steps = Counter[str]()
    real = training.train_step

    def first_step(*arguments: Any, **more: Any) -> Any:
        steps["done"] += 1
        if steps["done"] > 1:
            raise Enough
        return real(*arguments, **more)

    def began(*arguments: Any, **more: Any) -> Any:
        raise Enough

    def served(app: Any, listener: Any, ready: Any) -> None:
        listener.close()
        ready("http://127.0.0.1:1/")

    def here(job: Any, wanted: Any, label: str = "") -> None:
        """A job's shards, in this process: a cluster takes many seconds."""
        from tellapart.errors import TellapartError
        from tellapart.jobs.worker import Worker

        worker = Worker(job.path, job.work, job.settings, ".")
        with mock.patch("tellapart.jobs.worker._node", str):
            replies = [worker.start()]
            if "models" in replies[0]:
                job.keep_models(replies[0]["models"])
                done = job.done()
                replies += [worker.run(shard.to_json()) for shard in job.manifest() if shard.number not in done]
        for reply in replies:
            if reply.get("traceback"):
                raise RuntimeError(reply["traceback"])
            if "error" in reply:
                raise TellapartError(reply["error"])

    yield "tellapart.jobs.run.run_job", here
    yield "tellapart.jobs.cluster.load_ray", lambda: None
    yield "tellapart.utils.web.server.serve", served
    yield "tellapart.study.rehearsal.rehearse", began
    yield "tellapart.training.loop.train_step", first_step
    yield "tellapart.review.app.serve", served
    yield "tellapart.cli.demo.run_demo", began
    yield "replication.lab.Lab.__init__", began
    yield "tellapart.boost.retries.random.uniform", lambda low, high: 0.0


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Memory that is asked for beyond reason is refused, and never really taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def summary(counts: Counter[tuple[str, str]]) -> str:
    """A line for each verb: how its cases ended."""
    verbs = sorted({verb for verb, _ in counts})
    rows = []
    for verb in verbs:
        own = {status: count for (of, status), count in sorted(counts.items()) if of == verb}
        rows.append(f"{verb:>12} {sum(own.values()):5}: " + ", ".join(f"{status} {n}" for status, n in own.items()))
    return "\n".join(rows)


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one, with its output")
    parser.add_argument("--verb", default="", help="only commands that begin so")
    parser.add_argument("--keep", type=Path, help="work here, and keep the files of what failed")
    parser.add_argument("--plain", action="store_true", help="every command as it is")
    chosen = parser.parse_args()
    root = (chosen.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))).absolute()
    sys.path[:0] = [str(Path(__file__).parents[2]), *(str(Path(__file__).parents[1] / name) for name in ("", "report"))]
    from fuzz_setting import made_corpus, odd_server

    with odd_server() as server, bounded_memory():
        fuzzer = Fuzzer(chosen.seed, made_corpus(root), root / "cases", server, chosen.verb)
        numbers = [chosen.case] if chosen.case is not None else range(chosen.first, chosen.first + chosen.cases)
        began = time.monotonic()
        wrong = []
        if chosen.plain:
            for place, (_, command) in enumerate(COMMANDS):
                outcome = fuzzer.run(place, command, random.Random(0), 0)
                print(outcome.status, f"{outcome.seconds:.2f}", outcome.command, outcome.err[-300:], outcome.found)
            return
        for number in numbers:
            outcome = fuzzer.case(number)
            if outcome.wrong:
                wrong.append(outcome)
                print(outcome.report(chosen.seed).encode("utf-8", "backslashreplace").decode(), flush=True)
            if chosen.case is not None:
                print(outcome.command, outcome.changes, outcome.status, outcome.out, outcome.err, sep="\n")
        print(summary(fuzzer.counts))
        spent = f"{time.monotonic() - began:.0f} s, {time.process_time():.0f} s of processor time"
        print(f"{len(wrong)} of {len(numbers)} wrong; {spent}")
    if chosen.keep is None:
        shutil.rmtree(root)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
