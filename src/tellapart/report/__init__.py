"""Builds a self-contained HTML page from run folders: `build_report`."""

from tellapart.report.page import build_report

__all__ = ["build_report"]
