"""Finds the git commit of the package if it is run from a clone."""

import subprocess
from pathlib import Path

CLONE = Path(__file__).parents[3]


def git_state(digits: int = 8) -> str:
    """Returns the commit of the clone, such as ``a7953fb7`` or ``a7953fb7-dirty``, or "" for an installed package."""
    if not (CLONE / ".git").exists() or not (CLONE / "pyproject.toml").exists():
        return ""
    command = ["git", "-C", str(CLONE), "describe", "--always", "--dirty", f"--abbrev={digits}", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
