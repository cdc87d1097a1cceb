"""Opens the page of a server in Chromium, like a user with or without a mouse, and prints what the page shows.

Arguments: the program of Chromium, the address of the page, a directory for screenshots, a command, and its arguments. Each printed line is
one observation. Every error message of the browser is a failure.
"""

import pathlib
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

TIMEOUT_MS = 60_000


class BrowserPage:
    """A page in a browser, with the error messages of its console."""

    def __init__(self, browser, url, pictures, scheme="light"):
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.complaints = []
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.url, self.pictures = url, pathlib.Path(pictures)

    def save_screenshot(self, name):
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)

    def assert_no_errors(self, *expected):
        """Asserts that the browser reported no errors except the expected ones."""
        others = [text for text in self.complaints if not any(expected_text in text for expected_text in expected)]
        assert not others, others
        self.context.close()


def visible_text(page, name):
    """Waits until the page shows a dataset; returns the text of its facts."""
    expect(page.locator("#name")).to_have_text(name)
    return page.locator("#facts").inner_text().replace("\n", " ")


def run_examples(page):
    """Runs every example that the page offers."""
    titles = page.get_by_label("Examples").locator("option").all_inner_texts()
    assert len(titles) > 2, titles
    for title in titles:
        page.get_by_label("Examples").select_option(label=title)
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#took")).to_contain_text(" s")
        expect(page.locator("#result thead")).to_be_visible()
        assert page.locator("#problem").is_hidden(), (title, page.locator("#problem").inner_text())


def datasets(browser, url, pictures, reads, variants):
    """Opens reads with their plots and the genome browser, variants, and SQL statements with and without errors."""
    for scheme in ("light", "dark"):
        browser_page = BrowserPage(browser, url, pictures, scheme)
        page = browser_page.page
        page.goto(url)
        expect(page.locator("#who")).to_have_text("No authentication")
        run_examples(page)
        page.get_by_role("button", name=reads).click()
        print(visible_text(page, reads))
        run_examples(page)
        expect(page.locator("#plots figure")).to_have_count(2)
        print(*[plot.get_attribute("aria-label") for plot in page.locator("#plots svg").all()], sep="\n")
        # igv.js draws in its own shadow DOM; it is ready when a track has its name.
        expect(page.locator("#genome .igv-track-label").first).to_be_visible()
        browser_page.save_screenshot(f"reads-{scheme}")
        page.get_by_role("button", name=variants).click()
        print(visible_text(page, variants))
        run_examples(page)
        expect(page.locator("#plots figure").first).to_be_visible()
        expect(page.locator("#genome .igv-track-label").first).to_be_visible()
        browser_page.save_screenshot(f"variants-{scheme}")
        page.get_by_label("Statement").fill(f"SELECT count(*) AS reads, NULL AS none FROM reads('{reads}')")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#result td")).to_have_count(2)
        print(*page.locator("#result td").all_inner_texts())
        page.get_by_label("Statement").fill("SELECT nothing FROM nowhere")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#problem")).to_be_visible()
        print(page.locator("#problem").inner_text().splitlines()[0])
        browser_page.save_screenshot(f"sql-{scheme}")
        browser_page.assert_no_errors("400 (Bad Request)", "404 (Not Found)")


def keyboard(browser, url, pictures, reads):
    """Uses the page by keyboard, by an address with a region, and on a narrow screen."""
    browser_page = BrowserPage(browser, url, pictures)
    page = browser_page.page
    page.goto(url)
    expect(page.get_by_role("button", name=reads)).to_be_visible()
    page.keyboard.press("Tab")
    print(page.evaluate("document.activeElement.textContent.trim()"))
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.firstChild?.textContent") == reads:
            break
    page.keyboard.press("Enter")
    print(visible_text(page, reads))
    expect(page.locator("#plots figure")).to_have_count(2)
    print(page.evaluate("document.activeElement.id"))
    page.goto(f"{url}#dataset={reads}&region=chr1:1000-3000")
    expect(page.get_by_label("Region", exact=True)).to_have_value("chr1:1000-3000")
    expect(page.locator("#plots svg").first).to_have_attribute("aria-label", __import__("re").compile("from 1,000 to 3,000"))
    unnamed = page.evaluate(
        "[...document.querySelectorAll('body > * input, body > * button, body > * textarea')]"
        ".filter((it) => it.checkVisibility() && !it.closest('#genome') && !it.textContent.trim() && !it.labels?.length && !it.ariaLabel).length"
    )
    print(f"{unnamed} without a name")
    page.set_viewport_size({"width": 400, "height": 800})
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    print(f"{wide} pixels too wide")
    browser_page.save_screenshot("narrow")
    browser_page.assert_no_errors()


