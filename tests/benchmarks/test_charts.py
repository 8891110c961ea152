"""Charts are well-formed, and all that was measured is on them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.charts import HEIGHT, WIDTH, line_chart, shown

SVG = "{http://www.w3.org/2000/svg}"
SERIES = {
    "scan & co": [(1, 120.0), (3, 45.5), (10, 7.0)],
    "a < b": [(1, 4_000_000.0), (10, 900_000.0)],
    "never": [],
}


@pytest.mark.parametrize("log_x", [True, False])
@pytest.mark.parametrize("log_y", [True, False])
def test_chart_is_xml_with_all_series_and_points(log_x: bool, log_y: bool) -> None:
    root = ElementTree.fromstring(line_chart("T & T", "filters", "events/s", SERIES, log_x=log_x, log_y=log_y))
    assert root.tag == f"{SVG}svg"
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"T & T", "filters", "events/s", "scan & co", "a < b", "never (none)"} <= set(texts)
    lines = root.findall(f"{SVG}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 2]
    for line in lines:
        for place in line.attrib["points"].split():
            x, y = map(float, place.split(","))
            assert 0 < x < WIDTH
            assert 0 < y < HEIGHT


def test_more_is_further_up_and_to_the_right() -> None:
    root = ElementTree.fromstring(line_chart("t", "x", "y", {"s": [(1, 10.0), (10, 1000.0)]}, log_x=True))
    line = root.find(f"{SVG}polyline")
    assert line is not None
    (x1, y1), (x2, y2) = (map(float, place.split(",")) for place in line.attrib["points"].split())
    assert x1 < x2
    assert y1 > y2


@pytest.mark.parametrize("series", [{}, {"none": []}, {"one": [(3, 5.0)]}, {"flat": [(1, 5.0), (2, 5.0)]}])
@pytest.mark.parametrize("log", [True, False])
def test_chart_of_almost_no_data_is_valid(series: dict[str, list[tuple[float, float]]], log: bool) -> None:
    ElementTree.fromstring(line_chart("t", "x", "y", series, log_x=log, log_y=log))


def test_numbers_are_shown_as_people_read_them() -> None:
    assert [shown(n) for n in (0.25, 5, 999, 1_000, 12_345, 2_500_000)] == [
        "0.25",
        "5",
        "999",
        "1 k",
        "12.3 k",
        "2.5 M",
    ]
