"""Headless Chromium or Chrome, where there is one."""

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NONE_FOUND = f"expected a browser ({', '.join(NAMES)}), found none"


def find():
    """Its path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def command(browser, profile, *more):
    """What opens a page without a screen and asks no network for anything; `profile`: a folder of its
    own."""
    return [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--no-first-run", "--disable-sync", "--disable-component-update", "--hide-scrollbars",
            f"--user-data-dir={profile}", *more]
