"""``tellapart study``: prepare, serve, rehearse, export and report studies with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli import study_create, study_judges, study_plan
from tellapart.cli.common import DATA, App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.study.design import Study
    from tellapart.study.store import AnswerStore

app = App(
    name="study",
    help="Ask people: pick a picture by its caption, rate captions, compare them; then report.",
    no_args_is_help=True,
)
app.add_typer(study_create.app)
app.add_typer(study_plan.app)
app.add_typer(study_judges.app)


@app.callback(rich_help_panel=DATA)
def study() -> None:
    """The group; its help is the app's."""


Folder = Annotated[Path, typer.Argument(help="The folder of the study.")]
Store = Annotated[
    str | None,
    typer.Option("--store", help="Where answers are: a file, or postgresql://… Default: answers.sqlite in the folder."),
]


@app.command()
def serve(
    folder: Folder,
    store: Store = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On this machine's loopback address; 0: any.")] = 8766,
    public_url: Annotated[
        str | None, typer.Option("--public-url", help="The https address under which a proxy passes requests on.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Try the study: answers go to a file that is deleted at the end.")
    ] = False,
    amend: Annotated[
        str, typer.Option(help="The reason why the design changed after the beginning; the report prints it.")
    ] = "",
) -> None:
    """Serve the study's page until Ctrl-C. The same command goes on with a study."""
    import re
    import tempfile
    import time

    from tellapart.study.app import create_app as web_app
    from tellapart.study.design import check_pictures, open_study
    from tellapart.study.session import StudySession
    from tellapart.utils.messages import say
    from tellapart.utils.web.server import bind, need_extra
    from tellapart.utils.web.server import serve as serve_page

    need_extra("study", "the study's page")
    if public_url and not re.fullmatch(r"https?://[A-Za-z0-9.:\-\[\]]+/?", public_url):
        raise UsageError(
            f"--public-url {public_url}: expected an address without a path, such as https://study.example.org"
        )
    if preview and (store or amend):
        raise UsageError("--preview keeps nothing, so --store and --amend have no effect; leave them out")
    study = open_study(folder)
    check_pictures(study)
    if (open_keys := study.settings.unwritten()) and not preview:
        raise UsageError(
            f"{folder}/study.toml: {', '.join(open_keys)} {'is' if len(open_keys) == 1 else 'are'} not written yet "
            "(TODO); write what participants should read, or look at the page first with --preview"
        )
    listener = bind(port)
    with tempfile.TemporaryDirectory(prefix="tellapart-preview-") as temporary:
        location = str(Path(temporary) / "answers.sqlite") if preview else store
        with open_store(study, location) as answers:
            answers.set_stamp(study.stamp, time.time(), amend)
            session = StudySession(study, answers)

            def ready(address: str) -> None:
                where = "nothing is kept" if preview else f"answers are in {answers.name}"
                say(
                    f"{study.quota} participants wanted; the study is at {public_url or address} (Ctrl-C ends it; "
                    f"{where})"
                )

            serve_page(web_app(session, listener.getsockname()[1], public_url), listener, ready)


