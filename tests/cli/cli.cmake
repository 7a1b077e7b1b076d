# SPDX-License-Identifier: BSD-3-Clause
# The `farside` command: its parts, then the command itself.
if(NOT FARSIDE_TOOLS)
  return()
endif()

file(GLOB tools_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/*_test.cpp)
add_executable(farside-test-tools ${tools_tests})
target_link_libraries(farside-test-tools PRIVATE farside_catch_main farside_tools PkgConfig::LIBFABRIC)
target_compile_options(farside-test-tools PRIVATE ${FARSIDE_QUICK_TO_COMPILE})
target_precompile_headers(farside-test-tools PRIVATE ${FARSIDE_PRECOMPILED} <nlohmann/json.hpp>
                          <catch2/catch.hpp>)
set_target_properties(farside-test-tools PROPERTIES UNITY_BUILD "${FARSIDE_UNITY_TESTS}" UNITY_BUILD_BATCH_SIZE 5)
target_compile_definitions(farside-test-tools PRIVATE FARSIDE_COMMAND="$<TARGET_FILE:farside>"
                           FARSIDE_LIBRARIES="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
add_test(NAME unit.tools COMMAND farside-test-tools)
set_tests_properties(unit.tools PROPERTIES TIMEOUT 300 LABELS "unit;tools" ENVIRONMENT FI_TCP_IFACE=lo)

# farside_tool_test(NAME SECONDS COMMAND...): a script of this folder; 77 is skipped.
function(farside_tool_test name seconds)
  add_test(NAME tools.${name} COMMAND ${ARGN})
  set_tests_properties(tools.${name} PROPERTIES TIMEOUT ${seconds} SKIP_RETURN_CODE 77 LABELS "tools"
                       ENVIRONMENT "FARSIDE_TEST_BUILD=${PROJECT_BINARY_DIR}")
endfunction()

find_program(FARSIDE_NODE node)
if(FARSIDE_NODE)
  farside_tool_test(report_script 60 ${CMAKE_CURRENT_SOURCE_DIR}/cli/report_script
                    ${PROJECT_SOURCE_DIR}/tools/bench/report.html)
endif()

if(FARSIDE_SANITIZE)
  return()  # a library with a sanitizer cannot be preloaded into a program without
endif()
farside_tool_test(modulefile 120 ${CMAKE_CURRENT_SOURCE_DIR}/cli/modulefile ${CMAKE_COMMAND} ${PROJECT_VERSION})
farside_tool_test(steps 60 ${CMAKE_CURRENT_SOURCE_DIR}/cli/steps ${PROJECT_SOURCE_DIR})
farside_tool_test(commands 60 ${CMAKE_CURRENT_SOURCE_DIR}/cli/commands ${PROJECT_VERSION})
farside_tool_test(completion 120 ${CMAKE_CURRENT_SOURCE_DIR}/cli/completion)
farside_tool_test(info 300 ${CMAKE_CURRENT_SOURCE_DIR}/cli/info)
# What stands in place of farside's library in the tests of `farside doctor`, and what makes ranks wait.
add_library(other-version MODULE support/other_version.c)
set(for_doctor other-version)
foreach(runtime IN LISTS FARSIDE_RUNTIMES)
  add_library(stall-${runtime} MODULE support/stall.c)
  target_link_libraries(stall-${runtime} PRIVATE farside::mpi::${runtime})
  list(APPEND for_doctor stall-${runtime})
endforeach()
set_target_properties(${for_doctor} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
foreach(runtime IN LISTS FARSIDE_RUNTIMES)
  if(TARGET farside-${runtime})
    farside_tool_test(doctor.${runtime} 400 ${CMAKE_CURRENT_SOURCE_DIR}/cli/doctor ${runtime})
    farside_tool_test(run.${runtime} 300 ${CMAKE_CURRENT_SOURCE_DIR}/cli/run ${runtime}
                      ${FARSIDE_MPICC_${runtime}})
    farside_tool_test(installed.${runtime} 300 ${CMAKE_CURRENT_SOURCE_DIR}/cli/installed ${CMAKE_COMMAND} ${runtime}
                      ${FARSIDE_MPICC_${runtime}})
    farside_tool_test(wrappers.${runtime} 60 ${CMAKE_CURRENT_SOURCE_DIR}/cli/wrappers ${CMAKE_COMMAND} ${runtime}
                      ${PROJECT_SOURCE_DIR})
    farside_tool_test(bench.${runtime} 400 ${CMAKE_CURRENT_SOURCE_DIR}/cli/bench ${runtime})
    farside_tool_test(suites.${runtime} 300 ${CMAKE_CURRENT_SOURCE_DIR}/cli/suites ${runtime}
                      ${FARSIDE_MPICC_${runtime}})
    farside_tool_test(cluster.${runtime} 400 ${CMAKE_CURRENT_SOURCE_DIR}/cli/cluster ${runtime})
    farside_tool_test(slurm.${runtime} 400 ${CMAKE_CURRENT_SOURCE_DIR}/system/slurm ${runtime}
                      ${FARSIDE_MPICC_${runtime}})
    set_tests_properties(tools.slurm.${runtime} PROPERTIES PROCESSORS 2 LABELS "tools;slurm")
    farside_tool_test(conform.${runtime} 400 ${CMAKE_CURRENT_SOURCE_DIR}/cli/conform ${runtime})
    farside_tool_test(trace.${runtime} 300 ${CMAKE_CURRENT_SOURCE_DIR}/cli/trace ${runtime})
    farside_tool_test(trace_page.${runtime} 200 ${CMAKE_CURRENT_SOURCE_DIR}/cli/trace_page ${runtime})
    set_tests_properties(tools.run.${runtime} tools.installed.${runtime} tools.bench.${runtime} tools.trace.${runtime}
                         tools.cluster.${runtime} tools.suites.${runtime} tools.conform.${runtime}
                         tools.doctor.${runtime} tools.trace_page.${runtime}
                         PROPERTIES PROCESSORS 2)
  endif()
endforeach()
if(TARGET farside-openmpi)
  farside_tool_test(run.python 120 ${CMAKE_CURRENT_SOURCE_DIR}/cli/run_python ${FARSIDE_PYTHON})
endif()

# Programs that cannot be run, each for its own reason.
add_library(lost-mpi SHARED cli/lost_mpi.c)
target_compile_definitions(lost-mpi PRIVATE LIBRARY)
set_target_properties(lost-mpi PROPERTIES PREFIX "" OUTPUT_NAME libmpi SUFFIX .so.20 NO_SONAME ON
                      LINK_OPTIONS "-Wl,-soname,libmpi.so.20"
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests/lost-library)
add_executable(lost cli/lost_mpi.c)
target_link_libraries(lost PRIVATE lost-mpi)
set_target_properties(lost PROPERTIES SKIP_BUILD_RPATH ON)
if("openmpi" IN_LIST FARSIDE_RUNTIMES AND "mpich" IN_LIST FARSIDE_RUNTIMES)
  add_executable(two-runtimes cli/two_runtimes.c)
  target_link_libraries(two-runtimes PRIVATE farside::mpi::openmpi farside::mpi::mpich)
  farside_tool_test(run.refused 60 ${CMAKE_CURRENT_SOURCE_DIR}/cli/run_refused)
endif()
