"""The review page's HTTP: what it tells, saves and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from review_server import ATTACK, Client, make_folder, serving

from tellapart.captions.authors import Author
from tellapart.captions.store import CaptionStore, Edit
from tellapart.review.session import ReviewSession
from tellapart.review.start import open_session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        yield Client(port)


def text(folder: Path, number: int) -> str:
    return (folder / f"{number:02}.txt").read_text()


def test_the_state_has_every_picture_and_its_writer(client: Client) -> None:
    rows = client.state["rows"]
    assert [row["id"] for row in rows] == [f"{n:02}.jpg" for n in range(12)]
    assert rows[0]["text"] == ATTACK and rows[1]["by"] == "person" and "by" not in rows[11]
    assert client.state["layout"] == ".txt files" and client.state["writable"] and client.state["undo"] is None


def test_an_edit_is_in_the_file_at_once_and_undone_from_it(client: Client, folder: Path) -> None:
    status, reply = client.write(1, text="  a red shape ", accepted=True)
    assert status == 200 and text(folder, 1) == "a red shape\n"
    assert reply["rows"]["1"]["accepted"] and reply["rows"]["1"]["changed"] and reply["undo"]["what"] == "edit"
    assert [each["text"] for each in client.get("/api/history/1")] == ["a red shape"]
    status, undone = client.post("/api/undo", {"change": reply["undo"]["id"]})
    assert text(folder, 1) == "a shape\n" and undone["redo"] and undone["undo"] is None
    assert "accepted" not in undone["rows"]["1"]
    client.post("/api/undo", {"change": undone["redo"]})
    assert text(folder, 1) == "a red shape\n"
    status, refused = client.post("/api/undo", {"change": undone["redo"]})
    assert status == 400 and "already been undone" in refused["error"]


def test_undo_reaches_the_change_before_one_that_cannot_be_restored(client: Client, folder: Path) -> None:
    client.write(1, text="first")
    _, reply = client.write(2, text="second")
    (folder / "02.txt").write_text("by another program\n")
    _, stuck = client.post("/api/undo", {"change": reply["undo"]["id"]})
    assert stuck["rows"] == {} and stuck["undo"]["id"] != reply["undo"]["id"]
    client.post("/api/undo", {"change": stuck["undo"]["id"]})
    assert text(folder, 1) == "a shape\n" and text(folder, 2) == "by another program\n"


def test_two_tabs_do_not_overwrite_each_other(client: Client, folder: Path) -> None:
    other = Client(client.port)
    client.write(1, text="first")
    status, reply = other.write(1, text="second")
    assert status == 200 and reply["conflicts"] == [1] and reply["rows"]["1"]["text"] == "first"
    assert text(folder, 1) == "first\n"
    assert other.get(f"/api/since?revision={'9' * 5000}")["revision"] >= other.state["revision"]
    assert other.get(f"/api/since?revision={other.state['revision']}")["rows"]["1"]["text"] == "first"
    other.write(1, text="second")  # with the version that it now has seen
    assert text(folder, 1) == "second\n"


def test_an_edit_in_another_program_is_a_conflict_and_is_seen(client: Client, folder: Path) -> None:
    (folder / "03.txt").write_text("in an editor")
    assert client.write(3, text="on the page")[1]["conflicts"] == [3] and text(folder, 3) == "in an editor"
    (folder / "04.txt").write_text("also")
    revision = client.state["revision"]
    assert client.get(f"/api/since?revision={revision}&look=1")["rows"]["4"]["text"] == "also"


def test_find_and_replace_trigger_and_tags_of_many(client: Client, folder: Path) -> None:
    everything = list(range(12))
    _, reply = client.post(
        "/api/batch", {"what": "replace", "numbers": everything, "text": "DOG", "by": r"cat \1", "whole_words": True}
    )
    assert len(reply["rows"]) == 7 and text(folder, 3).startswith(r"cat \1, red ball")
    _, reply = client.post("/api/batch", {"what": "trigger", "numbers": everything, "text": "ohwx,"})
    assert len(reply["rows"]) == 12 and text(folder, 1) == "ohwx, a shape\n" and text(folder, 11) == "ohwx\n"
    assert client.post("/api/batch", {"what": "trigger", "numbers": everything, "text": "ohwx"})[1]["rows"] == {}
    client.post("/api/batch", {"what": "remove tag", "numbers": everything, "text": "Red Ball"})
    assert text(folder, 3).startswith(r"ohwx, cat \1, ") and "red ball" not in text(folder, 3)
    client.post("/api/batch", {"what": "add tag", "numbers": [1], "text": "night"})
    assert text(folder, 1) == "ohwx, a shape, night\n"
    _, reply = client.post("/api/batch", {"what": "accept", "numbers": [1, 2]})
    assert all(row["accepted"] for row in reply["rows"].values())
    for _ in range(5):
        _, reply = client.post("/api/undo", {"change": reply["undo"]["id"]})
    assert text(folder, 3).startswith("dog, red ball, ") and not (folder / "11.txt").exists()


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/api/write", {"edits": {"99": {"text": "x"}}}, "no picture 99"),
        (
            "/api/write",
            {"edits": {"../1": {"text": "x"}}},
            "edits: expected an object that maps picture numbers to edits",
        ),
        ("/api/write", {"edits": {"9" * 5000: {"text": "x"}}}, "edits: expected an object that maps picture numbers"),
        ("/api/write", {}, "edits: expected an object, got nothing"),
        ("/api/write", {"edits": {"1": {"text": 3}}}, "text: expected text of at most 20,000 characters"),
        ("/api/write", {"edits": {"1": {"text": "x" * 20_001}}}, "text: expected"),
        ("/api/write", {"edits": {"1": {"candidates": ["x"]}}}, "candidates: invalid value"),
        ("/api/batch", {"what": "replace", "numbers": [1], "text": ""}, "find: enter"),
        ("/api/batch", {"what": "erase", "numbers": [1]}, "what: expected"),
        ("/api/batch", {"what": "accept", "numbers": ["1"]}, "expected a list of numbers"),
        ("/api/recaption", {"numbers": [1]}, "no captioner loaded; start the review with --model MODEL --scorer MODEL"),
        ("/api/look-alikes", {"number": 1, "text": "x"}, "no scorer"),
        ("/api/undo", {"change": "x"}, "already been undone"),
    ],
)
def test_what_cannot_be_meant_is_refused(client: Client, folder: Path, path: str, body: object, error: str) -> None:
    before = [path.read_bytes() for path in sorted(folder.glob("*.txt"))]
    status, reply = client.post(path, body)
    assert status == 400 and error in reply["error"]
    assert [path.read_bytes() for path in sorted(folder.glob("*.txt"))] == before


def test_other_sites_are_refused(client: Client, folder: Path) -> None:
    body = {"edits": {"1": {"text": "x", "version": client.state["rows"][1]["version"]}}}
    assert client.post("/api/write", body, Origin="http://evil.example")[0] == 403
    assert client.post("/api/write", body, X_Review_Token="guessed")[0] == 403
    assert client.ask("GET", "/api/state", Host="evil.example")[0] == 403
    assert text(folder, 1) == "a shape\n"
    _, headers, _ = client.ask("GET", "/")
    assert "default-src 'none'" in headers["content-security-policy"]
    for path in ("/thumbnails/../secret.txt", "/pictures/99", "/pictures/-1", "/thumbnails/x", "/secret.txt"):
        assert client.ask("GET", path)[0] == 404


def test_thumbnails_are_small_and_kept_outside_the_folder(
    client: Client, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "cache"))
    Image.new("RGB", (2000, 1000), "red").save(folder / "05.jpg")
    before = sorted(path.name for path in folder.iterdir())
    status, headers, data = client.ask("GET", "/thumbnails/5")
    assert status == 200 and headers["content-type"] == "image/jpeg" and len(data) < 20_000
    assert sorted(path.name for path in folder.iterdir()) == before
    assert [path.read_bytes() for path in (tmp_path / "cache" / "thumbnails").rglob("*") if path.is_file()] == [data]
    (folder / "06.jpg").write_bytes(b"broken")
    assert client.ask("GET", "/thumbnails/6")[0] == 410


def test_a_list_is_saved_into_the_same_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text('{"id": "01.jpg", "caption": "one", "candidates": [{"caption": "uno", "score": 1}]}\n')
    with serving(ReviewSession(CaptionStore.open(folder, path), "photos")) as port:
        client = Client(port)
        assert client.state["rows"][1]["candidates"] == ["uno"] and client.state["rows"][0]["text"] == ""
        client.write(1, text="uno")
        client.write(0, text="zero")
        client.write(2, text="", decorative=True)
    assert '"caption": "uno"' in path.read_text() and '{"id": "00.jpg", "caption": "zero"}' in path.read_text()
    assert '"decorative": true' in path.read_text()


def test_what_is_read_only_says_so(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text('[{"id": "01.jpg", "caption": "one"}]')
    with serving(ReviewSession(CaptionStore.open(folder, path), "photos")) as port:
        client = Client(port)
        assert client.state["writable"] is False
        status, reply = client.write(1, text="x")
        assert status == 400 and "read-only" in reply["error"]


def test_only_what_collides_is_captioned_again(folder: Path) -> None:
    """A person's caption stays, and what is written anew has its model, its candidates, and can be undone."""
    store = CaptionStore.open(folder)
    store.write({f"{n:02}.jpg": Edit("a shape") for n in range(3, 12)}, "caption", Author("dull"), replace_edited=True)
    session = open_session(str(folder), scorer="scenes", model="scenes", device="cpu")
    with serving(session) as port:
        client = Client(port)
        status, reply = client.post("/api/look-alikes", {"number": 4, "text": "a shape"})
        fits, own = reply["fits"], next(each["cosine"] for each in reply["fits"] if each["number"] == 4)
        assert reply["better"] == sum(each["cosine"] > own for each in fits)
        assert status == 200 and len(fits) == 12 and {each["number"] for each in fits} == set(range(12))
        assert [each["cosine"] for each in fits] == sorted((each["cosine"] for each in fits), reverse=True)
        collides = client.get("/api/collisions")
        assert len(collides) >= 10, "one caption cannot be best for all pictures"
        numbers = sorted(map(int, collides))
        status, reply = client.post("/api/recaption", {"numbers": numbers})
        assert status == 200 and "hand-written captions were kept" in reply["message"]
        written = reply["rows"]
        assert written and not {"0", "1", "2"} & written.keys() and set(map(int, written)) <= set(numbers)
        assert all(row["by"].startswith("scenes") and row["candidates"][0] == row["text"] for row in written.values())
        after = client.get("/api/collisions")
        assert len(after) < len(collides)
        client.post("/api/undo", {"change": reply["undo"]["id"]})
    assert text(folder, 5) == "a shape\n"
