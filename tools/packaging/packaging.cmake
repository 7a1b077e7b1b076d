# SPDX-License-Identifier: BSD-3-Clause
# Other installed files (documents, an environment-module file), and the Debian packages that cpack makes of the
# components (tools/package builds them as Debian would; README.md lists their contents).

# The pages keep their folders, so that the links between them lead somewhere.
set(patterns epochs findings pmpi tests tools transport)
list(TRANSFORM patterns PREPEND ${PROJECT_SOURCE_DIR}/)
list(TRANSFORM patterns APPEND /*.md)
file(GLOB_RECURSE pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${patterns})
foreach(page README.md LICENSE ${pages})
  cmake_path(GET page PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} COMPONENT tools)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools/docs
        COMPONENT tools)

# Made when it is installed: only then the prefix is known (cmake --install --prefix).
install(CODE "set(source \"${CMAKE_CURRENT_LIST_DIR}/modulefile.in\")
set(made \"${CMAKE_CURRENT_BINARY_DIR}/modulefile\")
set(PROJECT_VERSION \"${PROJECT_VERSION}\")
set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
set(CMAKE_INSTALL_MANDIR \"${CMAKE_INSTALL_MANDIR}\")
set(to \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/modulefiles/farside\")" COMPONENT modulefile)
install(CODE [[get_filename_component(CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
configure_file("${source}" "${made}" @ONLY)
file(INSTALL DESTINATION "${to}" TYPE FILE RENAME "${PROJECT_VERSION}" FILES "${made}")]] COMPONENT modulefile)

# ---- Debian packages ------------------------------------------------------------------------------------------------

set(FARSIDE_PACKAGE_CONTACT "" CACHE STRING
    "name and address for packages: Name <address>; default: DEBFULLNAME, DEBEMAIL")
if(FARSIDE_PACKAGE_CONTACT STREQUAL "")
  set(name "$ENV{DEBFULLNAME}")
  set(address "$ENV{DEBEMAIL}")
  if(name STREQUAL "")
    set(name "farside packager")
  endif()
  if(address STREQUAL "")
    cmake_host_system_information(RESULT address QUERY FQDN)
    string(PREPEND address "root@")
  endif()
  set(FARSIDE_PACKAGE_CONTACT "${name} <${address}>")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME farside)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${FARSIDE_PACKAGE_CONTACT}")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tools dev ${FARSIDE_RUNTIMES} ${FARSIDE_ABI})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)

# The first line of a description is the package's summary, by which apt lists it.
set(about "farside slides under an unmodified MPI program as a PMPI interposition
library and carries its windows by load and store inside a node and by
libfabric between nodes. Passive targets need not take part, and MPI's epoch
rules are checked.

")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME farside)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(summary "MPI one-sided communication that does not wait")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "${summary}: command
${about}This package has the command, its manual pages and documents.")
set(alternatives "")
set(exactly "")
foreach(runtime IN LISTS FARSIDE_RUNTIMES FARSIDE_ABI)
  string(TOUPPER ${runtime} key)
  string(REPLACE _ - package farside-${runtime})
  list(APPEND alternatives "${package} (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/triggers)
  set(title "Open MPI")
  set(launcher openmpi-bin)
  if(runtime STREQUAL "mpich")
    set(title MPICH)
    set(launcher mpich)
  elseif(runtime STREQUAL "mpi_abi")
    set(title "the MPI ABI")
    set(launcher "openmpi-bin | mpich")
  endif()
  set(contents "the library that is preloaded into programs of ${title}.")
  if(runtime IN_LIST FARSIDE_RUNTIMES)
    set(contents "the library that is preloaded into programs of ${title},
and the program that 'farside bench' measures it with.")
  endif()
  # It is loaded on demand, so that dpkg-shlibdeps does not see it.
  string(REPLACE .so. "" libfabric "${FARSIDE_LIBFABRIC_NAME}")
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${libfabric} (>= ${LIBFABRIC_VERSION})")
  set(CPACK_DEBIAN_${key}_PACKAGE_RECOMMENDS "farside (= ${PROJECT_VERSION}), ${launcher}")
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}: for ${title}
${about}This package has ${contents}")
endforeach()
string(REPLACE ";" ", " exactly "${alternatives}")
string(REPLACE ";" " | " alternatives "${alternatives}")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "${alternatives}")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libfarside-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${exactly}")
set(CPACK_DEBIAN_DEV_DESCRIPTION "${summary}: linking
${about}This package has what programs need that are linked to farside instead of
having it preloaded (files for find_package and pkg-config), or that use
notified access.")
include(CPack)
