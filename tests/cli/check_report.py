#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether the figures of a report of `farside bench`, as tests/cli/draw_report draws it, are those of its JSON:

    check_report.py RESULT.json DRAWN.html

The JSON embedded in it, the cells of its tables, the points of its plots (value and place), the labels of their axes.
"""
import json
import math
import re
import sys
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser

UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6, "kB/s": 1e-3, "MB/s": 1,
         "GB/s": 1e3, "/s": 1, "k/s": 1e3, "M/s": 1e6}
BANDWIDTH, SIZES = "bandwidth", ("latency", "bandwidth")


class Report(HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.plots, self.embedded = {}, [], ""
        self.runtime = self.measure = self.variant = self.line = None
        self.reading = None

    def handle_starttag(self, tag, pairs):
        a = dict(pairs)
        kind = a.get("class", "")
        if tag == "section":
            self.runtime = a["data-runtime"]
        elif tag == "tr":
            self.measure = a.get("data-measure")
        elif tag == "td":
            self.variant = a.get("data-variant") or a.get("data-bare")
            self.reading = "cell" if "data-bare" in a or (self.variant and "broken" in kind) else None
        elif tag == "span" and kind == "figure":
            self.reading = "cell"
        elif tag == "script":
            self.reading = "json" if a.get("type") == "application/json" else None
        elif tag == "svg":
            self.plots.append({"runtime": self.runtime, "id": a["data-plot"], "x": a["data-x-scale"].split(),
                               "y": a["data-y-scale"].split(), "points": [], "ticks": [], "legend": []})
        elif tag == "g" and kind.startswith("line "):
            self.line = kind.split()[1]
        elif tag == "g" and kind == "point":
            self.plots[-1]["points"].append((self.line, a["data-measure"], float(a["data-x"]), float(a["data-y"]),
                                             [float(v) for v in a["data-at"].split()]))
        elif tag == "text" and "tick" in kind:
            self.plots[-1]["ticks"].append([kind.split()[1], float(a["x"]), float(a["y"]), ""])
            self.reading = "tick"
        elif tag == "text" and kind == "legend":
            self.plots[-1]["legend"].append("")
            self.reading = "legend"

    def handle_data(self, data):
        if self.reading == "cell":
            self.cells[self.runtime, self.measure, self.variant] = data
        elif self.reading == "json":
            self.embedded += data
        elif self.reading == "tick":
            self.plots[-1]["ticks"][-1][3] += data
        elif self.reading == "legend":
            self.plots[-1]["legend"][-1] += data
        if self.reading != "json":
            self.reading = None

    def handle_endtag(self, tag):
        self.reading = None


def three_digits(value):
    """As the command's tables: three significant digits, never an exponent. (JavaScript rounds halves up.)"""
    if not value > 0:
        return f"{value:g}"
    decimals = 2 - math.floor(math.log10(value))
    if decimals > 0:
        return str(Decimal(value).quantize(Decimal(1).scaleb(-min(decimals, 6)), ROUND_HALF_UP))
    return f"{math.floor(value / 10**-decimals + 0.5) * 10**-decimals:.0f}"


def shown(value, unit):
    if unit == "MB/s":
        return three_digits(value) + " MB/s" if value < 1000 else three_digits(value / 1000) + " GB/s"
    if unit == "1/s":
        steps = [(1e3, 1, " /s"), (1e6, 1e3, " k/s"), (math.inf, 1e6, " M/s")]
    elif unit == "us":
        steps = [(1e3, 1, " us"), (1e6, 1e3, " ms"), (math.inf, 1e6, " s")]
    else:
        return three_digits(value)
    return next(three_digits(value / size) + name for limit, size, name in steps if value < limit)


def place(scale, value):
    least, most, start, end = map(float, scale[1:])
    share = math.log(value / least) / math.log(most / least) if scale[0] == "log" else (value - least) / (most - least)
    return start + share * (end - start)


