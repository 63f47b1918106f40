"""The pictures of pages in docs/pictures, for the README: of the demonstration, in a headless Chromium.

    target/venv-browser/bin/python -B clients/browser/pictures.py [DIRECTORY]     $LARDER is the binary

`clients/run browser` makes the environment, and pngquant makes the pictures small. Nothing compares these pictures: look at them before they are committed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from check import BROWSER, ROOT, log_in, packages_of, send, send_release, server
from playwright.sync_api import sync_playwright

# A description as projects have them.
DESCRIPTION = """# Parcels

Packs and unpacks **parcels**: small archives with a signed list of what is in them.

```python
import parcels

parcels.pack("data", into="data.parcel")
```

| version | Python |
| --- | --- |
| 2.x | 3.9 and newer |
| 1.x | 3.6 and newer |
"""
WIDTH, HEIGHT = 1000, 640


def main():
    pictures = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        work = pathlib.Path(directory)
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
        with server(work, "demo", "--demo", until="Stop with Ctrl-C") as base:
            password = (work / "demo" / "root-password").read_text().strip()
            for version in ("1.4", "2.0", "2.1"):
                more = [("summary", "Small archives with a signed list of what is in them"), ("license", "MIT"), ("requires_python", ">=3.9")]
                send_release(base, password, "parcels", version, DESCRIPTION, "text/markdown", more)
            send_release(base, password, "parcels-web", "0.3", "", "text/plain", [("requires_dist", "parcels>=2")])
            send(base, password, "/article/guide/parcels/0", DESCRIPTION.encode(), "text/markdown")
            package = next(path for path in packages_of(base) if path.startswith("/packages/"))
            for name, path in (
                ("start", "/"),
                ("package", package),
                ("project", "/root/dev/parcels"),
                ("manage", "/+manage/releases/root/dev/parcels?version=2.1"),
            ):
                context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
                page = context.new_page()
                log_in(page, base, password)
                page.goto(base + path)
                page.wait_for_load_state("networkidle")
                picture = pictures / f"{name}.png"
                page.screenshot(path=picture)
                subprocess.run(["pngquant", "64", "--strip", "--force", "--output", picture, picture], check=True)
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
