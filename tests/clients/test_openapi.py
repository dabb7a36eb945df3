"""Requests made up from /openapi.json: whatever is sent, the server answers as the file says that it does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import plain_env

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_replies_to_made_up_requests_are_as_described(client_python: Path, lenient_url: str, tmp_path: Path) -> None:
    program = client_python.with_name("schemathesis")
    if not program.exists():
        pytest.skip("schemathesis is not installed")
    options = ["--phases", "fuzzing", "--max-examples", "8", "--generation-deterministic", "--no-shrink", "--no-color"]
    # a machine may be slow
    options += ["--suppress-health-check", "all"]
    done = subprocess.run(
        [program, "run", f"{lenient_url}/openapi.json", "--checks", CHECKS, "--max-failures", "10", *options],
        capture_output=True, text=True, env=plain_env(), cwd=tmp_path, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
