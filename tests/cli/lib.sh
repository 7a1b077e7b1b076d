# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of the command: counts what is not as it should be.
build=${FARSIDE_TEST_BUILD:?the build folder}
farside=$build/bin/farside
failed=0
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
# Only what a test sets itself may count; and a machine whose own name is unknown must not wait for a name server.
for name in "${!FARSIDE_@}"; do
  [[ $name == FARSIDE_TEST_* ]] || unset "$name"
done
unset LD_PRELOAD OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM FI_PROVIDER
export RES_OPTIONS="timeout:1 attempts:1" FI_TCP_IFACE=lo
# mpirun from Open MPI 5 on counts the cores of named hosts, and fills one host first if told only :oversubscribe.
if [[ $(mpirun.openmpi --version 2>/dev/null) == *"Open MPI) 6."* ]]; then
  export PRTE_MCA_mapby=node:oversubscribe PRTE_MCA_bindto=none
else
  export PRTE_MCA_rmaps_default_mapping_policy=node:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
fi

wrong() {
  echo "line ${BASH_LINENO[1]}: $*"
  sed 's/^/  stdout: /' "$scratch/out"
  sed 's/^/  stderr: /' "$scratch/err"
  failed=1
}
# run COMMAND...: outputs to $scratch/out and err, the exit code to $code; within $seconds.
seconds=60
run() {
  timeout --kill-after=5 $seconds "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
  code=$?
}
exits() { ((code == $1)) || wrong "exit code $code, expected $1"; }
says() { grep -Eq -- "$1" "$scratch/out" || wrong "nothing on stdout matches $1"; }
silent_on() { ! grep -Eq -- "$1" "$scratch/out" || wrong "something on stdout matches $1"; }
complains() { grep -Eq -- "$1" "$scratch/err" || wrong "nothing on stderr matches $1"; }
quiet() { [[ ! -s $scratch/err ]] || wrong "something on stderr"; }
# json FILE EXPRESSION VALUE...: what Python makes of each expression, as text; `r` is what the JSON file holds.
json() {
  local found
  found=$(python3 - "$@" 2>&1 <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
for expression, expected in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    value = str(eval(expression))
    if value != expected:
        print(f"{expression} is {value}, expected {expected}")
END
  )
  [[ -z $found ]] || wrong "$found"
}
