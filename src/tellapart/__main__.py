"""``python -m tellapart``."""

from tellapart.cli import main

main()
