"""Pictures of a report for the documentation: light, dark and narrow, by a headless Chromium.

    fedpick compare && python docs/screenshots.py comparison/report.html

Needs Chromium (Debian: apt install chromium) and playwright, which `make setup` installs.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

LOOKS = {"light": ("light", 1000, 900), "dark": ("dark", 1000, 900), "narrow": ("light", 390, 844)}


def main(report: Path, folder: Path) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (scheme, width, height) in LOOKS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            page.wait_for_selector("svg.marks")
            page.screenshot(path=folder / f"report-{name}.png")
            page.screenshot(path=folder / f"whole-{name}.png", full_page=True) if "--whole" in sys.argv else None
            print(folder / f"report-{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "img")
