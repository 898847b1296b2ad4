"""Pictures of a report for the documentation, by a headless Chromium: wide, dark, on a phone, and on paper.

    fedpick compare && python docs/screenshots.py comparison/report.html
    python docs/screenshots.py comparison/report.html /tmp/look --whole    # the whole page each time, and A4 as PDF

Needs Chromium (Debian: apt install chromium) and playwright, which `make setup` installs.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

LOOKS = {"light": ("light", 1280, 1100), "dark": ("dark", 1280, 1100), "narrow": ("light", 390, 844)}
DRAWN = (
    "document.querySelectorAll('svg.marks').length >= document.querySelectorAll('[data-chart], [data-panel]').length"
)


def main(report: Path, folder: Path, whole: bool) -> None:
    chromium = shutil.which("chromium") or sys.exit("screenshots.py needs a chromium on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (scheme, width, height) in LOOKS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            page.wait_for_function(DRAWN)
            page.wait_for_timeout(300)
            path = folder / f"report-{name}.png"
            page.screenshot(path=path, full_page=whole)
            print(path)
            if whole and name == "light":
                page.pdf(path=folder / "report-a4.pdf", format="A4")
                print(folder / "report-a4.pdf")
        browser.close()


if __name__ == "__main__":
    paths = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    main(paths[0], paths[1] if len(paths) > 1 else Path(__file__).parent / "img", "--whole" in sys.argv)
