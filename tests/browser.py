"""Opens a page in headless Chromium and gives what it has become: after its scripts, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def opened(page: Path, fragment: str = "", then: str = "") -> str:
    """The page's elements as text. ``then`` is a script that runs at its end, in a copy without the page's policy.

    Fails if the page complains: an error in its script, or something that its policy refuses.
    """
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    if then:
        text = POLICY.sub("", page.read_text(encoding="utf-8")).replace("</body>", f"<script>{then}</script></body>")
        page = page.with_name(f"with_script_{page.name}")
        page.write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--enable-logging=stderr"]
    profile = f"--user-data-dir={page.parent / 'chromium'}"
    address = f"{page.resolve().as_uri()}{fragment and f'#{fragment}'}"
    ran = subprocess.run(
        [chromium, *options, profile, "--dump-dom", address], capture_output=True, text=True, timeout=120
    )
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
    assert ran.stdout.startswith("<!DOCTYPE html>"), ran.stderr[-500:]
    return ran.stdout
