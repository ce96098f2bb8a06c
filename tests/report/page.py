"""A headless Chromium that looks at a report."""

import json
import shutil
import time

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,860",
)
SECONDS = 20.0


def open_browser(profile):
    """A Chromium with a new profile; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs Chromium and its driver; docs/report.md says how to install")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    service = webdriver.ChromeService(executable_path=DRIVER)
    return webdriver.Chrome(options=options, service=service)


class Page:
    """What a reader does with a report, and what the reader sees."""

    def __init__(self, browser, address, run=""):
        self.browser, self.address, self.run = browser, address, run
        self.ignored = ()

    def visit(self, link):
        self.browser.get("about:blank")  # Or only the hash would change.
        self.browser.get(self.address + link)

    def wait(self, script):
        end = time.monotonic() + SECONDS
        while not (value := self.script(script)):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{script} stays {value!r}: {self.browser.page_source}"
                )
            time.sleep(0.02)
        return value

    def script(self, script):
        return self.browser.execute_script(script)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def within(self, element, selector):
        return element.find_element("css selector", selector)

    def texts(self, selector):
        return [element.get_property("textContent") for element in self.all(selector)]

    def tokens(self, selector):
        return self.texts(f"{selector} .t")

    def attribute(self, selector, name):
        return self.one(selector).get_attribute(name)

    def hash(self):
        return self.script("return location.hash")

    def click(self, selector):
        self.one(selector).click()

    def hover(self, selector):
        self.hover_at(selector, across=0.5)

    def hover_at(self, selector, *, across):
        self._move(selector, across).perform()

    def click_at(self, selector, *, across):
        self._move(selector, across).click().perform()

    def type(self, selector, text):
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def choose(self, selector, value):
        self.one(f"{selector} option[value='{value}']").click()

    def press(self, key):
        from selenium.webdriver.common.keys import Keys

        keys = {"enter": Keys.ENTER, "right": Keys.ARROW_RIGHT}
        self._actions().send_keys(keys.get(key, key)).perform()

    def requests(self):
        """What pages asked for since the last look, the browser's own ones left out."""
        events = [
            json.loads(entry["message"])["message"]
            for entry in self.browser.get_log("performance")
        ]
        sent = [
            event["params"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        ours = (s for s in sent if not s["documentURL"].startswith("chrome"))
        return [request["request"]["url"] for request in ours]

    def ignore_failures(self, part):
        self.ignored = (*self.ignored, part)

    def check_nothing_failed(self):
        failures = [
            entry["message"]
            for entry in self.browser.get_log("browser")
            if not any(part in entry["message"] for part in self.ignored)
        ]
        assert failures == []

    def _actions(self):
        from selenium.webdriver import ActionChains

        return ActionChains(self.browser, duration=0)

    def _move(self, selector, across):
        element = self.one(selector)
        offset = round((across - 0.5) * element.size["width"])
        return self._actions().move_to_element_with_offset(element, offset, 0)
