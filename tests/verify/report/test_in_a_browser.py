"""The report of one finding in a real browser: what its policy lets through, what is seen, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_verify.alignment import spans
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.history.runs import summary
from rocketmq_verify.report.html_report import render
from tests.interop.browser import Browser, started
from tests.interop.foreign import ClientUnavailableError
from tests.needed import unavailable
from tests.verify.report.report_kit import GROUP, NOW, SEGMENT, A, B, C, figures, flipped, plan, verdict

pytestmark = pytest.mark.interop
PHONE = 390
"""Pixels."""
BAD, DARK = "rgb(200, 16, 46)", "rgb(18, 22, 27)"
"""--bad, and --page in the dark, of report.css."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        with started(tmp_path_factory.mktemp("browser") / "profile") as running:
            yield running
    except ClientUnavailableError as error:
        unavailable(str(error))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Of one message that is damaged in one replica, after two earlier runs."""
    finding = flipped()
    said = verdict(findings=[finding])
    rows = [summary(GROUP, f"r{at}", NOW + at, said, figures(NOW + at * 3_600_000)) for at in range(3)]
    steps = repairs([finding], replicas=[A, B, C], masters=[A], group="orders", on_kubernetes=True)
    page = render(
        said, spans=spans(said, plan()), segment_size=SEGMENT, figures=figures(), runs=rows, repairs=steps, version="1"
    )
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    return file


def test_one_finding(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert (browser.complaints(), browser.requested()) == ([], [report.as_uri()])
    assert browser.value("document.title") == "Mismatch: orders"
    seen = browser.value("document.querySelector('#finding-1').innerText")
    assert flipped().detail in seen
    assert "order-7" in seen
    assert "body CRC wrong" in seen
    boxes = "[...document.querySelectorAll('svg.chart, #finding-1')].map(one => one.getBoundingClientRect())"
    assert browser.value(f"{boxes}.length") > 1
    assert browser.value(f"{boxes}.every(box => box.width > 100 && box.height > 10)")
    links = "[...document.querySelectorAll('a[href^=\"#\"]')].map(one => one.getAttribute('href'))"
    assert browser.value(f"{links}.every(link => document.querySelector(link) !== null)")


def test_what_is_broken_is_seen(browser: Browser, report: Path, tmp_path: Path) -> None:
    """By the questions of the test above, in a page without a policy."""
    page = report.read_text(encoding="utf-8")
    policy = page[page.index("<meta http-equiv") :].partition(">")[0]
    changed = page.replace(policy, "<meta", 1).replace("</body>", "<script>nowhere.at = 1</script></body>")
    other = tmp_path / "other.html"
    other.write_text(changed.replace(flipped().detail, "").replace("finding-1", "gone"), encoding="utf-8")
    browser.open(other)
    (complaint,) = browser.complaints()
    assert "nowhere is not defined" in complaint
    assert browser.value("document.querySelector('#finding-1')") is None
    other.write_text(page.replace("</body>", '<img src="other.png"></body>'), encoding="utf-8")
    browser.open(other)
    assert browser.complaints()


def test_its_style_is_the_one_that_its_policy_allows(browser: Browser, report: Path, tmp_path: Path) -> None:
    """A browser leaves out a style with another digest, which no other test of the page would see."""
    colour = "getComputedStyle(document.querySelector('h1')).color"
    browser.open(report)
    assert browser.value(colour) == BAD
    other = tmp_path / "other.html"
    other.write_text(report.read_text(encoding="utf-8").replace("<style>", "<style> ", 1), encoding="utf-8")
    browser.open(other)
    assert browser.value(colour) != BAD
    assert any("Content Security Policy" in line for line in browser.complaints())


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, report: Path) -> None:
    browser.open(report, width=PHONE)
    assert browser.value("document.documentElement.scrollWidth") == PHONE


def test_in_the_dark(browser: Browser, report: Path) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        browser.open(report)
        assert browser.value("getComputedStyle(document.body).backgroundColor") == DARK
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
