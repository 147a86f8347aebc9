"""Scripted participants complete a study through its real HTTP interface, to rehearse it and to check the report.

*Careful* participants answer according to the planted effects and pass control items. *Hasty* ones are halfway between
careful answers and chance, and fail a few control items. *Random* ones ignore the captions. They receive only what
people would see, captions and pixels, and use it to look up the trial in the study's folder.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import random
import secrets
import shutil
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.data import open_data
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.scorers import load_scorer
from tellapart.study.create import Material, StudyPlan, create_study
from tellapart.study.design import ASPECTS, ITEM, Study, Trial, check_pictures, option_counts
from tellapart.study.server import create_app
from tellapart.study.session import StudySession
from tellapart.study.store import AnswerStore
from tellapart.utils.progress import Progress
from tellapart.utils.web.server import LOOPBACK, bind, server_of

CAREFUL, HASTY, RANDOM = "careful", "hasty", "random"
ACCURACY_MEAN, FLUENCY_MEAN, NOISE = 3.9, 4.4, 0.8  # for simulated ratings
TIMEOUT = 60.0  # seconds


@dataclass
class ParticipantLog:
    """Records how long the scripted participants' requests take, in seconds, by kind."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    acknowledged: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    characters: dict[str, str] = field(default_factory=dict)  # by identifier
    lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, kind: str, seconds: float) -> None:
        """Records one request."""
        with self.lock:
            self.seconds.setdefault(kind, []).append(seconds)

    def percentile(self, share: float, kinds: Sequence[str] = ()) -> float:
        """Returns a percentile of the request latency in seconds, over the given kinds (default: all)."""
        values = [v for kind, own in self.seconds.items() if not kinds or kind in kinds for v in own]
        return float(np.quantile(values, share, method="inverted_cdf")) if values else math.nan


def planted_effects(study: Study, given: Sequence[str] = ()) -> dict[str, float]:
    """Returns the effect x of each system, 0 to 1, from ``NAME=VALUE``. Default: 0.35 (first system) to 0.75 (last).

    ``pick``: probability of choosing the target. ``rate``: descriptiveness 1 + 4·x. ``compare``: strength; a beats b
    with probability a / (a + b).
    """
    step = 0.4 / max(1, len(study.systems) - 1)
    found = {name: 0.35 + step * place for place, name in enumerate(study.systems)}
    for text in given:
        name, _, value = text.rpartition("=")
        if name not in found:
            raise UsageError(f"--effect {text}: unknown system '{name}'{nearest(name, found)}")
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageError(f"--effect {text}: expected NAME=NUMBER, such as {name}=0.5") from None
        if not 0 < found[name] < 1:
            raise UsageError(f"--effect {text}: expected a number between 0 and 1")
    return found


