# SPDX-License-Identifier: BSD-3-Clause
# Finds the MPI runtimes of this machine by their compiler wrappers, and for each one found makes an imported
# target farside::mpi::NAME (NAME: openmpi, mpich), the variable FARSIDE_MPIRUN_NAME, and an entry in
# FARSIDE_RUNTIMES. FARSIDE_MPI chooses (none: only transport/ and epochs/ are built); FARSIDE_MPICC_NAME points at a
# wrapper in an unusual place.

# Which runtime a wrapper belongs to, by the macro its mpi.h defines; sets OUT to openmpi, mpich or nothing.
function(farside_identify_wrapper mpicc out)
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/identify_mpi.c
       "#include <mpi.h>\n#if defined(OPEN_MPI)\nfarside_is openmpi\n"
       "#elif defined(MPICH_VERSION)\nfarside_is mpich\n#endif\n")
  execute_process(COMMAND ${mpicc} -E ${CMAKE_BINARY_DIR}/CMakeFiles/identify_mpi.c
                  OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
  set(${out} "" PARENT_SCOPE)
  if(NOT failed AND text MATCHES "farside_is (openmpi|mpich)")
    set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

# For find_program inside farside_find_runtime, whose `name` it sees.
function(farside_is_wanted_wrapper out mpicc)
  farside_identify_wrapper(${mpicc} found)
  if(NOT found STREQUAL name)
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(farside_find_runtime name)
  # The first folder of PATH counts, under whatever name: the mpicc of a module goes before the system's mpicc.openmpi.
  find_program(FARSIDE_MPICC_${name} NAMES mpicc.${name} mpicc NAMES_PER_DIR VALIDATOR farside_is_wanted_wrapper
               DOC "compiler wrapper of ${name}")
  if(NOT FARSIDE_MPICC_${name})
    return()
  endif()
  farside_identify_wrapper(${FARSIDE_MPICC_${name}} found)  # set by hand it has not been validated
  if(NOT found STREQUAL name)
    message(WARNING "farside: ${FARSIDE_MPICC_${name}} (FARSIDE_MPICC_${name}) is no compiler wrapper of ${name}")
    return()
  endif()
  # "-show" is understood by both (Open MPI: --showme, MPICH: -show).
  execute_process(COMMAND ${FARSIDE_MPICC_${name}} -show OUTPUT_VARIABLE line OUTPUT_STRIP_TRAILING_WHITESPACE)
  # Runtimes that were not built by a distribution say "-Wl,-rpath -Wl,FOLDER"; kept together here.
  string(REGEX REPLACE "-Wl,-rpath +-Wl," "-Wl,-rpath," line "${line}")
  separate_arguments(words UNIX_COMMAND "${line}")
  set(includes "")
  set(links "")
  foreach(word IN LISTS words)
    if(word MATCHES "^-I(.+)")
      list(APPEND includes ${CMAKE_MATCH_1})
    elseif(word MATCHES "^-(L|l|Wl,-rpath)")
      list(APPEND links ${word})
    endif()
  endforeach()
  add_library(farside::mpi::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(farside::mpi::${name} SYSTEM INTERFACE ${includes})
  # The runtimes' deprecated C++ bindings are not wanted.
  target_compile_definitions(farside::mpi::${name} INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  # Newer runtimes deprecate calls in favour of some that older ones lack.
  target_compile_options(farside::mpi::${name} INTERFACE -Wno-deprecated-declarations)
  target_link_options(farside::mpi::${name} INTERFACE -Wl,--no-as-needed)
  target_link_libraries(farside::mpi::${name} INTERFACE ${links})
  get_filename_component(bin ${FARSIDE_MPICC_${name}} DIRECTORY)
  # The launcher beside the wrapper comes first, also where CMAKE_PREFIX_PATH leads to another MPI.
  find_program(FARSIDE_MPIRUN_${name} NAMES mpirun.${name} mpirun NAMES_PER_DIR PATHS ${bin} NO_DEFAULT_PATH
               DOC "launcher of ${name}")
  find_program(FARSIDE_MPIRUN_${name} NAMES mpirun.${name} mpirun NAMES_PER_DIR DOC "launcher of ${name}")
  set(FARSIDE_RUNTIMES ${FARSIDE_RUNTIMES} ${name} PARENT_SCOPE)
  message(STATUS "farside: ${name} found (${FARSIDE_MPICC_${name}})")
endfunction()

set(FARSIDE_RUNTIMES "")
foreach(name openmpi mpich)
  if(FARSIDE_MPI STREQUAL "auto" OR name IN_LIST FARSIDE_MPI)
    farside_find_runtime(${name})
    if(NOT FARSIDE_MPI STREQUAL "auto" AND NOT name IN_LIST FARSIDE_RUNTIMES)
      message(FATAL_ERROR "farside: ${name} was asked for (FARSIDE_MPI) but its compiler wrapper was not found; "
                          "set FARSIDE_MPICC_${name}")
    endif()
  endif()
endforeach()
if(NOT FARSIDE_RUNTIMES AND NOT FARSIDE_MPI STREQUAL "none")
  message(WARNING "farside: no MPI runtime found; only transport/ and epochs/ are built")
endif()
set(FARSIDE_RUNTIMES ${FARSIDE_RUNTIMES} PARENT_SCOPE)

# The standard's binary interface (MPI 5.0 section 20), which Open MPI since 6.0 and MPICH since 5.0 have: makes, if its
# mpi.h is there, the imported target farside::mpi::mpi_abi, FARSIDE_ABI (mpi_abi, else empty), and of each runtime that
# has it the variable FARSIDE_ABI_LIBRARY_NAME, the path of its libmpi_abi.so.1. FARSIDE_MPI_ABI_INCLUDE points at the
# folder of an mpi.h in an unusual place.
function(farside_find_abi)
  set(folders ${FARSIDE_MPI_ABI_INCLUDE})
  foreach(name IN LISTS FARSIDE_RUNTIMES)
    get_target_property(includes farside::mpi::${name} INTERFACE_INCLUDE_DIRECTORIES)
    foreach(include IN LISTS includes)
      list(APPEND folders ${include}/standard_abi ${include}/../../mpi_abi_${name}/include)
    endforeach()
  endforeach()
  set(include "")
  foreach(folder IN LISTS folders)
    if(NOT include AND EXISTS ${folder}/mpi.h)
      file(STRINGS ${folder}/mpi.h version REGEX "^ *# *define +MPI_ABI_VERSION +[1-9]")
      if(version)
        get_filename_component(include ${folder} REALPATH)
      endif()
    endif()
  endforeach()
  set(libraries "")
  foreach(name IN LISTS FARSIDE_RUNTIMES)
    get_filename_component(wrapper ${FARSIDE_MPICC_${name}} REALPATH)
    get_filename_component(bin ${wrapper} DIRECTORY)
    # Debian has both in one folder, by names of its own.
    file(GLOB found ${bin}/../lib/${CMAKE_LIBRARY_ARCHITECTURE}/libmpi_abi_${name}.so.*
         ${bin}/../lib/libmpi_abi.so.1)
    if(found)
      list(GET found 0 library)
      list(APPEND libraries ${library})
      set(FARSIDE_ABI_LIBRARY_${name} ${library} PARENT_SCOPE)
    endif()
  endforeach()
  if(NOT include OR NOT libraries)
    return()
  endif()
  add_library(farside::mpi::mpi_abi INTERFACE IMPORTED GLOBAL)
  target_include_directories(farside::mpi::mpi_abi SYSTEM INTERFACE ${include})
  target_compile_options(farside::mpi::mpi_abi INTERFACE -Wno-deprecated-declarations)
  list(GET libraries 0 library)
  target_link_libraries(farside::mpi::mpi_abi INTERFACE ${library})
  set(FARSIDE_ABI mpi_abi PARENT_SCOPE)
  set(FARSIDE_MPI_ABI_FOLDER ${include} PARENT_SCOPE)
  message(STATUS "farside: mpi_abi found (${include})")
endfunction()

set(FARSIDE_ABI "")
if(FARSIDE_RUNTIMES)
  farside_find_abi()
endif()
set(FARSIDE_ABI ${FARSIDE_ABI} PARENT_SCOPE)
set(FARSIDE_MPI_ABI_FOLDER ${FARSIDE_MPI_ABI_FOLDER} PARENT_SCOPE)
foreach(name IN LISTS FARSIDE_RUNTIMES)
  set(FARSIDE_ABI_LIBRARY_${name} ${FARSIDE_ABI_LIBRARY_${name}} PARENT_SCOPE)
endforeach()
