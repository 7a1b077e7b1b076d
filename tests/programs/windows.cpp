
#include "windows/attributes.hpp"
#include "windows/communicators.hpp"
#include "windows/memory.hpp"

int main(int argc, char** argv) {
  using namespace windows;
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<> sections[] = {
      {"footprint", footprint},
      {"sizes and units", sizes_and_units, "12.2.1"},
      {"kinds of memory", kinds_of_memory, "12.2.6"},
      {"user attributes", user_attributes, "7.7.3"},
      {"failing delete callback", failing_delete_callback},
      {"hints", hints},
      {"alignment", alignment},
      {"names", names, "7.8"},
      {"error handlers", error_handlers, "12.6.1"},
      {"communicators", communicators, "12.2.1"},
      {"disjoint communicators", disjoint_communicators, "12.2.1"},
      {"communicators come and go", communicators_come_and_go},
      {"several at once", several_at_once, "12.2"},
      {"many rounds", many_rounds, "12.2"},
  };
  check::run(sections);
  return 0;
}
