"""Run folders to one self-contained HTML page: `build_report`."""

from tellapart.report.page import build_report

__all__ = ["build_report"]
