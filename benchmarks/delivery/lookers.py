"""Consoles in a real browser, in one process: `python -m benchmarks.delivery.lookers`.

The first line on standard input says which pages, as JSON; it prints `ready` when there is a browser.
Then it answers each line: `look 8080` opens all pages on the gateway at a port, an empty one does nothing; each
answer says how many calls they have made since the last.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

PATIENCE_MS = 30_000


def shape(path: str) -> str:
    """Return a path without names, so that calls of the same kind are counted together.

    >>> shape("/v1/services/gps/backtest")
    '/v1/services/*/backtest'
    """
    parts = path.split("/")
    if len(parts) > 3 and parts[2] in ("services", "subscriptions"):
        parts[3] = "*"
    return "/".join(parts)


async def look(said: dict[str, Any]) -> None:
    """Open and close pages on commands from standard input."""
    from playwright.async_api import async_playwright

    loop = asyncio.get_running_loop()
    calls: Counter[str] = Counter()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        pages = []
        for _ in said["paths"]:
            context = await browser.new_context(viewport={"width": 1360, "height": 900})  # one per page
            page = await context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.on("request", lambda request: calls.update([shape(urlsplit(request.url).path)]))
            pages.append(page)
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.startswith("look "):
                port = int(line.split()[1])
                for page, path in zip(pages, said["paths"], strict=True):
                    await page.goto(f"http://127.0.0.1:{port}/#/{path}")
                    await page.locator(".page").wait_for()
            made = {path: count for path, count in calls.most_common() if path.startswith("/v1")}
            calls.clear()
            print(json.dumps({"calls": made}), flush=True)
        await browser.close()


if __name__ == "__main__":
    # Users run the browser on another machine: here it has low priority, so that it does not slow the gateway.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(look(json.loads(sys.stdin.readline())))
