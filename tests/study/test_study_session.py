"""A participation over HTTP: nothing is lost, nothing counts twice, nothing that is sent can harm."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_study import Clock, answer, browser, edit_settings, make_study
from starlette.requests import Request
from starlette.types import Message

from tellapart.errors import TellapartError, UsageError
from tellapart.study.analysis import analyse
from tellapart.study.design import CONTROL, ITEM, Study
from tellapart.study.limits import StartLimit, TooManyStarts
from tellapart.study.participation import Person, participations
from tellapart.study.rehearsal import local_server
from tellapart.study.scripted import StudyBrowser
from tellapart.study.session import AnswerConflict, StudySession, Unknown
from tellapart.study.store import AnswerStore
from tellapart.utils.web.origins import own_origins
from tellapart.utils.web.requests import read_body


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_study(tmp_path_factory.mktemp("study") / "s")


@pytest.fixture
def served(made: Study, tmp_path: Path) -> Iterator[tuple[Study, AnswerStore, str]]:
    with AnswerStore.open(made, tmp_path / "answers.sqlite") as store, local_server(made, store) as url:
        yield made, store, url


def start(session: StudySession, name: str = "") -> tuple[str, dict[str, Any]]:
    token = secrets.token_hex(24)
    return token, session.begin(token, name)


def walk(session: StudySession, token: str, state: dict[str, Any], until: int | None = None) -> dict[str, Any]:
    """Answer 0 to every item up to a position."""
    while state["phase"] in ("practice", "items") and (until is None or state["position"] < until):
        state = session.answer(token, state["position"], [0], state["revision"])
    return state


def solved(session: StudySession, token: str, state: dict[str, Any], number: int) -> dict[str, Any]:
    """Answer everything, control items as expected, and finish."""
    one = session.store.participants()[number - 1]
    places = session.study.order(one.block, one.ordinal, one.seed)
    while state["phase"] in ("practice", "items"):
        shown = places[state["position"]].displayed([0])
        state = session.answer(token, state["position"], shown, 0)
    return session.finish(token)


# What the browser gets.


def test_neither_target_nor_system_nor_file_reaches_the_browser(served: tuple[Study, AnswerStore, str]) -> None:
    study, _, url = served
    web, state = browser(url, "somebody")
    seen = [json.dumps(web.json("/api/study"))]
    pictures: set[str] = set()
    while state["phase"] in ("practice", "items"):
        seen.append(json.dumps({k: v for k, v in state.items() if k != "feedback"}))
        pictures |= set(state["task"]["pictures"])
        assert set(state["task"]) == {"captions", "pictures"}
        state = answer(web, state, [1])
    text = " ".join(seen)
    units = {trial.unit for trial in study.trials}
    names = {name for trial in study.trials for name in trial.pictures}
    for secret in (*study.systems, *(re.escape(unit) for unit in units), *names, *(name[:16] for name in names)):
        assert not re.search(rf"(?<![\w]){secret}(?![\w])", text), secret
    assert "control" not in text and study.stamp not in text and "target" not in text
    assert all(re.fullmatch(r"/pictures/[0-9a-f]{32}", address) for address in pictures)
    other, state = browser(url, "another")
    shown = set(state["task"]["pictures"])
    assert not shown & pictures, "another participant has other addresses"
    status, content = other.ask(next(iter(shown)))
    assert status == 200 and hashlib.sha256(content).hexdigest()[:32] in {name[:32] for name in names}
    for address in ("/pictures/0", f"/pictures/{next(iter(names))}", "/pictures/..%2fitems.json", "/items.json",
                    "/../study.toml", "/pictures/../answers.sqlite", "/page.html", "/api/participants"):  # fmt: skip
        assert other.ask(address)[0] in (404, 405), address


def test_every_answer_carries_its_headers_and_other_sites_are_refused(served: tuple[Study, AnswerStore, str]) -> None:
    import http.client

    port = int(served[2].rsplit(":", 1)[1])

    def ask(method: str, path: str, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        found = connection.getresponse()
        found.read()
        connection.close()
        return found.status, found.headers

    own = f"http://127.0.0.1:{port}"
    for path in ("/", "/base.js", "/page.js", "/page.css", "/base.css", "/api/study", "/api/state", "/nothing"):
        policy = ask("GET", path)[1]["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert "set-cookie" not in ask("GET", path)[1]
    assert ask("GET", "/", Host="evil.example")[0] == 403
    assert ask("POST", "/api/decline", Origin="https://evil.example")[0] == 403
    assert ask("POST", "/api/decline")[0] == 403, "a request that names no origin"
    assert ask("POST", "/api/decline", Origin=own)[0] == 200


def test_a_public_address_is_known_as_browsers_write_it() -> None:
    assert "https://study.example.org" in own_origins(1, "https://Study.Example.org:443/")
    assert "http://study.example.org" in own_origins(1, "http://study.example.org:80")
    assert "https://study.example.org:8443" in own_origins(1, "https://study.example.org:8443")


def test_a_page_that_is_closed_while_it_sends_is_no_error_of_the_server() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "POST", "headers": []}, gone)
    with pytest.raises(UsageError, match="the connection was closed"):
        asyncio.run(read_body(request))


# One item after the other.


def test_back_by_one_step_and_no_further(made: Study, tmp_path: Path) -> None:
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store)
        token, state = start(session)
        state = walk(session, token, state, until=2)
        assert not state["can_go_back"], "not into the practice"
        with pytest.raises(AnswerConflict):
            session.back(token)
        state = session.answer(token, 2, [1], 0)
        earlier = session.back(token)
        assert (earlier["position"], earlier["answer"], earlier["can_go_back"]) == (2, [1], False)
        changed = session.answer(token, 2, [3], earlier["revision"])
        assert changed["position"] == 3 and session.back(token)["answer"] == [3]
        assert session.answer(token, 2, [3], 2)["position"] == 3, "going on without a change"
        state = session.answer(token, 3, [0], 0)
        with pytest.raises(AnswerConflict):
            session.answer(token, 2, [0], 2)
        state = walk(session, token, state)
        assert state["phase"] == "review" and session.back(token)["phase"] == "items"
        assert session.finish(token)["phase"] == "complete"
        with pytest.raises(AnswerConflict):
            session.back(token)
        assert [a.revision for a in store.answers() if a.position == 2] == [2], (
            "the log keeps both, the last one stands"
        )


def test_double_submit_and_two_windows(made: Study, tmp_path: Path) -> None:
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store)
        token, state = start(session)
        state = walk(session, token, state, until=3)
        again = [session.answer(token, 3, [2], 0) for _ in range(3)]
        assert [one["position"] for one in again] == [4, 4, 4] and len(store.answers()) == 4
        with pytest.raises(AnswerConflict) as behind:  # the other window still shows item 3 and answers otherwise
            session.answer(token, 3, [1], 0)
        assert behind.value.state["position"] == 4 and store.answers()[3].revision == 1
        threads = [threading.Thread(target=lambda n=n: _quiet(session, token, 4, n % 4)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = [answer for answer in store.answers() if answer.position == 4]
        assert len(rows) == 1 and rows[0].revision == 1 and session.state(token)["position"] == 5


def _quiet(session: StudySession, token: str, position: int, option: int) -> None:
    with contextlib.suppress(AnswerConflict):
        session.answer(token, position, [option], 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/answer", {"position": 1, "options": [0], "revision": 0}, 409),  # ahead
        ("/api/answer", {"position": 99, "options": [0], "revision": 0}, 400),
        ("/api/answer", {"position": -1, "options": [0], "revision": 0}, 400),
        ("/api/answer", {"position": True, "options": [0], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [4], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [-1], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [True], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": ["0"], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [0, 0], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [], "revision": 0}, 400),
        ("/api/answer", {"position": 0, "options": [0]}, 400),
        ("/api/answer", [], 400),
        ("/api/answer", {"note": "n" * 70_000}, 400),
        ("/api/begin", {"identifier": "x"}, 400),  # no consent
        ("/api/begin", {"consent": "yes"}, 400),
        ("/api/begin", {"consent": True, "identifier": "../x"}, 400),
        ("/api/begin", {"consent": True, "identifier": "x" * 300}, 400),
        ("/api/begin", {"consent": True, "identifier": "\ud800"}, 400),
        ("/api/begin", {"consent": True, "identifier": "a\0"}, 400),
        ("/api/export", {}, 404),
    ],
)
def test_tampering_is_refused_and_changes_nothing(
    served: tuple[Study, AnswerStore, str], path: str, body: Any, status: int
) -> None:
    _, store, url = served
    web, state = browser(url, "honest")
    found, content = web.ask(path, body)
    assert found == status, content
    assert status == 404 or "\n" not in json.loads(content)["error"]
    assert store.answers() == [] and len(store.participants()) == 1
    assert web.json("/api/state")["task"] == state["task"]


def test_a_strangers_token_opens_nothing(served: tuple[Study, AnswerStore, str]) -> None:
    _, store, url = served
    browser(url, "honest")
    for token in ("", "x", "x" * 5000, "' OR 1=1 --", "\u00e9"):
        web = StudyBrowser(url)
        web.token = token.encode("utf-8").decode("latin-1")
        for path, body in (("/api/state", None), ("/api/answer", {"position": 0, "options": [0], "revision": 0}),
                           ("/api/back", {}), ("/api/finish", {}), ("/api/withdraw", {})):  # fmt: skip
            assert web.ask(path, body)[0] == 401
    assert store.answers() == []


def test_it_goes_on_after_closing_on_the_same_and_on_another_device(made: Study, tmp_path: Path) -> None:
    clock = Clock()
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store, clock)
        token, state = start(session, "p1")
        state = walk(session, token, state, until=4)
        clock.now += 60
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:  # the server was started anew
        session = StudySession(made, store, clock)
        resumed = session.state(token)
        assert resumed["position"] == 4 and resumed["task"]["captions"] == state["task"]["captions"]
        assert resumed["task"]["pictures"] == state["task"]["pictures"]
        clock.now += 5
        state = session.begin(token, "p1")  # another device, with the secret of the page's address
        assert state["position"] == 4 and len(store.participants()) == 1
        clock.now += 7
        session.answer(token, 4, [0], 0)
        assert store.answers()[-1].seconds == 7, "time counts from when the page was shown last"


# Quotas, time-outs, codes.


def test_blocks_are_reserved_with_a_time_out_and_the_study_gets_full(made: Study, tmp_path: Path) -> None:
    clock = Clock()
    assert made.quota == 6  # three systems, two raters
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store, clock)
        tokens = [start(session, f"p{n}")[0] for n in range(6)]
        assert sorted(one.block for one in store.participants()) == [0, 0, 1, 1, 2, 2]
        assert sorted(one.ordinal for one in store.participants()) == [0, 0, 0, 1, 1, 1]
        full = {"phase": "full", "code": made.settings.recruitment.screened_out, "return_url": ""}
        assert start(session, "late")[1] == full
        clock.now += 60 * made.settings.recruitment.timeout_minutes - 1
        session.state(tokens[0])  # a sign of life
        clock.now += 2
        _, state = start(session, "late")
        late = store.participants()[-1]
        assert state["phase"] == "practice" and late.block != store.participants()[0].block
        mates = [
            one.number - 1 for one in store.participants() if one.block == late.block and one.number != late.number
        ]
        assert session.state(tokens[mates[0]])["phase"] == "practice", "there is still room for one who comes back"
        assert session.state(tokens[mates[1]])["phase"] == "expired", "and none for a second"
        assert session.state(tokens[mates[1]])["code"] == made.settings.recruitment.screened_out


def test_codes_for_the_platform(made: Study, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", raters=1)
    study = edit_settings(study, completed="DONE", no_consent="NOPE", return_url="https://app.prolific.com/x?cc=")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store:
        session = StudySession(study, store)
        assert session.decline() == {
            "phase": "no_consent",
            "code": "NOPE",
            "return_url": "https://app.prolific.com/x?cc=NOPE",
        }
        token, state = start(session, "p1")
        assert "DONE" not in json.dumps([session.public(), state]), "no code before the end"
        assert session.finish(token)["phase"] == "practice", "finishing early gives no code"
        done = solved(session, token, state, 1)
        assert done == {"phase": "complete", "code": "DONE", "return_url": "https://app.prolific.com/x?cc=DONE"}
        assert session.finish(token) == done and session.state(token) == done
        assert session.begin(token, "p1") == done
        with pytest.raises(UsageError, match="this identifier is already in use in another browser"):
            start(session, "p1")  # the same person cannot take part twice
        assert store.refusals() == {"no consent": 1} and len(store.participants()) == 1


def test_a_beginning_that_is_sent_again_is_the_same_participation(made: Study, tmp_path: Path) -> None:
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store, local_server(made, store) as url:
        web = StudyBrowser(url)
        body = {"consent": True, "identifier": ""}
        first, again = web.json("/api/begin", body), web.json("/api/begin", body)
        assert first == again and len(store.participants()) == 1
        assert answer(web, again, [0])["position"] == 1
        assert web.ask("/api/begin", {**body, "identifier": "p1"})[0] == 400, "nobody is two people"
        for guessable in ("", "short", "0123456789ABCDEF" * 3):
            web.token = guessable
            assert web.ask("/api/begin", body)[0] == 400
        assert len(store.participants()) == 1


def test_an_identifier_that_others_know_opens_nobodys_participation(made: Study, tmp_path: Path) -> None:
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store, local_server(made, store) as url:
        web, state = browser(url, "5f1e")
        answer(web, state, [0])
        begin = {"consent": True, "identifier": "5f1e"}
        for token in ("0123456789abcdef" * 3, browser(url, "other")[0].token):
            stranger = StudyBrowser(url)
            stranger.token = token
            status, told = stranger.ask("/api/begin", begin)
            assert status == 400 and b"in another browser" in told and made.settings.consent.contact.encode() in told
        assert web.json("/api/begin", begin)["position"] == 1, "whoever has the secret goes on"
        assert len(store.answers()) == 1 and store.participants()[0].status == "active"


def test_links_without_an_identifier_can_be_closed(tmp_path: Path) -> None:
    study = edit_settings(make_study(tmp_path / "s"), require_id=True)
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store:
        session = StudySession(study, store)
        with pytest.raises(UsageError, match="this study is only open to participants from a recruitment"):
            start(session)
        assert start(session, "5f1e")[1]["phase"] == "practice"


def test_nobody_begins_without_the_key_of_the_link(tmp_path: Path) -> None:
    """Nobody can begin in the place of a participant whose identifier they know, or fill the study."""
    study = edit_settings(make_study(tmp_path / "s"), link_key="k3y-of_the-link")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        web = StudyBrowser(url)
        begin = {"consent": True, "identifier": "5f1e"}
        for key in ("", "k3y", "k3y-of_the-linK", "k3y-of_the-lin\u212a"):
            status, told = web.ask("/api/begin", {**begin, "key": key})
            assert status == 400 and b"the study's key is missing from the link" in told
        assert not store.participants()
        state = web.json("/api/begin", {**begin, "key": "k3y-of_the-link"})
        assert state["phase"] == "practice"
        assert web.json("/api/begin", begin)["phase"] == "practice", "the secret alone goes on"
        assert len(store.participants()) == 1 and not store.refusals()
        other = StudyBrowser(url)
        for path, body in (("begin", {**begin, "identifier": ""}), ("decline", {})):
            status, told = other.ask(f"/api/{path}", body)
            assert status == 400 and b"key is missing from the link" in told, "nor does anybody without an identifier"
        assert len(store.participants()) == 1 and not store.refusals()
        whole = {**begin, "identifier": "", "key": "k3y-of_the-link"}
        assert other.json("/api/begin", whole)["phase"] == "practice"


def test_one_address_cannot_fill_the_study(tmp_path: Path) -> None:
    """Whoever has the link could begin again and again. A page that goes on is not counted, other addresses begin."""
    study = edit_settings(make_study(tmp_path / "s"), link_key="k", starts_per_address=2)
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:

        def begin(address: str, name: str = "", token: str = "") -> int:
            body = {"consent": True, "identifier": name, "key": "k"}
            headers = {
                "Origin": url.rstrip("/"),
                "X-Forwarded-For": address,
                "X-Participant": token or secrets.token_hex(24),
            }
            request = urllib.request.Request(f"{url.rstrip('/')}/api/begin", json.dumps(body).encode(), headers)
            try:
                with urllib.request.urlopen(request) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                assert error.code == 400 or error.headers["Retry-After"] == "3600"
                return error.code

        page = "ab" * 24
        assert [begin("203.0.113.7", token=page), begin("203.0.113.7", "made-up-1")] == [200] * 2
        assert begin("203.0.113.7") == begin("203.0.113.7", "made-up-2") == 429
        assert begin("evil, 203.0.113.7") == 429, "what the client writes in front does not count"
        assert begin("203.0.113.7", token=page) == 200, "the same page goes on"
        assert begin("203.0.113.8") == 200
        assert [begin(f"2001:db8::{number}") for number in range(3)] == [200, 200, 429], "a network of IPv6"
        assert len(store.participants()) == 5


def test_starts_are_forgotten_after_an_hour() -> None:
    now = [0.0]
    limit = StartLimit(lambda: now[0])
    for _ in range(2):
        limit.count("203.0.113.7", 2)
    with pytest.raises(TooManyStarts):
        limit.count("203.0.113.7", 2)
    now[0] = 3600.0
    limit.count("203.0.113.7", 2)
    for _ in range(100):
        limit.count("", 2)  # this machine: a preview or rehearsal
        limit.count("203.0.113.9", 0)


def test_a_proxy_that_names_no_address_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    for proxied in (False, True):
        limit = StartLimit(lambda: 0.0, proxied)
        for _ in range(3):
            limit.count("", 2)
        assert capsys.readouterr().err.count("X-Forwarded-For") == proxied


def test_the_place_of_an_excluded_participant_is_free_again(made: Study, tmp_path: Path) -> None:
    for replaced, left in ((True, 1), (False, 0)):
        study = edit_settings(make_study(tmp_path / f"s{replaced}", raters=1), replace_excluded=replaced)
        with AnswerStore.open(study, tmp_path / f"{replaced}.sqlite") as store:
            session = StudySession(study, store)
            people = [start(session, f"p{n}") for n in range(3)]
            for number, (token, state) in enumerate(people[:2], 1):
                solved(session, token, state, number)
            token, state = people[2]
            one = store.participants()[2]
            places = study.order(one.block, one.ordinal, one.seed)
            while state["phase"] in ("practice", "items"):  # always the wrong picture
                state = session.answer(token, state["position"], places[state["position"]].displayed([1]), 0)
            assert session.finish(token)["phase"] == "complete", "who is excluded is paid all the same"
            assert [one.excluded for one in people_of(study, store)] == ["", "", "2 of 2 control items wrong"]
            assert start(session, "next")[1]["phase"] == ("practice" if left else "full")
            assert [one.name for one in analyse(study, store).counted] == ["P1", "P2"]


def test_who_answers_everything_and_never_finishes_is_judged_when_the_time_is_over(tmp_path: Path) -> None:
    clock, study = Clock(), make_study(tmp_path / "s", raters=1)
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store:
        session = StudySession(study, store, clock)
        people = [start(session, f"p{n}") for n in range(3)]
        for (token, state), option in zip(people, (0, 0, 1), strict=True):  # the third fails the control items
            one = next(one for one in store.participants() if one.number == people.index((token, state)) + 1)
            places = study.order(one.block, one.ordinal, one.seed)
            while state["phase"] in ("practice", "items"):
                shown = places[state["position"]].displayed([option])
                state = session.answer(token, state["position"], shown, 0)
        clock.now += 60 * study.settings.recruitment.timeout_minutes - 1
        assert start(session, "early")[1]["phase"] == "full"
        clock.now += 2
        assert start(session, "next")[1]["phase"] == "practice"
        found, judged = store.participants(), people_of(study, store)
        assert [one.status for one in judged] == ["complete", "complete", "complete", "active"]
        assert [one.excluded for one in judged] == ["", "", "2 of 2 control items wrong", ""]
        assert found[3].block == found[2].block
        assert session.state(people[2][0])["phase"] == "complete", "nobody changes an answer after the time is over"
        assert session.finish(people[2][0])["code"] == study.settings.recruitment.completed, "the code is there later"
        assert start(session, "late")[1]["phase"] == "full"


# Privacy.


def test_withdrawing_and_forgetting_leave_nothing_on_the_disk(made: Study, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with AnswerStore.open(made, path) as store:
        session = StudySession(made, store)
        people = {name: start(session, name) for name in ("IDENTIFIER-ONE", "IDENTIFIER-TWO", "IDENTIFIER-THREE")}
        for token, state in people.values():
            walk(session, token, state)
        ended = session.withdraw(people["IDENTIFIER-ONE"][0])
        assert ended["phase"] == "withdrawn" and {answer.participant for answer in store.answers()} == {2, 3}
        with pytest.raises(UsageError, match="this identifier is already in use in another browser"):
            start(session, "IDENTIFIER-ONE")  # and cannot take part again
        assert store.forget("IDENTIFIER-TWO") and not store.forget("IDENTIFIER-TWO")
        with pytest.raises(Unknown):
            session.state(people["IDENTIFIER-TWO"][0])
        assert {answer.participant for answer in store.answers()} == {3}
        assert store.forget_identifiers() == 2 and store.identities() == {}
        assert {answer.participant for answer in store.answers()} == {3}
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"IDENTIFIER" not in files
    for token, _ in people.values():
        assert token.encode() not in files, "only digests of tokens are stored"


# The stamp.


def test_a_design_that_changes_afterwards_needs_a_reason_that_stays(made: Study, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store:
        store.set_stamp(study.stamp, 1.0)
        changed = edit_settings(study, max_control_errors=0)
        store.set_stamp(changed.stamp, 2.0)  # nobody has begun: the design may still change
        assert [one["stamp"] for one in store.stamps()] == [changed.stamp]
        session = StudySession(changed, store)
        token, state = start(session)
        store.set_stamp(changed.stamp, 3.0)
        assert len(store.stamps()) == 1
        back = edit_settings(changed, max_control_errors=1)
        with pytest.raises(UsageError, match="changed after 1 participants began"):
            store.set_stamp(back.stamp, 4.0)
        store.set_stamp(back.stamp, 5.0, "one mistake is human")
        assert store.stamps()[-1] == {
            "at": "1970-01-01T00:00:05Z",
            "stamp": back.stamp,
            "reason": "one mistake is human",
        }
        solved(session, token, state, 1)
        assert any(
            "The design in this folder differs from the registered one" in note
            for note in analyse(changed, store).notes
        )
        assert not any("stamped" in note for note in analyse(back, store).notes)
    with pytest.raises(UsageError, match="answers to another study"):
        AnswerStore.open(made, tmp_path / "a.sqlite")
    older = sqlite3.connect(tmp_path / "a.sqlite")
    older.execute("PRAGMA user_version = 2")  # whose participants had no column ``shown``
    older.close()
    with pytest.raises(UsageError, match="format 2 of answers, but this version reads format 3"):
        AnswerStore.open(changed, tmp_path / "a.sqlite")


# kill -9.


def test_kill_9_takes_no_answer_that_was_acknowledged(made: Study, tmp_path: Path) -> None:
    """A server in a process of its own is killed among answers of four participants, and started again."""
    store_path = tmp_path / "answers.sqlite"
    command = [sys.executable, "-m", "tellapart", "study", "serve", str(made.folder), "--store", str(store_path)]

    def serve(port: int) -> tuple[subprocess.Popen[str], str]:
        server = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found and "study for 6 participants at" in line, line
        return server, found[0]

    server, url = serve(0)
    acknowledged: dict[str, list[tuple[int, list[int]]]] = {f"p{n}": [] for n in range(4)}
    tokens: dict[str, str] = {}

    def take(name: str) -> None:
        web, state = browser(url, name)
        tokens[name] = web.token
        try:
            while state["phase"] in ("practice", "items"):
                position, option = state["position"], (state["position"] + len(name)) % 4
                state = answer(web, state, [option])
                acknowledged[name].append((position, [option]))
                if sum(map(len, acknowledged.values())) == 14:
                    server.send_signal(signal.SIGKILL)
        except TellapartError:
            pass  # the server is gone

    threads = [threading.Thread(target=take, args=(name,)) for name in acknowledged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.wait(20) == -signal.SIGKILL and sum(map(len, acknowledged.values())) >= 14
    server, url = serve(int(url.rsplit(":", 1)[1]))
    try:
        with AnswerStore.open(made, store_path) as store:
            numbers = {name: number for number, name in store.identities().items()}
            saved = {(one.participant, one.position): one.options for one in store.answers()}
            people = {one.number: one for one in store.participants()}
            for name, own in acknowledged.items():
                one = people[numbers[name]]
                places = made.order(one.block, one.ordinal, one.seed)
                for position, option in own:
                    assert saved[one.number, position] == places[position].canonical(option)
            assert len(saved) <= sum(map(len, acknowledged.values())) + 4
        for name, own in acknowledged.items():
            web = StudyBrowser(url)
            web.token = tokens[name]
            state = web.json("/api/state")
            assert state["phase"] == "review" or state["position"] >= len(own), "and everybody goes on where they were"
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


def test_items_are_each_answered_once(made: Study, tmp_path: Path) -> None:
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store)
        token, state = start(session)
        solved(session, token, state, 1)
        trials = [answer.trial for answer in store.answers()]
        assert len(trials) == len(set(trials)) == 2 + 6 + 2
        assert sum(made.trials[trial].role == ITEM for trial in trials) == 6


@pytest.mark.parametrize(("first", "then"), [(0, 2), (2, 0)])
def test_an_amended_rule_of_exclusion_is_one_for_all(first: int, then: int, tmp_path: Path) -> None:
    """Who completed before it included: else the report contradicts itself, or the study is never full."""
    study = edit_settings(make_study(tmp_path / "s", raters=1), max_control_errors=first)
    with AnswerStore.open(study, tmp_path / "answers.sqlite") as store:
        store.set_stamp(study.stamp, 0.0)
        session = StudySession(study, store)
        token, state = start(session, "one")
        (one,) = store.participants()
        for name in ("two", "three"):  # they hold the other blocks
            start(session, name)
        places = study.order(one.block, one.ordinal, one.seed)
        while state["phase"] in ("practice", "items"):
            place = places[state["position"]]
            wrong = study.trials[place.trial].role == CONTROL
            state = session.answer(token, state["position"], place.displayed([1 if wrong else 0]), 0)
        session.finish(token)
        assert bool(people_of(study, store)[0].excluded) == has_room(session) == (first == 0)
        study = edit_settings(study, max_control_errors=then)
        store.set_stamp(study.stamp, 1.0, "the rule was too strict")
        assert bool(people_of(study, store)[0].excluded) == has_room(StudySession(study, store)) == (then == 0)


def people_of(study: Study, store: AnswerStore) -> list[Person]:
    return [one.person for one in participations(study, store)]


def has_room(session: StudySession) -> bool:
    with session.store.transaction() as run:
        return session.blocks.free(run, session.clock()) is not None


def test_who_comes_back_late_for_the_last_item_can_still_change_it(made: Study, tmp_path: Path) -> None:
    clock = Clock()
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store, clock)
        token, state = start(session)
        last = len(made.order(0, 0, "")) - 1
        walk(session, token, state, until=last)
        clock.now += 60 * made.settings.recruitment.timeout_minutes + 1
        assert session.answer(token, last, [0], 0)["phase"] == "review"
        assert session.back(token)["position"] == last


def test_the_time_of_an_item_that_another_window_replaced_is_missing(made: Study, tmp_path: Path) -> None:
    clock = Clock()
    with AnswerStore.open(made, tmp_path / "a.sqlite") as store:
        session = StudySession(made, store, clock)
        token, state = start(session)
        walk(session, token, state, until=4)
        clock.now += 9
        assert session.back(token)["position"] == 3
        clock.now += 6
        session.answer(token, 3, [3], 1)  # in the window that shows it
        assert store.answers()[3].seconds == 6
        session.back(token)
        clock.now += 5
        session.state(token)  # a second window, which shows the next item
        clock.now += 1
        session.answer(token, 3, [2], 2)
        one = store.participants()[0]
        place = made.order(one.block, one.ordinal, one.seed)[3]
        assert store.answers()[3].options == place.canonical([2]) and store.answers()[3].seconds is None
        clock.now += 8
        session.answer(token, 4, [0], 0)
        assert store.answers()[4].seconds == 8
