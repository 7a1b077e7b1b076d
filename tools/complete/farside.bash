# SPDX-License-Identifier: BSD-3-Clause
# What bash completes of farside: what the command itself offers (tools/complete/complete.cpp), else files.
_farside() {
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)
  # A value follows NAME=. (A bash without compopt, or no terminal, has nothing to set.)
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || :
}
complete -o default -F _farside farside
