#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the one-sided benchmarks of OSU and IMB natively and with farside, in alternation, and prints one report. The
result of --json is like those of farside bench."""
import argparse, json, os, pathlib, re, shlex, signal, statistics, subprocess, sys, time

OSU = "put_latency get_latency acc_latency get_acc_latency fop_latency cas_latency put_bw get_bw put_bibw"
KNOWN = [f"osu_{name}" for name in OSU.split()] + ["IMB-RMA", "IMB-EXT"]
# As root, and with more ranks than cores, which are not bound: as farside bench starts Open MPI. MPICH needs none.
LAUNCHER = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none"}
VARIANTS = {"native": "native", "node": "farside"}


def programs(words):
    """The command lines: of a folder, and without words of those in PATH, all benchmarks that are there."""
    for word in words or os.get_exec_path():
        if not words or os.path.isdir(word):
            yield from ([path] for path in (os.path.join(word, name) for name in KNOWN) if os.access(path, os.X_OK))
        else:
            yield shlex.split(word)


def rows(lines):
    """(table, bytes, unit, figure) of each row. Of the times in IMB's tables the last one counts: the average, or in
    Truly_passive_put that with a computing target."""
    table, mode, column, unit = "", "", 0, "us"
    for words in (line.split() for line in lines):
        if words[:2] == ["#", "Benchmarking"]:
            table, mode = " " + words[2], ""
        elif words[:2] == ["#", "MODE:"]:
            mode = " " + words[2].lower()
        elif words[:2] == ["#", "Size"]:
            column, unit = 1, "MB/s" if "(MB/s)" in words[:4] else "us"
        elif words and words[0] in ("#bytes", "#repetitions"):
            times = [index for index, word in enumerate(words) if word.endswith("[usec]")]
            column, unit = times[-1] if times and words[0] == "#bytes" else 0, "us"
        elif column and len(words) > column and words[0].isdigit():
            yield table + mode, int(words[0]), unit, float(words[column])


def run(words, seconds):
    """Returns the lines of stdout, stderr, and the verdict: empty, or what went wrong."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | LAUNCHER, start_new_session=True) as child:
        verdict = ""
        for end in (None, signal.SIGTERM, signal.SIGKILL):
            try:
                if end:
                    verdict = "hung"
                    os.killpg(child.pid, end)
                out, err = child.communicate(timeout=seconds if end is None else 10)
                break
            except subprocess.TimeoutExpired:
                pass
    code = child.returncode
    return out.splitlines(), err, verdict or ("" if code == 0 else "crashed" if code < 0 or code > 128 else "failed")


