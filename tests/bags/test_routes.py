"""The page's routes over real HTTP: what they give, and what they refuse."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image
from sample_review import ATTACK, BAGS, Client, make_bags, serving

from tellapart.errors import TellapartError, UsageError
from tellapart.review.bags.session import BagReview, open_review
from tellapart.utils.web.server import bind


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bags(tmp_path_factory.mktemp("review"))


@pytest.fixture
def review(bags: Path, tmp_path: Path) -> Iterator[BagReview]:
    opened = open_review(bags, decisions=tmp_path / "d.sqlite")
    with opened.store:
        yield opened


@pytest.fixture(scope="module")
def quiet(bags: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, BagReview]]:
    """A server of the tests that write nothing: starting one for each would take most of their time."""
    opened = open_review(bags, decisions=tmp_path_factory.mktemp("quiet") / "d.sqlite")
    with opened.store, serving(opened) as port:
        yield Client(port), opened
        assert opened.store.log() == []


@pytest.fixture
def client(review: BagReview) -> Iterator[Client]:
    with serving(review) as port:
        yield Client(port)


def test_a_decision_is_there_for_its_reviewer_alone(client: Client, review: BagReview) -> None:
    status, said = client.decide("Ann", 1, "keep", facets=["count", "action"], note=ATTACK)
    assert status == 200 and said["decisions"]["1"]["facets"] == ["action", "count"]
    assert client.decide("Ben", 1, "drop")[0] == 200
    state = json.loads(client.get("/api/state?reviewer=Ann")[2])
    assert list(state["decisions"]) == ["1"] and state["decisions"]["1"]["verdict"] == "keep"
    assert state["last"] == said["decision"]["id"]
    assert state["reviewers"] == [{"name": "Ann", "keep": 1, "drop": 0}, {"name": "Ben", "keep": 0, "drop": 1}]
    assert [len(bag["pictures"]) for bag in state["bags"]] == [2, 2, 2, 3]
    assert json.loads(client.get("/api/state")[2])["decisions"] == {}
    assert state["export"] == f"tellapart bags export {review.path} --decisions {review.store.path}"
    status, said = client.post("/api/undo", {"reviewer": "Ann", "decision": state["last"]})
    assert (status, said["bag"], said["last"], said["decisions"]) == (200, 1, None, {})
    assert [d.reviewer for d in review.store.standing()] == ["Ben"]


def test_the_second_window_is_told_what_stands(client: Client, review: BagReview) -> None:
    first = client.decide("Ann", 0, "keep")[1]["decision"]
    status, said = client.decide("Ann", 0, "drop")
    assert status == 409 and said["current"]["id"] == first["id"] and "another window" in said["error"]
    assert client.post("/api/undo", {"reviewer": "Ann", "decision": first["id"] + 5})[0] == 409
    assert client.decide("Ann", 0, "drop", replaces=first["id"])[0] == 200
    assert [d.verdict for d in review.store.standing()] == ["drop"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://127.0.0.1"},
        {"X_Review_Token": ""},
        {"X_Review_Token": "guessed"},
        {"X_Review_Token": "ü"},
        {"Host": "elsewhere.example"},
        {"Host": ""},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1"},
    ],
)
def test_posts_from_elsewhere_are_refused(quiet: tuple[Client, BagReview], headers: dict[str, str]) -> None:
    """The same post from this page is made in the test of decisions, and works."""
    client, review = quiet
    body = {"reviewer": "Ann", "bag": 0, "verdict": "keep", "facets": [], "note": "", "replaces": None}
    own = {"Origin": client.origin, "X_Review_Token": client.token}
    status, _, _ = client.ask("POST", "/api/decisions", json.dumps(body).encode(), **{**own, **headers})
    assert status in (400, 403) and review.store.log() == []


def test_another_name_for_this_machine_gets_nothing(quiet: tuple[Client, BagReview]) -> None:
    """A site that lets its name point here (DNS rebinding) could else read the token."""
    client, _ = quiet
    for path in ("/", "/api/state", "/pictures/0", "/api/bags/0/captions"):
        status, _, data = client.get(path, Host=f"rebound.example:{client.port}")
        assert status == 403 and client.token.encode() not in data
        assert client.get(path, Host=f"localhost:{client.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/pictures/../secret.txt",
        "/pictures/..%2fsecret.txt",
        "/pictures/%2e%2e/%2e%2e/secret.txt",
        "/pictures/pictures/a.png",
        "/pictures//etc/passwd",
        "/pictures/-1",
        "/pictures/6",
        "/pictures/0.0",
        "/pictures/99999999999999999999999",
        "/page.html",
        "/../app.py",
        "/static/../app.py",
        "/api/bags/4/captions",
        "/api/bags/x/captions",
        "/api/export",
    ],
)
def test_no_path_leads_out(quiet: tuple[Client, BagReview], path: str) -> None:
    client, _ = quiet
    status, _, data = client.get(path)
    assert status in (400, 404), path
    assert b"not for you" not in data and b"root:" not in data and b"import" not in data


def test_pictures_are_those_of_the_bags_and_nothing_but_pixels(quiet: tuple[Client, BagReview]) -> None:
    client, review = quiet
    assert sorted(item.id for item in review.items) == [f"{name}.png" for name in "abcdef"]
    for number, item in enumerate(review.items):
        status, headers, data = client.get(f"/pictures/{number}?whatever")
        assert status == 200 and headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(data)).tobytes() == item.picture.image().tobytes()
    for number in ("6", "9" * 5000, "²", "-1", "1e3"):
        for path in (f"/pictures/{quote(number)}", f"/api/bags/{quote(number)}/captions"):
            assert client.get(path)[0] == 404, path[:40]


def test_every_answer_carries_its_headers(quiet: tuple[Client, BagReview]) -> None:
    client, _ = quiet
    for path in ("/", "/page.js", "/page.css", "/api/state", "/pictures/0", "/nothing"):
        headers = client.get(path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin" and "access-control-allow-origin" not in headers


def test_hostile_texts_never_become_markup(client: Client) -> None:
    """They travel as JSON; the page itself holds none of them, and its script has no way to make markup of a text."""
    _, headers, data = client.get("/api/bags/0/captions")
    assert headers["content-type"] == "application/json" and json.loads(data)[0]["captions"] == [ATTACK]
    assert client.decide(ATTACK[:60], 0, "keep")[0] == 200
    page, script = client.get("/")[2].decode(), (client.get("/base.js")[2] + client.get("/page.js")[2]).decode()
    assert "onerror" not in page and "owned" not in page
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/api/decisions", [], "expected a JSON object"),
        ("/api/decisions", {}, "bag: expected an integer"),
        ("/api/decisions", {"bag": True}, "bag: expected an integer"),
        ("/api/decisions", {"bag": -1}, "no bag -1"),
        ("/api/decisions", {"bag": 4}, "no bag 4; there are 4"),
        ("/api/decisions", {"bag": 0, "facets": [1]}, "facets: expected a list"),
        ("/api/decisions", {"bag": 0, "facets": [], "reviewer": " "}, "reviewer: expected 1 to"),
        ("/api/decisions", {"bag": 0, "facets": [], "reviewer": "A", "replaces": "1"}, "replaces: expected an integer"),
        ("/api/decisions", {"bag": 0, "facets": [], "reviewer": "A", "verdict": "x", "note": ""}, "got 'x'"),
        ("/api/undo", {"reviewer": "A"}, "decision: expected an integer"),
        ("/api/undo", {"reviewer": "A", "decision": 10**30}, "decision: expected an integer"),
        (
            "/api/decisions",
            {"bag": 0, "facets": [], "reviewer": "A", "replaces": -(10**30)},
            "replaces: expected an integer",
        ),
        ("/api/decisions", {"note": "n" * 70_000}, "the request exceeds 65,536 bytes"),
    ],
)
def test_a_post_that_is_none_is_one_line(quiet: tuple[Client, BagReview], path: str, body: object, told: str) -> None:
    client, review = quiet
    status, said = client.post(path, body)
    assert status == 400 and told in said["error"] and "\n" not in said["error"] and review.store.log() == []


def test_a_picture_that_went_bad_is_told_and_the_others_stay(tmp_path: Path) -> None:
    path = make_bags(tmp_path)
    review = open_review(path)
    (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG no more")
    with review.store, serving(review) as port:
        client = Client(port)
        place = [item.id for item in review.items].index("a.png")
        assert client.get(f"/pictures/{place}")[0] == 410
        assert client.get(f"/pictures/{1 - place}")[0] == 200 and client.decide("Ann", 0, "drop")[0] == 200


def test_a_server_that_is_started_again_goes_on(bags: Path, tmp_path: Path) -> None:
    for place, others in ((0, 0), (1, 1)):
        review = open_review(bags, decisions=tmp_path / "d.sqlite")
        with review.store, serving(review) as port:
            client = Client(port)
            assert len(json.loads(client.get("/api/state?reviewer=Ann")[2])["decisions"]) == others
            assert client.decide("Ann", place, "keep")[0] == 200


def test_it_listens_on_the_loopback_address_only_and_says_when_a_port_is_taken() -> None:
    with bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        port = listener.getsockname()[1]
        with pytest.raises(TellapartError, match="is already in use, perhaps by an open review or study: see"):
            bind(port)
    with pytest.raises(UsageError, match="expected 0 to 65535"):
        bind(70_000)


def test_bags_that_name_missing_pictures_open_nothing(bags: Path, tmp_path: Path) -> None:
    path = tmp_path / "bags.jsonl"
    path.write_text(bags.read_text().replace('"f.png"', '"gone.png"'))
    with pytest.raises(UsageError, match=r"1 of its pictures are not in the data \('gone.png'\)"):
        open_review(path)
    path.write_text(bags.read_text().replace(str(bags.parent / "pictures"), "/nowhere"))
    with pytest.raises(UsageError, match=r"/nowhere.*stored in bags.jsonl; to override it, specify the pictures"):
        open_review(path)
    assert list(tmp_path.iterdir()) == [path]
    review = open_review(path, [str(bags.parent / "pictures")])
    with review.store:
        assert review.export_command() == f"tellapart bags export {path}"
        assert len(review.bags) == len(BAGS) and review.store.path == tmp_path / "bags.review.sqlite"