class Web:
    """One browser with a persistent connection."""

    def __init__(self, url: str, log: ParticipantLog) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url}: expected a URL such as http://127.0.0.1:8766")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=TIMEOUT)
        self._origin, self._log = f"{parts.scheme}://{parts.netloc}", log
        self.token = ""

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Sends a request and returns status and content. Reopens a closed connection once."""
        headers = {"Origin": self._origin, "Content-Type": "application/json"}
        if self.token:
            headers["X-Participant"] = self.token
        data = None if body is None else json.dumps(body).encode()
        kind = "picture" if path.startswith("/pictures/") else path.rpartition("/")[2] or "page"
        for last in (False, True):
            started = time.perf_counter()
            try:
                self._connection.request("GET" if data is None else "POST", path, data, headers)
                answer = self._connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if last:
                    raise TellapartError(f"{self._origin}: no answer ({error or type(error).__name__})") from None
                continue
            self._log.request(kind, time.perf_counter() - started)
            return answer.status, content
        raise AssertionError

    def json(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request and returns the JSON reply. Raises `TellapartError` for any status other than 200."""
        status, content = self.ask(path, body)
        found: dict[str, Any] = json.loads(content)
        if status != 200:
            raise TellapartError(f"{path}: {status}: {found.get('error', '')}")
        return found

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class Script:
    """One scripted participant with a random ability."""

    def __init__(self, study: Study, effects: Mapping[str, float], character: str, seed: str) -> None:
        self.study, self.effects, self.character = study, effects, character
        self.random = random.Random(seed)
        self.ability = self.random.gauss(0, 0.3)  # in logits
        self._trials: dict[tuple[str, ...], list[Trial]] = {}
        for trial in study.trials:
            self._trials.setdefault(tuple(sorted(trial.captions)), []).append(trial)

    def take(self, web: Web, log: ParticipantLog, think: float, identifier: str, stop_after: int | None = None) -> str:
        """Takes part and returns how the participation ended. think: mean seconds per answer. stop_after: number of
        answers before leaving.
        """
        for path in ("/", "/base.css", "/base.js", "/page.css", "/page.js"):
            web.ask(path)
        about = web.json("/api/study")
        self._look(web, about["example"]["pictures"] if about["example"] else [])
        web.token = secrets.token_hex(24)
        key = self.study.settings.recruitment.link_key
        body = {"consent": True, "identifier": identifier, "study": "simulated", "session": "", "key": key}
        state = web.json("/api/begin", body)
        web.token = state.get("token", "")
        given = 0
        while state["phase"] in ("practice", "items"):
            if stop_after is not None and given >= stop_after:
                return "stopped"
            task = state["task"]
            files = self._look(web, task["pictures"])
            if think:
                factor = 0.3 if self.character != CAREFUL else 1.0
                time.sleep(self.random.expovariate(1 / (think * factor)))
            options = self.options(task["captions"], files)
            body = {"position": state["position"], "options": options, "revision": state["revision"]}
            state = web.json("/api/answer", body)
            given += 1
            with log.lock:
                log.acknowledged += 1
        if state["phase"] == "review":
            state = web.json("/api/finish", {})
        return str(state["phase"])

    def _look(self, web: Web, addresses: Sequence[str]) -> list[str]:
        """Identifies pictures by their pixels; returns their file names."""
        names = []
        for address in addresses:
            status, content = web.ask(address)
            if status != 200:
                raise TellapartError(f"{address}: {status}")
            names.append(hashlib.sha256(content).hexdigest()[:32])
        return names

    def options(self, captions: Sequence[str], files: Sequence[str]) -> list[int]:
        """Returns this participant's answer, as displayed options."""
        chance = self.random
        count = option_counts(self.study.kind, len(files))
        if self.character == RANDOM:
            return [chance.randrange(options) for options in count]
        trial = self._trial(captions, files)
        if trial.role != ITEM:
            return self._easy(trial, captions, files, count)
        return {"pick": self._pick, "rate": self._rate, "compare": self._compare}[self.study.kind](
            trial, captions, files
        )

    def _trial(self, captions: Sequence[str], files: Sequence[str]) -> Trial:
        seen = sorted(files)
        for trial in self._trials.get(tuple(sorted(captions)), ()):
            if sorted(name[:32] for name in trial.pictures) == seen:
                return trial
        raise TellapartError("the server is running a different study from the one in this folder")

    def _easy(self, trial: Trial, captions: Sequence[str], files: Sequence[str], count: Sequence[int]) -> list[int]:
        """Answers control and practice items; hasty participants make occasional mistakes."""
        if self.random.random() < (0.02 if self.character == CAREFUL else 0.08):
            return [self.random.randrange(options) for options in count]
        wanted = [self.random.choice(want) if want else 0 for want in trial.expected]
        if self.study.kind == "pick":
            return [files.index(trial.pictures[0][:32])]
        if self.study.kind == "compare" and tuple(captions) != trial.captions:
            return [2 - wanted[0], (0, 2, 1, 3)[wanted[1]]]
        return wanted

    def _strength(self, system: str, chance: float) -> float:
        value = self.effects[system]
        value = 1 / (1 + math.exp(-(math.log(value / (1 - value)) + self.ability)))
        return value if self.character == CAREFUL else (value + chance) / 2

    def _pick(self, trial: Trial, _: Sequence[str], files: Sequence[str]) -> list[int]:
        right = files.index(trial.pictures[0][:32])
        if self.random.random() < self._strength(trial.systems[0], 1 / len(files)):
            return [right]
        return [self.random.choice([place for place in range(len(files)) if place != right])]

    def _rate(self, trial: Trial, _: Sequence[str], __: Sequence[str]) -> list[int]:
        means = {ASPECTS[0]: 1 + 4 * self._strength(trial.systems[0], 0.5), ASPECTS[1]: ACCURACY_MEAN}
        item = random.Random(f"{trial.unit} {trial.systems}").gauss(0, 0.4)  # the caption's effect on all raters
        drawn = (self.random.gauss(means.get(aspect, FLUENCY_MEAN) + item, NOISE) for aspect in ASPECTS)
        return [min(4, max(0, round(value) - 1)) for value in drawn]

    def _compare(self, trial: Trial, captions: Sequence[str], _: Sequence[str]) -> list[int]:
        first, second = (self._strength(system, 0.5) for system in trial.systems)
        flipped = tuple(captions) != trial.captions
        more = 1 if self.random.random() < 0.15 else 0 if self.random.random() < first / (first + second) else 2
        wrong = self.random.choices(range(4), (0.6, 0.15, 0.15, 0.1))[0]
        return [2 - more if flipped else more, (0, 2, 1, 3)[wrong] if flipped else wrong]