def main(farside, arguments):
    parser = argparse.ArgumentParser("farside bench suites", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each variant (default: 3)")
    parser.add_argument("--timeout", type=int, default=900, help="seconds after which a program counts as hung")
    parser.add_argument("--run", default="-n 2", help="options of farside run (default: -n 2)")
    parser.add_argument("--json", help="write the figures of all runs to this file")
    parser.add_argument("PROGRAM", nargs="*",
                        help="a command line ('osu_put_latency -m 8:64'), or a folder (default: those in PATH)")
    options = parser.parse_args(arguments)
    info = json.loads(subprocess.run([farside, "info", "--json"], capture_output=True, text=True, check=True).stdout)
    runtimes = {one["runtime"]: one for one in info["runtimes"]}
    measures, left_out, launches = {}, [], []
    for program in programs(options.PROGRAM):
        name = os.path.basename(program[0])
        dry = subprocess.run([farside, "run", "--dry-run", "--set", "FARSIDE_LOG=info", *shlex.split(options.run), "--",
                              *program], capture_output=True, text=True)
        library = re.search(r"[^=: ']*libfarside-(\w+)\.so[^: ']*", dry.stdout)
        if library:
            if any((name, library[1]) == launch[:2] for launch in launches):
                name = shlex.join([name, *program[1:]])
            with_farside = shlex.split(dry.stdout)
            native = [word.replace(library[0], "") for word in with_farside]
            launches.append((name, library[1], {"native": native, "node": with_farside}))
        else:
            left_out.append({"runtime": name, "reason": dry.stderr.strip() or "linked to farside, so never native"})
    good = bool(launches)
    for number in range(options.runs):
        for name, runtime, words in launches:
            for variant, command in words.items():
                print(f"run {number + 1} of {options.runs}: {name}, {runtime}, {VARIANTS[variant]}", flush=True)
                lines, errors, verdict = run(command, options.timeout)
                found = list(rows(lines))
                if not verdict and not found:
                    verdict = "failed"
                if variant == "node" and not verdict and " is active on " not in errors:
                    verdict, errors, found = "failed", "NOT FARSIDE: its windows were left to the runtime", []
                reason = (errors.strip() or "no table").splitlines()[-1]
                if verdict:
                    found.append((" to its end", 0, "us", None))
                    print(f"  {verdict}: {reason}")
                    good = good and variant == "native"
                for table, size, unit, figure in found:
                    key = runtime, name + table, size, unit
                    one = measures.setdefault(key, {}).setdefault(variant, {"verdict": "measured", "runs": []})
                    if figure is None:
                        one.update(verdict=verdict, reason=reason)
                    else:
                        one["runs"].append({"median": figure, "left_out": False})
                        values = [each["median"] for each in one["runs"]]
                        one.update(median=statistics.median(values), doubtful=max(values) > 2 * min(values))
    for one in left_out:
        print(f"{one['runtime']}: {one['reason']}")
    if not launches:
        sys.exit("farside bench suites: no benchmark of OSU or IMB in PATH, or there: name a program or its folder")

    processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    result = {"farside_bench": 2, "farside": info["farside"], "libfabric": info["libfabric"]["version"],
              "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "command": shlex.join(["farside", "bench", "suites", *arguments]),
              "headline": f"OSU's and IMB's one-sided benchmarks, {options.runs} runs of each variant (medians).",
              "machine": info["machine"] | {"processor": processor[1] if processor else "unknown"},
              "hosts": [], "left_out": left_out, "variants": [], "runtimes": [],
              "settings": {"window": "allocate", "rounds": options.runs, "launcher_options": shlex.split(options.run)}}
    for variant, title in VARIANTS.items():
        result["variants"].append({"variant": variant, "title": title, "native": variant == "native"})
    for runtime in dict.fromkeys(key[0] for key in measures):
        one = {"runtime": runtime, "version": runtimes[runtime]["version"], "launcher": runtimes[runtime]["launcher"],
               "library": runtimes[runtime]["library"], "warnings": [], "taken": {}, "measures": []}
        result["runtimes"].append(one)
        lines = [("", *VARIANTS.values(), "ratio")]
        for (of, table, size, unit), variants in measures.items():
            if of != runtime:
                continue
            title = f"{table}, {size} B" if size or "to its end" not in table else table
            shown = [f"{variants[v]['median']:.2f} {unit}" if "median" in variants.get(v, {}) else
                     variants.get(v, {}).get("verdict", "-") for v in VARIANTS]
            before, after = (variants.get(v, {}).get("median", 0) for v in VARIANTS)
            ratio = "-" if before * after == 0 else f"{after / before if unit == 'MB/s' else before / after:.2f}x"
            lines.append((title, *shown, ratio))
            one["measures"].append({"measure": f"{table.replace(' ', '_')}_{size}", "title": title, "unit": unit,
                                    "better": "more" if unit == "MB/s" else "less", "group": table, "x": float(size),
                                    "bare": "", "variants": variants})
        widths = [max(map(len, column)) for column in zip(*lines)]
        print(f"\n{one['version'] or runtime}; ratio: how many times as fast as native")
        for first, *others in lines:
            print(" | ".join([first.ljust(widths[0]), *(o.rjust(w) for o, w in zip(others, widths[1:]))]).rstrip())
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
        print(f"\nFigures of all runs: {options.json}; a page of them: farside bench report {options.json} --html FILE")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
