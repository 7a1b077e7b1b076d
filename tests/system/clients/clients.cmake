# SPDX-License-Identifier: BSD-3-Clause
# Libraries that communicate by MPI windows, as Debian packs them, and a program of each: what is there is run, what is
# not is said and left out. Included by tests/CMakeLists.txt, whose farside_run() it uses.

# farside_client(NAME RUNTIME SOURCE [WORDS...] [ALSO ROUTES]): builds SOURCE by the command WORDS and runs it on both
# routes, with 2 and 4 ranks. ALSO: routes that it uses next to `mapped`.
function(farside_client name runtime source)
  cmake_parse_arguments(arg "" "ALSO" "BUILD" ${ARGN})
  set(program ${PROJECT_BINARY_DIR}/bin/tests/client-${name}-${runtime})
  add_custom_command(OUTPUT ${program} DEPENDS system/clients/${source} system/clients/check.h VERBATIM
                     COMMAND ${arg_BUILD} -o ${program})
  add_custom_target(client-${name}-${runtime} ALL DEPENDS ${program})
  set(also "")
  if(arg_ALSO)
    set(also OPTIONS -a ${arg_ALSO})
  endif()
  foreach(ranks 2 4)
    farside_run(client.${name}.${runtime}.mapped.${ranks} ${runtime} mapped ${ranks} COMMAND ${program} ${also}
                LABELS client SECONDS 120)
    farside_run(client.${name}.${runtime}.fabric.${ranks} ${runtime} fabric ${ranks} COMMAND ${program}
                LABELS client SECONDS 120)
  endforeach()
endfunction()

function(farside_no_client name runtime packages)
  message(STATUS "farside: tests without ${name} on ${runtime} (${packages})")
endfunction()

foreach(runtime IN LISTS FARSIDE_RUNTIMES)
  if(FARSIDE_SANITIZE OR NOT TARGET farside-${runtime})
    continue()
  endif()
  set(sources ${CMAKE_CURRENT_SOURCE_DIR}/system/clients)
  set(compile ${FARSIDE_MPICC_${runtime}} -g -O1 -Wall -Wextra)

  find_path(FARSIDE_ARMCI_INCLUDE armci.h DOC "ARMCI-MPI")
  find_library(FARSIDE_ARMCI_${runtime} armci-${runtime} DOC "ARMCI-MPI for ${runtime}")
  if(FARSIDE_ARMCI_INCLUDE AND FARSIDE_ARMCI_${runtime})
    farside_client(armci ${runtime} armci.c
                   BUILD ${compile} -I${FARSIDE_ARMCI_INCLUDE} ${sources}/armci.c ${FARSIDE_ARMCI_${runtime}} -lm)
  else()
    farside_no_client(ARMCI-MPI ${runtime} libarmci-mpi-dev)
  endif()

  # Its static library needs ScaLAPACK for what is not called here.
  find_program(FARSIDE_GA_CONFIG_${runtime} ga-config PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/ga/${runtime}/bin
               NO_DEFAULT_PATH DOC "what links with Global Arrays on ${runtime}")
  find_library(FARSIDE_SCALAPACK_${runtime} scalapack-${runtime} DOC "ScaLAPACK for ${runtime}")
  find_library(FARSIDE_LAPACK lapack DOC "LAPACK")
  if(FARSIDE_GA_CONFIG_${runtime} AND FARSIDE_ARMCI_${runtime} AND FARSIDE_SCALAPACK_${runtime} AND FARSIDE_LAPACK AND
     FARSIDE_GFORTRAN)
    execute_process(COMMAND ${FARSIDE_GA_CONFIG_${runtime}} --libs --ldflags OUTPUT_VARIABLE libraries
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    separate_arguments(libraries UNIX_COMMAND "${libraries}")
    farside_client(global_arrays ${runtime} global_arrays.c
                   BUILD ${compile} ${sources}/global_arrays.c ${libraries} -lgfortran -lm)
  else()
    string(JOIN " " packages libglobalarrays-dev libarmci-mpi-dev libscalapack-${runtime}-dev liblapack-dev
           libblas-dev gfortran)
    farside_no_client("Global Arrays" ${runtime} "${packages}")
  endif()

  find_program(FARSIDE_CAF_${runtime} caf.${runtime} DOC "compiler wrapper of OpenCoarrays on ${runtime}")
  # Debian's packages of it were wrong once: the library for MPICH was built for Open MPI.
  if(FARSIDE_CAF_${runtime} AND FARSIDE_GFORTRAN AND
     NOT FARSIDE_CAF_LINKS_${runtime} STREQUAL FARSIDE_CAF_${runtime})
    set(program ${PROJECT_BINARY_DIR}/CMakeFiles/caf-${runtime})
    file(WRITE ${program}.f90 "integer :: number[*]\nnumber = 1\nsync all\nend\n")
    execute_process(COMMAND ${FARSIDE_CAF_${runtime}} ${program}.f90 -o ${program} RESULT_VARIABLE failed
                    OUTPUT_QUIET ERROR_QUIET)
    set(FARSIDE_CAF_LINKS_${runtime} "" CACHE INTERNAL "")
    if(failed STREQUAL "0")
      set(FARSIDE_CAF_LINKS_${runtime} ${FARSIDE_CAF_${runtime}} CACHE INTERNAL "the one that was tried and links")
    endif()
  endif()
  if(FARSIDE_CAF_LINKS_${runtime})
    farside_client(coarrays ${runtime} coarrays.f90 ALSO cma
                   BUILD ${FARSIDE_CAF_${runtime}} -g -O1 -ffree-line-length-none ${sources}/coarrays.f90)
  else()
    farside_no_client(OpenCoarrays ${runtime} "libcoarrays-${runtime}-dev, and that ${runtime} can link with it")
  endif()
endforeach()

# Debian's PETSc is built for Open MPI. It is too large for tools/check, which runs the test where it is installed.
if(TARGET farside-openmpi AND NOT FARSIDE_SANITIZE)
  pkg_check_modules(FARSIDE_PETSC QUIET PETSc)
  if(FARSIDE_PETSC_FOUND)
    farside_client(petsc_sf openmpi petsc_sf.c ALSO cma
                   BUILD ${FARSIDE_MPICC_openmpi} -g -O1 -Wall -Wextra
                         ${CMAKE_CURRENT_SOURCE_DIR}/system/clients/petsc_sf.c
                         ${FARSIDE_PETSC_CFLAGS} ${FARSIDE_PETSC_LDFLAGS} -lm)
  else()
    farside_no_client(PETSc openmpi "libpetsc-real-dev, 230 MB")
  endif()
endif()
