#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether a report of `farside bench` can be read in a browser, in light and dark, wide and narrow: no text of a plot
is cut off or lies on another, nothing makes the page wider than the window, text stands out from its ground.

    check_layout.py BROWSER REPORT.html
"""
import html
import os
import re
import subprocess
import sys
import tempfile

SCRIPT = """<script>
const wrong = [];
const rgb = color => color.match(/[0-9.]+/g).slice(0, 3).map(Number);
const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = color => { const [r, g, b] = rgb(color).map(linear);
                             return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)];
                             return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
for (const svg of document.querySelectorAll("svg.plot")) {
  const id = svg.dataset.plot, frame = svg.getBoundingClientRect();
  const ground = getComputedStyle(svg.closest("figure")).backgroundColor;
  const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
  for (const [t, r] of texts) {
    if (r.left < frame.left - 0.5 || r.right > frame.right + 0.5 ||
        r.top < frame.top - 0.5 || r.bottom > frame.bottom + 0.5)
      wrong.push(`${id}: cut off: ${t.textContent}`);
    if (contrast(getComputedStyle(t).fill, ground) < 4.5) wrong.push(`${id}: too faint: ${t.textContent}`);
    for (const [u, s] of texts) {
      if (t === u) continue;
      if (r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 3 && s.top < r.bottom - 3)
        wrong.push(`${id}: on each other: ${t.textContent}, ${u.textContent}`);
    }
  }
  for (const line of svg.querySelectorAll("g.line"))
    if (contrast(getComputedStyle(line).color, ground) < 3)
      wrong.push(`${id}: too faint: ${line.getAttribute("class")}`);
}
if (document.documentElement.scrollWidth > innerWidth)
  wrong.push(`wider than the window: ${document.documentElement.scrollWidth}`);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.body.innerHTML = "";
const pre = document.createElement("pre");
const light = luminance(getComputedStyle(document.body).backgroundColor) > 0.5;
pre.textContent = [`dark: ${dark}`, `ground: ${light}`, ...wrong, "done"].join("\\n");
document.body.append(pre);
</script>"""


def main():
    browser, report = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        with open(report) as source, open(page, "w") as out:
            out.write(source.read().replace("</body>", SCRIPT + "</body>"))
        for scheme, dark in ((1, False), (0, True)):
            for width in (1300, 620):
                words = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                         f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},900", "--dump-dom",
                         "file://" + page]
                dom = subprocess.run(words, capture_output=True, text=True, timeout=50).stdout
                found = re.search(r"<pre>(.*)</pre>", dom, re.S)
                lines = html.unescape(found.group(1)).splitlines() if found else ["the browser says nothing"]
                want = [f"dark: {str(dark).lower()}", f"ground: {str(not dark).lower()}", "done"]
                if lines != want:
                    failed = True
                    print(f"{'dark' if dark else 'light'}, {width} wide:", *lines, sep="\n  ")
    return 1 if failed else 0


sys.exit(main())
