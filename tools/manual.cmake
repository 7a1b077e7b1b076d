# SPDX-License-Identifier: BSD-3-Clause
# The manual pages: help2man makes them of the help of the command. Without help2man there are none.
find_program(FARSIDE_HELP2MAN help2man)
if(NOT FARSIDE_HELP2MAN OR CMAKE_CROSSCOMPILING)
  message(STATUS "farside: no manual pages (help2man is missing)")
  return()
endif()
set(manual ${PROJECT_BINARY_DIR}/man)
file(MAKE_DIRECTORY ${manual})

# page(NAME TEXT [SUBCOMMAND...]): NAME(1), the page of a command; TEXT is its line in the list of pages.
set(pages "")
function(page name text)
  list(JOIN ARGN " " words)
  set(also "farside(1), farside(7)")
  if(NOT ARGN)
    string(CONCAT also "farside-run(1), farside-info(1), farside-doctor(1), farside-bench(1), farside-simulate(1), "
                       "farside-trace(1)")
  endif()
  file(WRITE ${manual}/${name}.h2m "[name]\n${name} \\- ${text}\n\n[see also]\n${also}\n")
  add_custom_command(OUTPUT ${manual}/${name}.1 VERBATIM DEPENDS farside ${CMAKE_CURRENT_LIST_FILE} COMMAND
    ${FARSIDE_HELP2MAN} --no-info --include=${manual}/${name}.h2m "--source=farside ${PROJECT_VERSION}"
    --version-string=${PROJECT_VERSION} --output=${manual}/${name}.1 "$<TARGET_FILE:farside> ${words}")
  set(pages ${pages} ${manual}/${name}.1 PARENT_SCOPE)
endfunction()
page(farside "MPI one-sided communication over shared memory and libfabric")
page(farside-run "start an MPI program with farside" run)
page(farside-info "what this machine offers, and what farside makes of it" info)
page(farside-doctor "what is wrong on the ranks of a launch, and what to do" doctor)
page(farside-bench "measure one-sided communication natively and with farside" bench)
page(farside-bench-compare "compare two results of farside bench" bench compare)
page(farside-bench-report "make the HTML report, or CSV, of a result of farside bench" bench report)
page(farside-simulate "the lock among many ranks, in simulated time" simulate)
page(farside-trace "which rank waited for which" trace)
page(farside-explain "where the time of a run went, and what would help" explain)
add_custom_target(manual ALL DEPENDS ${pages})
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)

# farside(7), the settings, is farside(1), which has them.
file(WRITE ${manual}/farside.7 ".so man1/farside.1\n")
install(FILES ${manual}/farside.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT tools)
# The help of the benchmark programs needs an MPI that runs, so their pages are made of a text.
foreach(runtime IN LISTS FARSIDE_RUNTIMES)
  foreach(program bench peers)
    configure_file(farside-${program}.1.in ${manual}/farside-${program}-${runtime}.1 @ONLY)
    install(FILES ${manual}/farside-${program}-${runtime}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
            COMPONENT ${runtime})
  endforeach()
endforeach()
