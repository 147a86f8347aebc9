"""``tellapart study``: serves a study, rehearses it, exports and deletes its answers, and reports the results."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.app import DATA, App
from tellapart.cli.options import Json, OptionalCount, Port
from tellapart.cli.output import show
from tellapart.cli.study_create import creating
from tellapart.cli.study_judges import arena, judges
from tellapart.cli.study_plan import plan
from tellapart.errors import UsageError, need_extra
from tellapart.study.analysis import analyse
from tellapart.study.design import Study, check_pictures, open_study
from tellapart.study.export import export as write
from tellapart.study.questions import QUESTIONS
from tellapart.study.report import tables, to_json, write_report
from tellapart.study.session import StudySession
from tellapart.study.store import STORE, AnswerStore
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output

app = App(
    name="study",
    help="Run user studies (match captions to pictures, rate or compare captions); measure how well metrics agree with "
    "people.",
    no_args_is_help=True,
    rich_help_panel=DATA,
)
app.add_typer(creating)

Folder = Annotated[Path, typer.Argument(help="Folder of the study.")]
Store = Annotated[
    str | None,
    typer.Option("--store", help="Answer store: a file, or postgresql://… Default: answers.sqlite in the folder."),
]


@app.command()
def serve(
    folder: Folder,
    store: Store = None,
    port: Port = 8766,
    public_url: str | None = None,
    preview: bool = False,
    amend: str = "",
) -> None:
    """Serve the study page until Ctrl-C. Repeat the command to continue.

    Args:
        public_url: Public https address, if a proxy forwards requests.
        preview: Preview the study; its answers are discarded.
        amend: Reason for changing the design after the start; shown in the report.
    """
    need_extra("study", "the study page", "starlette", "uvicorn")
    from tellapart.study.server import serve as serve_page

    if public_url and not re.fullmatch(r"https?://[A-Za-z0-9.:\-\[\]]+/?", public_url):
        raise UsageError(f"--public-url {public_url}: expected a URL without a path, such as https://study.example.org")
    if preview and (store or amend):
        raise UsageError("--preview saves nothing, so it cannot be combined with --store or --amend; remove them")
    study = open_study(folder)
    check_pictures(study)
    if (open_keys := study.settings.unwritten()) and not preview:
        raise UsageError(
            f"{folder}/study.toml: {', '.join(open_keys)} {'is' if len(open_keys) == 1 else 'are'} "
            "not filled in (TODO); write what participants should read, or preview the page with "
            "--preview"
        )
    with tempfile.TemporaryDirectory(prefix="tellapart-preview-") as temporary:
        location = str(Path(temporary) / "answers.sqlite") if preview else store
        with open_store(study, location) as answers:
            answers.set_stamp(study.stamp, time.time(), amend)
            session = StudySession(study, answers, proxied=public_url is not None)

            def ready(address: str) -> None:
                where = "nothing is saved" if preview else f"answers are saved in {answers.name}"
                recruitment, link = study.settings.recruitment, public_url or address
                if recruitment.link_key:
                    link = f"{link.rstrip('/')}/?key={recruitment.link_key}"
                say(f"study for {study.quota} participants at {link} (press Ctrl-C to stop; {where})")
                if recruitment.link_key:
                    say(f"link for a recruitment platform: {link}&{recruitment.id_parameter}=IDENTIFIER")

            serve_page(session, port, public_url, ready)


@app.command()
def simulate(
    folder: Path,
    participants: OptionalCount = None,
    hasty: float = 0.15,
    blind: Annotated[float, typer.Option("--random")] = 0.1,
    think: Annotated[float, typer.Option(min=0)] = 0.0,
    at_once: Annotated[int, typer.Option(min=1, max=1000)] = 8,
    seed: int = 0,
    as_json: Json = False,
) -> None:
    """Rehearse a study with scripted participants, who send the same requests as its web page.

    Writes their answers and the report to FOLDER/simulated, separate from real answers.

    Args:
        folder: Folder of a study; or pick, rate or compare for a study of synthetic scenes.
        participants: Number of participants. Default: the study's quota plus 25 percent.
        hasty: Fraction of participants who answer hastily.
        blind: Fraction of participants who answer at random.
        think: Mean thinking time per answer, in seconds.
        at_once: Number of concurrent participants.
        seed: Random seed for the simulated participants.
    """
    need_extra("study", "a rehearsal", "starlette", "uvicorn")
    from tellapart.study.rehearsal import rehearse
    from tellapart.study.scenes_study import scenes_study

    kind = str(folder) if str(folder) in QUESTIONS and not folder.exists() else ""
    folder = Path(f"rehearsal-{kind}") if kind else folder
    new = bool(kind) and not folder.exists()
    study = scenes_study(kind, folder) if new else open_study(folder)
    try:
        done = rehearse(study, participants, hasty, blind, think=think, at_once=at_once, seed=seed)
    except UsageError:
        if new:
            shutil.rmtree(folder)
        raise
    say(done.line())
    with open_store(study, str(done.store), create=False) as answers:
        results = analyse(study, answers)
    page = done.store.with_name("report.html")
    write_report(results, page, own=True)
    show({**to_json(results), "simulated": done.to_json()}, lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def report(
    folder: Folder,
    store: Store = None,
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    as_json: Json = False,
) -> None:
    """Report the results of a study as tables and a page: intervals, agreement, exclusions and times.

    Args:
        out: Output page. Default: report.html in the study's folder.
    """
    if out is not None:
        check_output(out, ".html", ".htm")
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        results = analyse(study, answers)
    page = out or folder / "report.html"
    write_report(results, page, own=out is None)
    show(to_json(results), lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o")] = Path("answers"),
    store: Store = None,
    with_ids: bool = False,
    as_json: Json = False,
) -> None:
    """Export the answers as JSON and CSV, without identifiers.

    Args:
        out: Output folder for answers.json and answers.csv.
        with_ids: Also write identifiers.csv for payment (personal data).
    """
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        done = write(study, answers, out, with_ids=with_ids)
    line = f"{out}: {done['answers']:,} answers from {done['participants']} participants"
    show(
        done,
        lambda: line + (("; identifiers.csv contains personal data: delete it after payment") if with_ids else ""),
        as_json,
    )


@app.command()
def forget(
    folder: Folder,
    identifier: Annotated[str | None, typer.Option("--id")] = None,
    all_ids: bool = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Delete one participant's answers, or all participants' identifiers on the recruitment platform.

    Args:
        identifier: Delete the participant with this identifier, and their answers.
        all_ids: Delete all identifiers and keep the answers, after everyone has been paid.
    """
    if (identifier is None) == (not all_ids):
        raise UsageError(
            "nothing to delete; pass --id IDENTIFIER, or --all-ids to delete all identifiers and keep the answers"
        )
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        if identifier is None:
            count = answers.forget_identifiers()
            show({"identifiers": count}, lambda: f"deleted {count:,} identifiers; the answers are kept", as_json)
            return
        if not answers.forget(identifier):
            raise UsageError(f"--id {identifier}: no participant has this identifier")
    show({"identifiers": 1}, lambda: f"deleted the answers and the identifier of {identifier}", as_json)


def open_store(study: Study, location: str | None, *, create: bool = True) -> AnswerStore:
    """Opens the answer store that ``--store`` specifies, by default the one in the study's folder."""
    return AnswerStore.open(study, location or study.folder / STORE, create=create)


app.command()(plan)
app.command()(judges)
app.command()(arena)
