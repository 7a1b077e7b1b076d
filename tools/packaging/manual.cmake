# SPDX-License-Identifier: BSD-3-Clause
# The manual pages: help2man makes them of the help of the programs. Without help2man there are none. Nor are there with
# a sanitizer, which is not for installing, and takes what the MPI libraries leave allocated for leaks.
find_program(FARSIDE_HELP2MAN help2man)
if(NOT FARSIDE_HELP2MAN OR CMAKE_CROSSCOMPILING OR FARSIDE_SANITIZE)
  message(STATUS "farside: no manual pages (they need help2man, and programs for this machine without a sanitizer)")
  return()
endif()
set(manual ${PROJECT_BINARY_DIR}/man)
file(MAKE_DIRECTORY ${manual})

# page(NAME TEXT PROGRAM [SUBCOMMAND...]): NAME(1), the page of a program or of its subcommand; TEXT is its line in the
# list of pages. It refers to the pages ${also}, and is installed with ${component}.
set(pages "")
function(page name text program)
  list(JOIN ARGN " " words)
  file(WRITE ${manual}/${name}.h2m "[name]\n${name} \\- ${text}\n\n[see also]\n${also}\n")
  add_custom_command(OUTPUT ${manual}/${name}.1 VERBATIM DEPENDS ${program} ${CMAKE_CURRENT_LIST_FILE} COMMAND
    ${FARSIDE_HELP2MAN} --no-info --include=${manual}/${name}.h2m "--source=farside ${PROJECT_VERSION}"
    --version-string=${PROJECT_VERSION} --output=${manual}/${name}.1 "$<TARGET_FILE:${program}> ${words}")
  install(FILES ${manual}/${name}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  set(pages ${pages} ${manual}/${name}.1 PARENT_SCOPE)
endfunction()
set(component tools)
string(CONCAT also "farside-run(1), farside-info(1), farside-doctor(1), farside-bench(1), farside-conform(1), "
                   "farside-trace(1), farside-explain(1)")
page(farside "MPI one-sided communication over shared memory and libfabric" farside)
set(also "farside(1), farside(7)")
page(farside-run "start an MPI program with farside" farside run)
page(farside-info "show what this machine offers, and what farside uses" farside info)
page(farside-doctor "check farside on the ranks of a launch" farside doctor)
page(farside-bench "measure one-sided communication natively and with farside" farside bench)
page(farside-bench-compare "compare two results of farside bench" farside bench compare)
page(farside-bench-report "make an HTML report of a result of farside bench" farside bench report)
page(farside-conform "check which requirements of the standard a runtime meets" farside conform)
page(farside-trace "show which rank waited for which" farside trace)
page(farside-explain "explain where the time of a run went, and what would help" farside explain)
set(also "farside-bench(1), mpirun(1)")
foreach(component IN LISTS FARSIDE_RUNTIMES)
  page(farside-bench-${component} "the program that farside bench measures with, for ${component}"
       farside-bench-${component})
  # The program that only `farside info` and `farside doctor` start has no help, so its page is written by hand.
  set(peers ${manual}/farside-peers-${component}.1)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/farside-peers.1.in ${peers} @ONLY)
  install(FILES ${peers} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endforeach()
add_custom_target(manual ALL DEPENDS ${pages})

# farside(7), the settings, is farside(1), which has them.
file(WRITE ${manual}/farside.7 ".so man1/farside.1\n")
install(FILES ${manual}/farside.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT tools)