def main():
    result = json.load(open(sys.argv[1]))
    report = Report()
    report.feed(open(sys.argv[2]).read())
    wrong = []

    def check(good, *what):
        if not good:
            wrong.append(" ".join(map(str, what)))

    check(json.loads(report.embedded) == result, "the JSON in the report is another")
    expected_points, cells = 0, 0
    for runtime in result["runtimes"]:
        name = runtime["runtime"]
        measures = {m["measure"]: m for m in runtime["measures"]}
        for measure in runtime["measures"]:
            for variant, figure in measure["variants"].items():
                cells += 1
                text = shown(figure["median"], measure["unit"]) if "median" in figure else figure["verdict"]
                text = "~" + text if figure.get("doubtful") else text
                cell = report.cells.get((name, measure["measure"], variant))
                check(cell == text, "cell", name, measure["measure"], variant, "is", cell, "not", text)
            bare = measures.get(measure["bare"], {"variants": {}})["variants"].get("fabric", {})
            if "median" in bare and measure["variants"]:
                cells += 1
                text = report.cells.get((name, measure["measure"], measure["bare"]))
                unit = measures[measure["bare"]]["unit"]
                want = ("~" if bare.get("doubtful") else "") + shown(bare["median"], unit)
                check(text == want, "bare cell", name, measure["measure"], "is", text, "not", want)
        for plot in (p for p in report.plots if p["runtime"] == name):
            sizes = plot["id"].split("-")[1] in SIZES
            for line, of, x, y, at in plot["points"]:
                measure = measures[of]
                variant = line if not line.startswith("limit-") else ("fabric" if line == "limit-fabric" else "node")
                value = measure["variants"][variant]["median"]
                if sizes and (BANDWIDTH in plot["id"]) != (measure["unit"] == "MB/s"):
                    value = measure["x"] / value
                check(abs(y / value - 1) < 1e-9, plot["id"], line, of, "shows", y, "not", value)
                check(measure["x"] in (0, x), plot["id"], line, of, "is at", x, "not", measure["x"])
                where = [place(plot["x"], x), place(plot["y"], y)]
                check(max(abs(a - b) for a, b in zip(where, at)) < 0.02, plot["id"], of, "is at", at, "not", where)
            check(plot["points"], plot["id"], "has no points")
            check(len(plot["legend"]) >= len({p[0] for p in plot["points"]}), plot["id"], "names too few lines")
            counts = {"x": 0, "y": 0}
            for axis, tick_x, tick_y, label in plot["ticks"]:
                counts[axis] += 1
                number, _, unit = label.partition(" ")
                value = float(number) * UNITS.get(unit, 1)
                if axis == "x" and unit in ("ms", "s"):
                    value *= 1e-6
                at, want = (tick_x, place(plot["x"], value)) if axis == "x" else (tick_y, place(plot["y"], value))
                check(abs(at - want) < 0.02, plot["id"], "label", label, "is at", at, "not", want)
            check(min(counts.values()) >= 2, plot["id"], "has too few labels:", counts)
            # Every figure of the plot's groups is in it.
            groups = {measures[of]["group"] for line, of, *_ in plot["points"] if not line.startswith("limit-")}
            drawn = {(line, of) for line, of, *_ in plot["points"]}
            for measure in runtime["measures"]:
                for variant, figure in measure["variants"].items():
                    if measure["group"] in groups and measure["x"] > 0 and figure.get("median", 0) > 0:
                        expected_points += 1
                        check((variant, measure["measure"]) in drawn, plot["id"], "lacks", variant, measure["measure"])
    check(cells > 0 and len(report.cells) == cells, "cells:", len(report.cells), "not", cells)
    check(expected_points > 0, "no plot has a point")
    for line in wrong:
        print(line)
    print(f"{cells} cells, {len(report.plots)} plots, {sum(len(p['points']) for p in report.plots)} points")
    return 1 if wrong else 0


sys.exit(main())
