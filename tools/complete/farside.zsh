#compdef farside
# SPDX-License-Identifier: BSD-3-Clause
# What zsh completes of farside: what the command itself offers (tools/complete/complete.cpp), else files.
_farside() {
  local i
  local -a offered
  # Behind -- stands a program with arguments of its own.
  for ((i = 2; i < CURRENT; ++i)); do
    [[ $words[i] == -- ]] || continue
    shift $i words
    ((CURRENT -= i))
    _normal
    return
  done
  offered=(${(f)"$("$words[1]" complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (($#offered == 0)); then
    _files
  elif [[ $offered[1] == *=$'\t'* ]]; then
    compadd -S '' -- ${offered%%$'\t'*}
  else
    offered=(${offered/$'\t'/:})
    _describe farside offered
  fi
}
_farside "$@"