def run_participants(
    study: Study,
    url: str,
    effects: Mapping[str, float],
    counts: Mapping[str, int],
    *,
    think: float = 0.0,
    seed: int = 0,
    at_once: int = 8,
) -> ParticipantLog:
    """Runs scripted participants at ``url``, ``at_once`` concurrently.

    ``counts``: number of participants per behaviour profile.
    """
    log = ParticipantLog()
    characters = [character for character, count in counts.items() for _ in range(count)]
    random.Random(seed).shuffle(characters)

    def one(number: int) -> None:
        web = Web(url, log)
        identifier = f"SIMULATED{seed}.{number}"
        with log.lock:
            log.characters[identifier] = characters[number]
        try:
            script = Script(study, effects, characters[number], f"{seed} {number}")
            end = script.take(web, log, think, identifier)
        finally:
            web.close()
        with log.lock:
            log.ends[end] = log.ends.get(end, 0) + 1

    with ThreadPoolExecutor(at_once) as pool, Progress(len(characters), "participants") as progress:
        for _ in pool.map(one, range(len(characters))):
            progress.advance()
    return log


@contextmanager
def local_server(study: Study, store: AnswerStore) -> Iterator[str]:
    """Serves the study in a thread of this process until the end of the ``with`` block. Yields the address."""
    listener = bind(0)
    port = listener.getsockname()[1]
    server = server_of(create_app(StudySession(study, store), port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


def rehearsal_counts(participants: int, hasty: float, blind: float) -> dict[str, int]:
    """Returns the number of participants with each profile; at least one is careful."""
    if not (hasty >= 0 and blind >= 0 and hasty + blind < 1):
        raise UsageError(
            "--hasty and --random must leave a fraction of careful participants; use values such as 0.2 and 0.1"
        )
    rest = {HASTY: round(hasty * participants), RANDOM: round(blind * participants)}
    return {CAREFUL: max(1, participants - sum(rest.values())), **rest}


def store_of_rehearsal(folder: Path) -> Path:
    """Returns the path of a rehearsal's answers, which are stored separately from real ones."""
    return folder / "simulated" / "answers.sqlite"


SCENES = "scenes:plain?split=test&n=400"


@dataclass(frozen=True)
class Rehearsal:
    """The outcome of a rehearsal: the answers' path, the planted effects, and timings."""

    store: Path
    counts: dict[str, int]
    effects: Mapping[str, float]
    log: ParticipantLog
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of ``study simulate --json``."""
        return {
            "participants": self.counts,
            "effects": dict(self.effects),
            "acknowledged": self.log.acknowledged,
            "ends": self.log.ends,
            "seconds": round(self.seconds, 1),
            "answer_p95_ms": round(1000 * self.log.percentile(0.95, ("answer",)), 1),
            "request_p95_ms": round(1000 * self.log.percentile(0.95), 1),
        }

    def line(self) -> str:
        """Formats the outcome as one line."""
        who = ", ".join(f"{count} {character}" for character, count in self.counts.items() if count)
        return (
            f"{who}: {self.log.acknowledged:,} answers in {self.seconds:.1f} s; 95% of answers "
            f"took less than {1000 * self.log.percentile(0.95, ('answer',)):.0f} ms, 95% of all "
            f"requests less than {1000 * self.log.percentile(0.95):.0f} ms"
        )


def rehearse(
    study: Study,
    participants: int | None = None,
    hasty: float = 0.15,
    blind: float = 0.1,
    effects: Sequence[str] = (),
    *,
    think: float = 0.0,
    at_once: int = 8,
    url: str | None = None,
    seed: int = 0,
) -> Rehearsal:
    """Rehearses a study with scripted participants. url: a running server; None: starts one with a new store.

    Ignores ``id_pattern``, except on a running server. Raises `UsageError` if a timing rule would exclude all
    participants because they answer instantly.
    """
    if study.settings.exclusion.min_median_seconds and not think:
        raise UsageError("min_median_seconds excludes participants without thinking time; add --think SECONDS")
    check_pictures(study)
    count = participants or max(4, -(-study.quota * 5 // 4))
    if not math.isfinite(think):
        raise UsageError(f"--think {think:g}: expected seconds, such as 0.5")
    planted, counts = planted_effects(study, effects), rehearsal_counts(count, hasty, blind)
    started = time.perf_counter()
    path = store_of_rehearsal(study.folder)
    if url is not None:
        log = run_participants(study, url.rstrip("/"), planted, counts, think=think, seed=seed, at_once=at_once)
        return Rehearsal(path, counts, planted, log, time.perf_counter() - started)
    if path.parent.exists():
        shutil.rmtree(path.parent)
    with AnswerStore.open(study, path) as store:
        store.set_stamp(study.stamp, time.time())
        with local_server(_open_to_all(study), store) as address:
            log = run_participants(study, address, planted, counts, think=think, seed=seed, at_once=at_once)
        saved = len(store.answers())
    if saved != log.acknowledged:
        raise TellapartError(f"{path}: the server acknowledged {log.acknowledged:,} answers, but {saved:,} are stored")
    return Rehearsal(path, counts, planted, log, time.perf_counter() - started)


def _open_to_all(study: Study) -> Study:
    """Returns the study with any identifier allowed. This keeps its stamp, because ``[recruitment]`` is not stamped."""
    recruitment = study.settings.recruitment.model_copy(update={"id_pattern": ".+"})
    return replace(study, settings=study.settings.model_copy(update={"recruitment": recruitment}))


def scenes_study(kind: str, folder: Path) -> Study:
    """Creates a small study on the synthetic world, with vague and detailed captions, for a rehearsal without data."""
    items = list(open_data(SCENES))
    captions = {
        "vague": {item.id: min(item.references, key=len) for item in items},
        "detailed": {item.id: item.truth.description for item in items},
    }
    references = {item.id: item.references for item in items}
    features_ND = None
    if kind == "pick":
        scorer = load_scorer("scenes", best_device())
        features_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    plan = StudyPlan(
        kind=kind,
        items=30 if kind == "pick" else 40,
        candidates=6 if kind == "pick" else 2,
        block=20,
        raters=10 if kind == "compare" else 4,  # has a third of the blocks
        human="first" if kind != "compare" else "none",
        max_cosine=0.98,  # scenes are more similar than photos
        title="A rehearsal",
        researcher="nobody",
        institution="none",
        contact="none",
        ethics="not required: no human participants",
        payment="Nobody is paid.",
    )
    return create_study(folder, Material(items, captions, references, features_ND, {"data": [SCENES]}), plan)