def accessibility_violations(browser, url, pictures, reads):
    """Prints the accessibility violations that axe-core finds, by WCAG 2.2 AA and its best practices, in each state of the page: a line for
    each state, with the rules and the elements that break them."""
    del pictures
    wanted = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    for scheme in ("light", "dark"):
        browser_page = BrowserPage(browser, url, ".", scheme)
        page = browser_page.page

        def audit(state):
            found = Axe().run(page, options=wanted).response
            broken = [f"{rule['id']} at {node['target']}" for rule in found["violations"] for node in rule["nodes"]]
            # Axe is undecided about some elements of igv.js in its shadow DOM (a list instead of a selector).
            unsure = [
                f"{rule['id']} may be at {node['target']}"
                for rule in found["incomplete"]
                for node in rule["nodes"]
                if not isinstance(node["target"][0], list)
            ]
            print(f"{scheme}, {state}: {len(found['passes']) > 10} {broken + unsure}")

        page.goto(url)
        expect(page.get_by_role("button", name=reads)).to_be_visible()
        audit("list")
        page.get_by_role("button", name=reads).click()
        expect(page.locator("#plots figure")).to_have_count(2)
        expect(page.locator("#genome select").first).to_have_attribute("aria-label", "Contig")
        audit("dataset")
        page.get_by_label("Statement").fill(f"SELECT count(*) AS reads, NULL AS none FROM reads('{reads}')")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#result td")).to_have_count(2)
        audit("rows")
        page.get_by_label("Statement").fill("SELECT nothing FROM nowhere")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#problem")).to_be_visible()
        audit("problem")
        page.set_viewport_size({"width": 400, "height": 800})
        audit("narrow")
        # A page with deliberate violations: an audit that finds none there could not find any.
        page.evaluate("document.querySelector('#statement').parentElement.querySelector('label')?.remove(); document.documentElement.removeAttribute('lang')")
        print(f"{scheme}, spoiled: {sorted({rule['id'] for rule in Axe().run(page, options=wanted).response['violations']})}")
        browser_page.assert_no_errors("404 (Not Found)")


def check_authentication(browser, url, pictures, token, *wanted):
    """Checks that the page shows nothing without a token, and with a token the data of its user."""
    browser_page = BrowserPage(browser, url, pictures)
    page = browser_page.page
    page.goto(url)
    expect(page.get_by_label("Token")).to_be_visible()
    print(page.locator("#datasets li").count(), "datasets")
    for shown in ("nonsense", token):
        page.get_by_label("Token").fill(shown)
        page.get_by_role("button", name="Sign in").click()
        if shown == "nonsense":
            expect(page.locator("#who")).to_have_text("The server rejects this token.")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    print(page.locator("#who").inner_text())
    expect(page.locator("#datasets li").first).to_be_visible()
    print(*[text.splitlines()[0] for text in page.locator("#datasets li").all_inner_texts()])
    for name in wanted:
        page.get_by_role("button", name=name).click()
        print(visible_text(page, name))
        columns = page.locator("#columns tr td:first-child")
        expect(columns.first).to_be_attached()
        print(*columns.all_text_contents())
    browser_page.save_screenshot("guarded")
    assert token not in page.content() and token not in page.url
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#who")).to_have_text("Signed out.")
    assert page.locator("#datasets li").count() == 0 and not page.locator("#dataset").is_visible()
    assert not any(name in page.content() for name in wanted), "the page still shows data after signing out"
    browser_page.assert_no_errors("401 (Unauthorized)")


def run(browser, url, pictures):
    """Follows the page of a running run until its end."""
    browser_page = BrowserPage(browser, url, pictures)
    page = browser_page.page
    page.goto(url)
    expect(page.get_by_role("status")).to_have_text("The run is in progress.")
    print("under way", flush=True)
    expect(page.get_by_role("status")).to_have_text("The run is finished.", timeout=TIMEOUT_MS)
    print(*[page.locator(f"#{name}").inner_text() for name in ("done", "failed", "working", "again")])
    table = page.get_by_role("table", name="Samples")
    for row in table.locator("tbody tr").all():
        print(*row.locator("td").all_inner_texts()[:2])
    print(*table.locator("th").all_inner_texts(), sep="|")
    totals = table.locator("tfoot td").all_inner_texts()
    print(totals[0], all(float(total) > 0 for total in totals[3:]))
    print(float(page.locator("#rate").inner_text()) > 0, page.locator("#notes li").count(), page.locator("#notes").inner_text())
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    print(f"{wide} pixels too wide")
    browser_page.save_screenshot("run")
    # The server stops after it has reported the end of the run; there is no icon, so its request fails.
    browser_page.assert_no_errors("404 (Not Found)")


def main():
    program, url, pictures, command, *args = sys.argv[1:]
    with sync_playwright() as playwright:
        # No sandbox, because it requires privileges that a container does not have; the only page is our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        commands = {"datasets": datasets, "keyboard": keyboard, "accessibility_violations": accessibility_violations, "check_authentication": check_authentication, "run": run}
        commands[command](browser, url, pictures, *args)
        browser.close()


if __name__ == "__main__":
    main()
