"""What results tell beside their text: usage as OpenAI counts it, timings as llama.cpp does, and the speculation."""

from __future__ import annotations

from typing import Any

from localspec.server.reports import timings, told, usage
from localspec.serving.api import Ended


def report(ended: Ended, requested: str | None) -> dict[str, Any]:
    """`usage`, `timings` and `speculation` of an answer that was asked for with the method `requested`."""
    return {
        "usage": usage([ended]),
        "timings": timings(ended),
        "speculation": told(ended.speculation, requested),
    }
