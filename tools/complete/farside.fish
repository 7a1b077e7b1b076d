# SPDX-License-Identifier: BSD-3-Clause
# What fish completes of farside: what the command itself offers (tools/complete/complete.cpp), else files.
function __farside_offered
  set -l words (commandline -opc) "$(commandline -ct)"
  $words[1] complete $words[2..-1] 2>/dev/null
end
complete -c farside -f -a '(__farside_offered)'
complete -c farside -n 'test -z "$(__farside_offered)"' -F
