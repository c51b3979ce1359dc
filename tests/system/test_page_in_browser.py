import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from okapi.commands.match import match_table
from okapi.data import read_table
from okapi.matching import CaliperMatcher
from okapi.report import match_page, thumbnails
from okapi.report.matching import matching_report

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="600pt" height="80pt" viewBox="0 0 600 80">'
    '<path style="fill: #ffffff" d="M0 0H600V80H0Z"/><text x="20" y="40" style="fill: #000000">SMD</text></svg>'
)


def make_page(folder: Path, queries: int = 60, k: int = 3) -> str:
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(queries), k)
    domains = np.array([HOSTILE, "rome", "oslo"])
    paths = [folder / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths[:3]):
        Image.new("RGB", (60 + 20 * i, 80), (80 * i, 90, 120)).save(path)
    pairs = pd.DataFrame(
        {
            "query": [f"{HOSTILE}{i}" for i in query],
            "rank": np.tile(np.arange(1, k + 1), queries),
            "key": rng.integers(0, 10**6, len(query)),
            "distance": rng.gamma(0.5, 40, len(query)),  # 9 and 10 differ as text and as numbers
            "query_domain": domains[query % 3],
            "key_domain": domains[(query + 1) % 3],
            HOSTILE: rng.normal(size=len(query)),
            "query_image": [str(paths[i % 3]) for i in query],
            "key_image": [str(paths[i % 4]) for i in range(len(query))],
        }
    )
    balance = pd.DataFrame({"covariate": [HOSTILE, "age"], "smd_before": [0.4, 0.2], "smd_after": [0.05, 0.12]})
    return match_page(
        title=f"Matches {HOSTILE}",
        facts={"samples": 48210, HOSTILE: 3},
        settings={"k": k, "file": "a/very/long/path/" * 8},
        removed=pd.DataFrame({"caliper": ["fixed"], "queries": [12]}),
        balance_pairs=balance.assign(**{f"a rather long heading {i}": 1.0 for i in range(8)}),
        balance_table=balance,
        figures=[("Love plot", FIGURE)],
        pairs=pairs,
        thumbnails=thumbnails(paths),
        notes=[HOSTILE],
    )


def column(page, name: str) -> list[str]:
    headings = page.locator("#pairs-table th button").all_inner_texts()
    return page.locator(f"#pairs-table tbody td:nth-child({headings.index(name) + 1})").all_inner_texts()


