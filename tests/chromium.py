"""The browser that the tests marked ``browser`` look at pages with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
INSTALL = "apt-get install -y chromium chromium-driver && pip install selenium"
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=f"no chromium here; type: {INSTALL}"),
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def chromium(profile: Path, logs: dict[str, str]) -> Iterator[Any]:
    """A headless Chromium with a profile of its own that keeps these ``logs`` ({"browser": "ALL"})."""
    selenium = pytest.importorskip("selenium.webdriver", reason=f"no selenium here; type: {INSTALL}")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", logs)
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    yield driver
    driver.quit()
