"""``tellapart study``: prepare, serve, rehearse, export and report studies with people."""

from __future__ import annotations

from tellapart.cli.common import App

app = App(name="study", help="Ask people: pick, rate or compare captions; then the report.", no_args_is_help=True)