@app.command()
def simulate(
    folder: Annotated[Path, typer.Argument(help="The folder of a study; or pick, rate or compare for one of scenes.")],
    participants: Annotated[
        int | None,
        typer.Option(min=1, help="How many. Default: the study's own number, and a quarter more."),
    ] = None,
    hasty: Annotated[float, typer.Option(help="The share of hasty ones.")] = 0.15,
    blind: Annotated[float, typer.Option("--random", help="The share of those who answer at random.")] = 0.1,
    effect: Annotated[
        list[str] | None,
        typer.Option("--effect", metavar="NAME=X", help="A system's planted effect, 0 to 1. Repeatable."),
    ] = None,
    think: Annotated[float, typer.Option(min=0, help="Mean seconds before an answer.")] = 0.0,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=1000, help="Participants at the same time.")] = 8,
    url: Annotated[str | None, typer.Option(help="A server of this study. Default: one of its own.")] = None,
    seed: Annotated[int, typer.Option(help="Of the scripted participants.")] = 0,
    as_json: Json = False,
) -> None:
    """Rehearse a study with scripted participants (careful, hasty, random) through its web page's own requests.

    Their answers go to FOLDER/simulated, never among those of people; the report is written there.
    """
    import shutil

    from tellapart.study.analysis import analyse
    from tellapart.study.design import open_study
    from tellapart.study.questions import KINDS
    from tellapart.study.rehearse import rehearse, scenes_study
    from tellapart.study.report import tables, to_json, write_report
    from tellapart.utils.messages import say
    from tellapart.utils.web.server import need_extra

    need_extra("study", "a rehearsal")
    kind = str(folder) if str(folder) in KINDS and not folder.exists() else ""
    folder = Path(f"rehearsal-{kind}") if kind else folder
    new = bool(kind) and not folder.exists()
    study = scenes_study(kind, folder) if new else open_study(folder)
    try:
        done = rehearse(
            study, participants, hasty, blind, effect or (), think=think, at_once=at_once, url=url, seed=seed
        )
    except UsageError:
        if new:
            shutil.rmtree(folder)
        raise
    say(done.line())
    if url is not None:
        show(done.to_json(), lambda: f"the answers are where {url} keeps them", as_json)
        return
    with open_store(study, str(done.store), create=False) as answers:
        results = analyse(study, answers)
    page = done.store.with_name("report.html")
    write_report(results, page)
    show({**to_json(results), "simulated": done.to_json()}, lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def report(
    folder: Folder,
    store: Store = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page. Default: report.html in the study's folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report a study: tables as in the papers, intervals, agreement, exclusions, times; and a page."""
    from tellapart.study.analysis import analyse
    from tellapart.study.design import open_study
    from tellapart.study.report import tables, to_json, write_report
    from tellapart.utils.messages import say

    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        results = analyse(study, answers)
    page = out or folder / "report.html"
    write_report(results, page)
    show(to_json(results), lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of answers.json and answers.csv.")] = Path(
        "answers"
    ),
    store: Store = None,
    with_ids: Annotated[
        bool,
        typer.Option("--with-ids", help="Also write identifiers.csv, for paying: personal data."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Export the answers as JSON and CSV, without anything that says who answered."""
    from tellapart.study.design import open_study
    from tellapart.study.export import export as write

    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        done = write(study, answers, out, with_ids=with_ids)
    line = f"{out}: {done['answers']:,} answers of {done['participants']} participants"
    show(
        done, lambda: line + ("; identifiers.csv is personal data: delete it after paying" if with_ids else ""), as_json
    )


@app.command()
def forget(
    folder: Folder,
    identifier: Annotated[
        str | None, typer.Option("--id", help="Delete the answers and the identifier of this participant.")
    ] = None,
    all_ids: Annotated[
        bool, typer.Option("--all-ids", help="Delete every identifier and keep the answers: after everybody is paid.")
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Delete what a participant asks to be deleted, or all identifiers of the recruiting platform."""
    from tellapart.study.design import open_study

    if (identifier is None) == (not all_ids):
        raise UsageError("forget whom? type --id IDENTIFIER, or --all-ids to delete identifiers and keep answers")
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        if identifier is None:
            count = answers.forget_identifiers()
            show({"identifiers": count}, lambda: f"{count:,} identifiers deleted; the answers stay", as_json)
            return
        if not answers.forget(identifier):
            raise UsageError(f"--id {identifier}: no participant has this identifier")
    show({"identifiers": 1}, lambda: f"the answers and the identifier of {identifier} are deleted", as_json)


def open_store(study: Study, location: str | None, *, create: bool = True) -> AnswerStore:
    """The answers at ``--store``, else in the study's folder."""
    from tellapart.study.store import STORE, AnswerStore

    return AnswerStore.open(study, location or study.folder / STORE, create=create)
