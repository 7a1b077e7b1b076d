// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_report/html.hpp"

#include <map>
#include <vector>

#include <fmt/format.h>

#include "tools/bench_report/plots.hpp"
#include "tools/bench_report/svg.hpp"
#include "tools/text.hpp"

namespace farside::tools {
namespace {

// Colours: one variable per variant; both schemes have enough contrast with the background.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f6f7f9; --text: #1b1f24; --dim: #57606a; --grid: #d5dae0;
  --native: #4d5560; --sm: #a04e00; --rdma: #7a34c9; --ucx: #b8286c; --pt2pt: #00798c; --node: #0b57d0;
  --unchecked: #3d8bfd; --fabric: #14783d; --limit: #8a6d00; --good: #14783d; --bad: #c62828; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --panel: #1d2127; --text: #e6e9ed; --dim: #a3adb8; --grid: #3a424c;
    --native: #b4bdc8; --sm: #ffab5e; --rdma: #c39bff; --ucx: #ff8fbd; --pt2pt: #5fd7e8; --node: #74a9ff;
    --unchecked: #b3d0ff; --fabric: #63d48f; --limit: #e6c84a; --good: #63d48f; --bad: #ff8a80; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 1320px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; } .dim, .facts dt { color: var(--dim); }
code { font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .8rem 0; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem; background: var(--panel); border-radius: 8px; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--text); }
svg .tick { fill: var(--dim); } .grid { stroke: var(--grid); stroke-width: 1; }
.axis { fill: none; stroke: var(--dim); stroke-width: 1; } .line { color: var(--native); }
.way { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.point > :not(title), .line > circle, .line > rect, .line > polygon, .line > path:not(.way) { fill: currentColor; stroke: currentColor;
  stroke-width: 1.5; }
.line > path:not(.way), .point > path { fill: none; } .line .hollow { fill: var(--panel); }
.range { stroke: currentColor; stroke-width: 5; opacity: .3; }
.sm { color: var(--sm); } .rdma { color: var(--rdma); } .ucx { color: var(--ucx); } .pt2pt { color: var(--pt2pt); }
.node { color: var(--node); } .unchecked { color: var(--unchecked); } .fabric { color: var(--fabric); }
.limit-fabric, .limit-memory, .limit-wait { color: var(--limit); } .limit-fabric .way { stroke-dasharray: 7 4; }
.limit-memory .way { stroke-dasharray: 2 4; } .limit-wait .way { stroke-dasharray: 12 4 2 4; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--ground); } th { color: var(--dim); font-weight: 600; }
.ratio { color: var(--dim); font-size: 13px; margin-left: .5em; } .better { color: var(--good); } .worse { color: var(--bad); }
.many th, .many td { padding: .2rem .45rem; } .many th { white-space: normal; } .many .ratio { display: block; margin: 0; }
.broken { color: var(--bad); } .warning { color: var(--bad); font-weight: 600; }
)";

std::string value_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string facts(const Json& result) {
  std::string text = "<dl class=\"facts\">\n";
  const auto add = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(what), escaped(value));
  };
  const Json& machine = result.at("machine");
  const Json& settings = result.at("settings");
  add("date", result.at("date"));
  add("command", result.value("command", ""));
  add("machine", fmt::format("{}: {}, {} hardware threads, {:.1f} GiB", value_text(machine.at("host")),
                             value_text(machine.at("processor")), machine.value("threads", 0),
                             static_cast<double>(machine.value("memory_bytes", std::uint64_t{0})) / 1073741824.0));
  add("system", fmt::format("{}, kernel {}", machine.value("system", ""), value_text(machine.at("kernel"))));
  std::string versions =
      fmt::format("farside {}, libfabric {}", result.value("farside", ""), result.value("libfabric", ""));
  for (const Json& runtime : result.at("runtimes")) versions += ", " + runtime.at("version").get<std::string>();
  add("versions", versions);
  add("settings", fmt::format("{} ranks, {} runs of each variant, windows made by MPI_Win_{}, libfabric provider {}",
                              settings.value("ranks", 0), settings.value("rounds", 0),
                              settings.at("window").get<std::string>(), settings.value("provider", "")));
  add("hosts", settings.value("hosts", ""));
  add("launcher", settings.value("launcher", ""));
  return text + "</dl>\n";
}

std::string runs_text(const Json& figure, bench::Unit unit) {
  std::string text;
  for (const Json& run : figure.at("runs")) {
    text += fmt::format("{}{}{}", text.empty() ? "runs: " : ", ", with_unit(run.at("median"), unit),
                        run.at("left_out").get<bool>() ? " (left out)" : "");
  }
  return text;
}

std::string cell(const Json& measure, const std::string& variant) {
  const Json* figure = find_figure(measure, variant);
  if (figure == nullptr) return "<td class=\"dim\">-</td>";
  const bench::Unit unit = unit_of(measure);
  const auto median = median_in(figure);
  if (!median) {
    return fmt::format("<td class=\"broken\" data-variant=\"{}\" title=\"{}\">{}</td>", variant,
                       escaped(figure->value("reason", "")), escaped(figure->value("verdict", "")));
  }
  std::string times;
  const auto base = median_in(find_figure(measure, "native"));
  if (variant != "native" && base && *base > 0 && *median > 0) {
    const double faster = bench::more_is_better(unit) ? *median / *base : *base / *median;
    times = fmt::format("<span class=\"ratio{}\">{}</span>",
                        faster >= 1.1       ? " better"
                        : faster <= 1 / 1.1 ? " worse"
                                            : "",
                        ratio(*base, *median, unit));
  }
  return fmt::format("<td data-variant=\"{}\" title=\"{}\"><span class=\"figure\">{}{}</span>{}</td>", variant,
                     escaped(runs_text(*figure, unit)), figure->value("doubtful", false) ? "~" : "",
                     with_unit(*median, unit), times);
}

