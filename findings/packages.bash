# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the findings. `mpich` and `openmpi` unpack exact versions of Debian 12's packages into a temporary folder,
# which is removed at the end, and define `compile SOURCE PROGRAM` and `run RANKS PROGRAM` for that runtime. `libfabric`
# does so without `run`. Nothing is installed. If the archive no longer has a version, the script ends with status 2.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
libraries=$root/usr/lib/x86_64-linux-gnu

unpack() {
  mkdir -p "$scratch/packages"
  (cd "$scratch/packages" && apt-get download -qq -o APT::Sandbox::User=root "$@" >&2) || {
    echo "not available here: $*" >&2
    exit 2
  }
  local package
  for package in "$scratch"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
  export LD_LIBRARY_PATH=$libraries
  unset LD_PRELOAD
}

mpich() {
  unpack mpich=4.0.2-3+b1 libmpich12=4.0.2-3+b1 libmpich-dev=4.0.2-3+b1 libucx0=1.13.1-1 libhwloc15=2.9.0-1 \
    libnuma1=2.0.16-1 libslurm38=22.05.8-4+deb12u3
  echo "MPICH 4.0.2-3+b1, UCX 1.13.1-1"
  compile() {
    cc -O1 -o "$2" "$1" -isystem "$root/usr/include/x86_64-linux-gnu/mpich" "$libraries/libmpich.so.12" \
      -Wl,-rpath-link,"$libraries"
  }
  run() { timeout 60 "$root/usr/bin/mpiexec.hydra" -n "$@"; }
}

openmpi() {
  unpack openmpi-bin=4.1.4-3+b1 openmpi-common=4.1.4-3 libopenmpi3=4.1.4-3+b1 libopenmpi-dev=4.1.4-3+b1 \
    libhwloc15=2.9.0-1 libevent-core-2.1-7=2.1.12-stable-8+deb12u1 libevent-pthreads-2.1-7=2.1.12-stable-8+deb12u1 \
    libpmix2=4.2.2-1+deb12u1 libnuma1=2.0.16-1
  echo "Open MPI 4.1.4-3+b1"
  export OPAL_PREFIX=$root/usr OPAL_LIBDIR=$libraries OPAL_PKGLIBDIR=$libraries/openmpi/lib/openmpi3
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader
  compile() {
    cc -O1 -o "$2" "$1" -isystem "$libraries/openmpi/include" "$libraries/libmpi.so.40" -Wl,-rpath-link,"$libraries"
  }
  run() { timeout 60 "$root/usr/bin/orterun" --oversubscribe --bind-to none -n "$@"; }
}

libfabric() {
  unpack libfabric1=1.17.0-3 libfabric-dev=1.17.0-3 libibverbs1=44.0-2 librdmacm1=44.0-2 libnl-3-200=3.7.0-0.2+b1 \
    libnl-route-3-200=3.7.0-0.2+b1 libpsm-infinipath1=3.3+20.604758e7-6.2 libpsm2-2=11.2.185-2 libnuma1=2.0.16-1
  echo "libfabric 1.17.0-3"
  compile() {
    cc -O1 -o "$2" "$1" -isystem "$root/usr/include" "$libraries/libfabric.so.1" -Wl,-rpath-link,"$libraries"
  }
}

# The output of the program must be this; else the behaviour is another one than the finding says.
expect() {
  local seen
  seen=$(cat)
  echo "$seen"
  [[ $seen == "$1" ]] || { echo "not as stated; expected:" >&2; echo "$1" >&2; exit 1; }
  echo "as stated"
}
