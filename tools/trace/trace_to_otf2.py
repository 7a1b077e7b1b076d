#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes an OTF2 archive, for Vampir and its like, of a trace for ui.perfetto.dev. Needs OTF2's Python module (Debian:
python3-otf2).
   farside trace /tmp/t -o t.json && trace_to_otf2.py t.json FOLDER"""
import json, pathlib, sys

import otf2


def main(source, folder):
    events = json.loads(pathlib.Path(source).read_text())["traceEvents"]
    names = {(event["name"], event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["ph"] == "M" and "name" in event["args"]}
    lanes, used = {}, set()
    for event in events:
        if event["ph"] == "X":
            begin, length = (round(1000 * event[key]) for key in ("ts", "dur"))
            lanes.setdefault((event["pid"], event["tid"]), []).append((begin, begin + length, event))
    with otf2.writer.open(folder, timer_resolution=10**9) as archive:
        define = archive.definitions
        job = define.system_tree_node("job")
        ranks = {pid: define.location_group(name, system_tree_parent=job)
                 for (what, pid, _), name in names.items() if what == "process_name"}
        for (pid, tid), slices in sorted(lanes.items()):
            name = names["thread_name", pid, tid]
            if (pid, name) in used:  # another lane of epochs that overlap
                name += f" ({tid})"
            used.add((pid, name))
            writer = archive.event_writer(name, group=ranks[pid])
            inside = []  # the slices that are open, the innermost last

            def leave(until):
                while inside and inside[-1][0] <= until:
                    end, region = inside.pop()
                    writer.leave(end, region)
            # Of those that begin together the longest is outside; an inner one does not last longer, but for rounding.
            for begin, end, event in sorted(slices, key=lambda one: (one[0], -one[1])):
                leave(begin)
                region = define.region(event["name"], paradigm=otf2.Paradigm.MPI)
                writer.enter(begin, region, {define.attribute(key, type=otf2.Type.STRING): str(value)
                                             for key, value in event.get("args", {}).items()})
                inside.append((min(end, inside[-1][0]) if inside else end, region))
            leave(float("inf"))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
