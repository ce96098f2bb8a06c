import pytest

from agentic_jax.monitor.trace import write_trace
from agentic_jax.report.build import build_report, open_runs
from tests.report.page import Page, open_browser
from tests.report.runs import Words, fault_row, trace_row, write_run

HOSTILE = (
    "</script><script>window.broken = 1</script>"
    "<img src=x onerror='window.broken = 1'>\u2028\x00\x1b[31m\u202egnp.exe\u200b\ud800"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two seeds of one recipe; the last step of the first has hostile text."""
    root = tmp_path_factory.mktemp("runs")
    workdirs = [
        write_run(root / name / "rl", steps=4, seed=i) for i, name in enumerate("ab")
    ]
    words = Words()
    long_line = "x" * 20_000
    rows = [
        trace_row(words, code=HOSTILE, output=HOSTILE),
        trace_row(words, sample=1, code="a = 'b'  # c", output=long_line, score=0.5),
        fault_row(words, group=0, sample=2),
    ]
    rows[0]["task"]["messages"][0]["content"] = HOSTILE
    rows[0]["turns"][0]["calls"][0]["call"]["arguments"]["<b>"] = HOSTILE
    write_trace(workdirs[0], 3, rows, decode=words.decode)
    runs = open_runs(workdirs)
    build_report(runs, root / "report")
    return root / "report", runs


@pytest.fixture
def page(browser, report):
    page = Page(browser, (report[0] / "index.html").as_uri(), report[1][0].key)
    yield page
    page.check_nothing_failed()


def test_from_the_curve_to_the_token(page):
    page.visit("#/")
    page.wait("return document.querySelectorAll('.card').length === 2")
    assert page.texts("h2") == ["reward", "policy"]
    page.click_at(
        ".card[data-metric='reward/mean'] canvas", across=0.36
    )  # 1 of 0 to 3.
    page.wait("return location.hash.endsWith('/1')")
    assert page.texts("h1") == ["Step 1"]
    assert len(page.all("tbody tr")) == 2
    page.click(".chip.right")
    page.wait("return document.querySelector('.turn')")
    assert "".join(page.tokens(".prompt")) == "<user>2*3?↵\n"
    assert page.tokens(".turn") == ["<call>", "print(2*3)"] + ["<result>", "6"] + [
        "It is ",
        "6",
    ]
    assert page.texts(".change") == ["ΔH −0.4"]
    assert page.texts(".py-call") == ["print"]
    page.hover(".t[data-i='3']")
    facts = page.texts("#tip")[0]
    assert "0.5 nats" in facts and "<call>" in facts and "+1" in facts
    page.click(".t[data-i='8']")
    assert page.hash().endswith("?token=8")
    page.visit(page.hash())
    page.wait("return document.querySelector('.t.chosen')")
    assert page.texts(".t.chosen") == ["6"]
    assert "trainer − engine" in page.texts(".facts-of-token")[0]
    assert "−0.25" in page.texts(".facts-of-token")[0]


def test_deeper_colours_are_higher_values(page):
    page.visit(f"#/{page.run}/1/0.0")
    page.wait("return document.querySelector('.turn')")
    assert "heat l10" in page.attribute(
        ".t[data-i='3']", "class"
    )  # Entropy 0.5, the most.
    assert "heat l2" in page.attribute(".t[data-i='7']", "class")  # 0.1
    assert "heat" not in page.attribute(".t[data-i='0']", "class")  # The prompt.
    page.choose(".color", "advantage")
    assert "above l10" in page.attribute(".t[data-i='3']", "class")
    page.choose(".with", "1")
    page.wait("return document.querySelectorAll('.column').length === 2")
    assert "color=advantage" in page.hash() and "with=1" in page.hash()
    right = page.all(".column")[1]
    assert "below l10" in page.within(right, ".t[data-i='3']").get_attribute("class")


def test_samples_sort_and_filter_and_the_link_keeps_it(page):
    page.visit(f"#/{page.run}/1")
    page.wait("return document.querySelector('tbody')")
    page.type(".filter", "reward<0 stop=answer")
    assert [len(page.all(".chip.dim")), len(page.all(".chip"))] == [2, 4]
    page.all(".tab")[1].click()
    assert page.texts("td.sample") == ["0.1", "1.1"]
    page.click("th.sample button")
    assert page.texts("td.sample") == ["1.1", "0.1"]
    page.visit(page.hash())
    page.wait("return document.querySelector('tbody')")
    assert page.texts("td.sample") == ["1.1", "0.1"]
    page.type(".filter", "rewadr<0")
    assert "cannot read rewadr<0" in page.texts("[role=status]")[0]
    page.type(".filter", "status=error")
    assert page.all("tbody tr") == []


def test_keys_go_everywhere(page):
    page.visit(f"#/{page.run}/1")
    page.wait("return document.querySelector('tbody')")
    page.press("j")
    page.press("enter")
    page.wait("return location.hash.includes('/1/1.0')")
    page.wait("return document.querySelector('.turn')")
    page.press("j")
    page.wait("return location.hash.includes('/1/1.1')")
    page.wait("return document.querySelector('.chip.here.wrong')")
    page.press("right")
    assert page.texts(".t.chosen") == ["<call>"]
    page.press("e")
    assert "color=logprob" in page.hash()
    page.press("?")
    assert "next colouring" in page.texts("dialog")[0]
    page.press("?")
    page.press("u")
    page.wait("return location.hash.endsWith('/1')")
    page.wait("return document.querySelector('tbody')")
    page.press("]")
    page.wait("return location.hash.includes('/2')")
    page.press("/")
    assert page.wait("return document.activeElement.name === 'q'")


def test_a_search_over_all_steps_finds_texts_in_either_case(page):
    page.visit("#/")
    page.type("#find input", "IT IS 6\n")
    page.wait("return document.querySelector('.search progress')?.hidden")
    # Three steps of 4 and one of 2 with text.
    assert page.texts(".search [role=status]") == ["14 trajectories in 4 of 4 steps"]
    assert page.texts("mark")[0] == "It is 6"
    page.click(".hits a")
    page.wait("return document.querySelector('.turn')")


def test_text_of_a_model_shows_as_text_and_runs_nothing(page):
    page.visit(f"#/{page.run}/3/0.0")
    page.wait("return document.querySelector('.turn')")
    token = page.script("return document.querySelector(\".t[data-i='4']\").textContent")
    assert token == (
        "</script><script>window.broken = 1</script>"
        "<img src=x onerror='window.broken = 1'>U+2028␀␛[31mU+202Egnp.exeU+200BU+D800"
    )
    assert (
        page.script(
            "return document.querySelectorAll('#view script, #view img').length"
        )
        == 0
    )
    page.visit(f"#/{page.run}/3")
    page.wait("return document.querySelector('tbody')")
    assert "</script>" in page.texts("td.problem")[0]
    page.visit("#/search?q=window.broken")
    page.wait("return document.querySelector('.hits mark')")
    assert page.script("return window.broken === undefined")


def test_a_long_line_wraps_and_a_fault_says_what_failed(page):
    page.visit(f"#/{page.run}/3/0.1")
    page.wait("return document.querySelector('.turn')")
    width = "return document.documentElement.scrollWidth <= innerWidth"
    assert page.script(width)
    assert page.texts(".py-string, .py-comment") == ["'b'", "# c"]
    page.visit(f"#/{page.run}/3/0.2")
    page.wait("return document.querySelector('.fault')")
    assert "no pool" in page.texts(".block.fault")[0]


def test_seeds_join_to_a_band_and_curves_smooth(page):
    page.visit("#/?smooth=0.5")
    page.wait("return document.querySelectorAll('.card').length === 2")
    page.hover_at(".card[data-metric='reward/mean'] canvas", across=0.16)
    tip = page.texts("#tip")[0]  # Step 0: 0 and 1.
    assert "step 0" in tip and "0.5 (0 to 1) a/rl and 1 more" in tip
    page.click(".bands")
    page.hover_at(".card[data-metric='reward/mean'] canvas", across=0.97)
    tip = page.texts("#tip")[0]
    # 0, 1/4, 1/2, 3/4 smoothed by 1/2: (1/4 * 1/8 + 1/2 * 1/4 + 3/4 * 1/2) / (15/16)
    assert "step 3" in tip and "0.567 a/rl" in tip and "1.567 b/rl" in tip
    page.type(".metrics", "entr")
    assert page.texts(".card .name") == ["entropy"]


def test_nothing_is_fetched_from_a_network(page):
    page.visit(f"#/{page.run}/1/0.0")
    page.wait("return document.querySelector('.turn')")
    addresses = page.requests()
    assert any(address.endswith("/groups/1/0.js") for address in addresses)
    schemes = {address.split(":")[0] for address in addresses}
    assert schemes <= {"file", "data", "about"}  # An empty page comes before each.


def test_what_is_missing_is_said(page):
    page.visit(f"#/{page.run}/77")
    page.wait("return document.querySelector('.error')")
    assert "steps/77.js is missing: run launch.report again" in page.texts(".error")[0]
    page.ignore_failures("steps/77.js")
