# SPDX-License-Identifier: BSD-3-Clause
# Run by cpack before it packs what it has installed: adds to each package the files that Debian wants in it and nobody
# else (copyright, changelog, lintian's overrides), and compresses manual pages.
file(READ ${CMAKE_CURRENT_LIST_DIR}/../../LICENSE licence)
string(REGEX REPLACE "^[^\n]*\n+Copyright \\(c\\) ([^\n]*)\n+" "" licence "${licence}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REGEX REPLACE "\n+$" "" licence "${licence}")
string(REPLACE "\n" "\n " licence "${licence}")
set(copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: farside

Files: *
Copyright: ${holder}
License: BSD-3-Clause

License: BSD-3-Clause
 ${licence}
")
set(ENV{LC_ALL} C)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(changelog "farside (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Packages of farside ${CPACK_PACKAGE_VERSION}, made by its own build.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")

# gzip without name and time, so that the same files give the same package.
function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} key)
  set(package ${CPACK_DEBIAN_${key}_PACKAGE_NAME})
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(documents ${usr}/share/doc/${package})
  file(WRITE ${documents}/copyright "${copyright}")
  file(WRITE ${documents}/changelog "${changelog}")
  compress(${documents}/changelog)
  if(EXISTS ${documents}/LICENSE)
    file(REMOVE ${documents}/LICENSE)
    file(CREATE_LINK copyright ${documents}/LICENSE SYMBOLIC)
  endif()
  file(GLOB pages ${usr}/share/man/man*/*)
  foreach(page IN LISTS pages)
    compress(${page})
  endforeach()
  set(overrides ${CMAKE_CURRENT_LIST_DIR}/${component}.lintian-overrides)
  if(component STREQUAL "openmpi" OR component STREQUAL "mpich")
    set(overrides ${CMAKE_CURRENT_LIST_DIR}/runtime.lintian-overrides)
  endif()
  if(EXISTS ${overrides})
    file(READ ${overrides} text)
    file(WRITE ${usr}/share/lintian/overrides/${package} "${text}")
  endif()
endforeach()
# Independent of the umask of this build: files are 644, folders and programs 755.
execute_process(COMMAND chmod -R u=rwX,go=rX ${CPACK_TEMPORARY_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)
