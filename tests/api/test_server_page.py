"""The built-in page in a real browser, wide and narrow. STET_SCREENSHOTS names a folder for them."""

import os
import pathlib

import pytest

from browser import CHROMIUM, Browser
from server_process import launch

SAY = """(() => {{
    document.getElementById("text").value = {!r};
    document.getElementById("form").requestSubmit();
}})()"""
IDLE = 'document.getElementById("stop").hidden && !document.getElementById("undo").disabled'
CLICK = 'document.getElementById("{}").click()'


def turns(browser):
    return browser.run('document.querySelectorAll("#turns li").length')


def say(browser, text, count):
    browser.run(SAY.format(text))
    browser.wait(f'{IDLE} && document.querySelectorAll("#turns li").length === {count} && '
                 'document.getElementById("reuse").textContent !== ""')


@pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true",
                    reason="chromium is not installed")
@pytest.mark.parametrize("width", [1200, 390])
def test_chat_fork_undo_and_back(model, tmp_path, environment, width):
    server = launch(model, tmp_path / "store", environment, "-n", 24)
    browser = Browser(width, 800)
    folder = pathlib.Path(os.environ.get("STET_SCREENSHOTS", tmp_path))
    try:
        browser.call("Page.navigate", url=server.url + "/")
        browser.wait('document.readyState === "complete" && '
                     'document.getElementById("model").textContent !== ""')
        say(browser, "Name a colour. <b>Be brief.</b>", 1)
        say(browser, "And another one?", 2)
        say(browser, "Tell me about the sea, the sky and the land between them. " * 4, 3)
        assert browser.run('document.querySelectorAll("#turns b").length') == 0
        assert "reused" in browser.run('document.getElementById("reuse").textContent')
        cells = browser.run('document.querySelectorAll("#strip i").length')
        assert cells >= 2
        assert browser.run('document.querySelectorAll("#strip i.end").length') >= 1
        browser.screenshot(folder / f"chat-{width}.png")
        browser.run(CLICK.format("fork"))
        browser.run('document.getElementById("ask-text").value = "branch"')
        browser.run('document.querySelector("#ask button[value=ok]").click()')
        browser.wait('document.getElementById("name").textContent === "branch"')
        assert browser.run('document.querySelectorAll("#strip i.shared").length') >= 1
        browser.run(CLICK.format("undo"))
        browser.wait('document.querySelectorAll("#turns li").length === 2')
        browser.run('document.querySelector("#turns li button").click()')
        browser.wait('document.querySelectorAll("#turns li").length === 1')
        if width < 700:
            browser.run(CLICK.format("menu"))
        browser.screenshot(folder / f"sessions-{width}.png")
        names = {entry["id"]: entry["turns"] for entry in server.get("/v1/sessions")[1]["data"]}
        assert names.pop("branch") == 1 and list(names.values()) == [3]
        wide = browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert wide, "the page is wider than the window"
        assert not browser.problems
        assert all(url.startswith((server.url, "data:")) for url in browser.requests)
    finally:
        browser.close()
        server.kill()
