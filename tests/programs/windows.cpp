
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
      {"sizes and units", sizes_and_units},
      {"kinds of memory", kinds_of_memory},
      {"user attributes", user_attributes},
      {"failing delete callback", failing_delete_callback},
      {"hints", hints},
      {"alignment", alignment},
      {"names", names},
      {"error handlers", error_handlers},
      {"communicators", communicators},
      {"disjoint communicators", disjoint_communicators},
      {"communicators come and go", communicators_come_and_go},
      {"several at once", several_at_once},
      {"many rounds", many_rounds},
  };
  check::run(sections);
  return 0;
}