def test_sorting_by_distance_sorts_numbers_both_ways(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    heading = page.locator("th", has=page.get_by_role("button", name="distance"))
    assert heading.get_attribute("aria-sort") is None
    heading.get_by_role("button").click()
    smallest = list(map(float, column(page, "distance")))
    assert heading.get_attribute("aria-sort") == "ascending"
    assert smallest == sorted(smallest)
    heading.get_by_role("button").click()
    largest = list(map(float, column(page, "distance")))
    assert heading.get_attribute("aria-sort") == "descending"
    assert largest == sorted(largest, reverse=True)
    assert largest[0] == smallest[-1] > 100 > 10 > largest[-1] == smallest[0]
    assert sorted(map(str, largest), reverse=True) != list(map(str, largest))


def test_every_column_is_sorted_by_keyboard(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    buttons = page.locator("#pairs-table th button")
    for i in range(buttons.count()):
        buttons.nth(i).focus()
        page.keyboard.press("Enter")
        assert page.locator("#pairs-table th").nth(i).get_attribute("aria-sort") == "ascending"
        page.keyboard.press("Space")
        assert page.locator("#pairs-table th").nth(i).get_attribute("aria-sort") == "descending"
        assert page.locator("#pairs-table th[aria-sort]").count() == 1


def test_pairs_are_searched(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    rows, count = page.locator("#pairs-table tbody tr:visible"), page.locator("#pairs output")
    assert (rows.count(), count.inner_text()) == (180, "180 rows")
    page.get_by_label("Search").fill("ROME")
    assert (rows.count(), count.inner_text()) == (120, "120 of 180 rows")  # as a query or as a key
    page.get_by_label("Search").fill(">42")
    assert count.inner_text() == "3 of 180 rows"
    page.get_by_label("Search").fill("nothing has this")
    assert rows.count() == 0


def test_two_thousand_pairs_stay_quick(open_page, tmp_path):
    page = open_page(make_page(tmp_path, queries=5000, k=2))
    assert page.locator("#pairs output").inner_text() == "2000 rows"
    for action in (
        "document.querySelectorAll('#pairs-table th button')[3].click()",
        "document.querySelectorAll('#pairs-table th button')[0].click()",
        "(s => { s.value = '99'; s.dispatchEvent(new Event('input')); })(document.querySelector('#pairs input'))",
    ):
        assert (
            page.evaluate(f"(() => {{ const t = performance.now(); {action}; return performance.now() - t; }})()")
            < 1000
        )


@pytest.mark.parametrize("width", [320, 400, 768])
def test_a_narrow_screen_does_not_scroll_sideways(open_page, tmp_path, width):
    page = open_page(make_page(tmp_path), width=width)
    wide = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(wide) <= width


def real_page(folder: Path) -> str:
    """Return the page of a real matching of four domains, with all the columns of balance."""
    rng = np.random.default_rng(0)
    site = np.arange(400) % 4
    frame = pd.DataFrame(rng.normal(2000, 900, (400, 3)) + 99 * site[:, None], columns=["income", "dose", "weight"])
    frame = frame.assign(site=[f"hospital_{i}" for i in site], ill=rng.integers(0, 3, 400))
    frame.to_csv(folder / "t.csv", index=False)
    table = read_table(folder / "t.csv", domain="site", target="ill")
    return matching_report(match_table(table, CaliperMatcher(std_caliper=0.2)), title="Matches")


def test_tables_of_balance_fit_a_screen_of_1280_and_figures_stand_side_by_side(open_page, tmp_path):
    page = open_page(real_page(tmp_path), width=1280)
    for name in ("removed", "balance-pairs", "balance-covariates"):
        inside, wide = page.evaluate(
            f"(e => [e.clientWidth, e.scrollWidth])(document.querySelector('#{name} .scroll'))"
        )
        assert wide <= inside
    figures = page.locator("#figures img")
    assert sum(figures.nth(i).bounding_box()["width"] for i in range(2)) > 0.6 * 1280


def test_a_shadow_says_that_a_table_goes_on(open_page, tmp_path):
    page = open_page(real_page(tmp_path), width=400)
    place = page.locator("#balance-covariates .scroll")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    place.evaluate("e => e.scrollIntoView({behavior: 'instant'})")

    def edge(side: str) -> float:
        box = place.bounding_box()
        x = box["x"] + (box["width"] - 2 if side == "right" else 1)
        clip = {"x": x, "y": box["y"] + 80, "width": 1, "height": 200}
        pixels = np.asarray(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("L"), dtype=float)
        return float(np.median(pixels))

    paper = 250
    assert edge("right") < 0.9 * paper < edge("left")
    place.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    assert edge("left") < 0.9 * paper < edge("right")


def brightness(page, script: str) -> float:
    colour = page.evaluate(
        f"""(() => {{ const c = document.createElement("canvas").getContext("2d", {{willReadFrequently: true}});
        c.fillStyle = {script}; c.fillRect(0, 0, 1, 1);
        return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); }})()"""
    )
    return sum(colour) / 765


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_the_page_follows_the_reader_s_theme_and_figures_stay_black_on_white(open_page, tmp_path, scheme, dark):
    page = open_page(make_page(tmp_path), scheme=scheme)
    paper = brightness(page, "getComputedStyle(document.body).backgroundColor")
    ink = brightness(page, "getComputedStyle(document.body).color")
    assert (paper < 0.2, ink > 0.8) == (dark, dark)
    assert brightness(page, "getComputedStyle(document.querySelector('.figures img')).backgroundColor") == 1
    figure = page.locator(".figures img").first
    figure.evaluate("image => image.decode()")
    assert figure.evaluate("image => image.naturalWidth") > 100


def test_hostile_text_does_nothing_and_is_shown(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    assert page.title() == f"Matches {HOSTILE}"
    assert page.locator("h1").inner_text() == f"Matches {HOSTILE}"
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in column(page, "query domain")
    assert page.locator("#pairs-table th button").nth(6).inner_text() == HOSTILE.replace("_", " ")


def test_images_are_shown_and_a_missing_one_says_so(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    assert page.locator(".gallery > li").count() > 40
    page.locator(".gallery > li").first.scroll_into_view_if_needed()
    images = page.locator(".gallery > li").first.locator("img")
    assert images.count() == 4
    for i in range(4):
        images.nth(i).evaluate("image => image.decode()")
        assert images.nth(i).evaluate("image => image.naturalWidth") > 0
    assert page.locator('.gallery img[src^="data:image/svg"]').count() > 0


def test_print_leaves_out_the_controls(open_page, tmp_path):
    page = open_page(make_page(tmp_path))
    page.emulate_media(media="print")
    assert page.locator(".controls:visible").count() == 0
    assert page.locator("#pairs-table tbody tr").first.is_visible()