// Returns the same operation over bare libfabric; null if it was not measured.
const Json* bare_of(const Json& runtime, const Json& measure) {
  for (const Json& other : runtime.at("measures")) {
    if (other.at("measure") == measure.at("bare") && median_in(find_figure(other, "fabric"))) return &other;
  }
  return nullptr;
}

std::string bare_cell(const Json* bare) {
  if (bare == nullptr) return "<td class=\"dim\">-</td>";
  const Json& figure = *find_figure(*bare, "fabric");
  return fmt::format("<td data-bare=\"{}\" title=\"{}\">{}</td>", escaped(bare->at("measure")),
                     escaped(runs_text(figure, unit_of(*bare))), with_unit(*median_in(&figure), unit_of(*bare)));
}

std::string table(const Json& result, const Json& runtime) {
  std::vector<std::string> keys;
  std::string head;
  bool bare = false;
  for (const Json& measure : runtime.at("measures")) bare = bare || bare_of(runtime, measure) != nullptr;
  for (const Json& variant : result.at("variants")) {
    const std::string key = variant.at("variant");
    bool any = false;
    for (const Json& measure : runtime.at("measures")) any = any || find_figure(measure, key) != nullptr;
    if (!any) continue;  // not a variant of this runtime
    keys.push_back(key);
    head += fmt::format("<th>{}</th>", escaped(variant.at("title")));
    if (key == "fabric" && bare) head += "<th>bare libfabric</th>";
  }
  std::string text = fmt::format("<div class=\"scroll\"><table{}>\n<tr><th>measure</th>{}</tr>\n",
                                 keys.size() > 4 ? " class=\"many\"" : "", head);
  for (const Json& measure : runtime.at("measures")) {
    if (measure.at("variants").empty()) continue;
    text += fmt::format("<tr data-measure=\"{}\"><td>{}</td>", escaped(measure.at("measure")),
                        escaped(measure.at("title")));
    for (const std::string& key : keys) {
      text += cell(measure, key);
      if (key == "fabric" && bare) text += bare_cell(bare_of(runtime, measure));
    }
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

// Lists the reasons for missing figures, each once.
std::string notes(const Json& result, const Json& runtime) {
  std::map<std::string, std::string> by_reason;
  for (const Json& measure : runtime.at("measures")) {
    for (const Json& variant : result.at("variants")) {
      const Json* figure = find_figure(measure, variant.at("variant"));
      if (figure == nullptr || median_in(figure)) continue;
      std::string& measures = by_reason[fmt::format("{} {}: {}", variant.at("title").get<std::string>(),
                                                    figure->value("verdict", ""), figure->value("reason", ""))];
      measures += (measures.empty() ? "" : "; ") + measure.at("title").get<std::string>();
    }
  }
  std::string text;
  for (const auto& [reason, measures] : by_reason)
    text += fmt::format("<li>{} <span class=\"dim\">[{}]</span></li>\n", escaped(reason), escaped(measures));
  return text.empty() ? "" : "<ul>\n" + text + "</ul>\n";
}

std::string section(const Json& result, const Json& runtime) {
  const std::string name = runtime.at("runtime");
  const std::string version = runtime.at("version");
  std::string text = fmt::format("<section data-runtime=\"{}\">\n<h2>{}</h2>\n", escaped(name),
                                 escaped(version.empty() ? name : version));
  for (const Json& warning : runtime.at("warnings"))
    text += fmt::format("<p class=\"warning\">{}</p>\n", escaped(warning));
  text += "<div class=\"plots\">\n";
  for (const Plot& plot : plots_of(result, runtime))
    text += fmt::format("<figure><h3>{}</h3>\n{}</figure>\n", escaped(plot.title), svg_of(plot));
  return text + "</div>\n<h3 style=\"margin-top:1.2rem\">All measures</h3>\n" + table(result, runtime) +
         notes(result, runtime) + "</section>\n";
}

// JSON in a script element must not contain the end tag of the element.
std::string embedded(const Json& result) {
  std::string text;
  for (const char byte : json_text(result)) {
    if (byte == '<') {
      text += "\\u003c";
    } else {
      text += byte;
    }
  }
  return text;
}

}  // namespace

std::string html_report(const Json& result) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>farside bench, {}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>farside bench</h1>\n"
      "<p class=\"dim\">MPI one-sided communication, native and with farside, measured in alternation.</p>\n",
      escaped(result.at("date")), kStyle);
  text += facts(result);
  for (const Json& runtime : result.at("runtimes")) text += section(result, runtime);
  text +=
      "<h2>How to read it</h2>\n<p>Figures are medians over the runs of the medians of each run; the small "
      "ones say how many "
      "times as fast as native it is, above 1x is faster. <code>~</code>: the runs differ by more than a "
      "factor of two, or "
      "show nothing but the scheduler's time slices. In the plots a point is such a median and the broad "
      "stroke behind it goes "
      "from the least to the largest run; axes are logarithmic but for the number of threads. Dashed lines "
      "are limits: the "
      "same operation over bare libfabric, or on bare shared memory. Over libfabric on one machine data "
      "takes the way to "
      "another node through this machine's network stack, so it is not to be compared with shared memory "
      "beside it.</p>\n";
  return text + "<script type=\"application/json\" id=\"result\">\n" + embedded(result) +
         "</script>\n</body>\n</html>\n";
}

}  // namespace farside::tools
