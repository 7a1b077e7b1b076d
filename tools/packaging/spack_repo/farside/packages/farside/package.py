# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Farside(CMakePackage):
    """MPI one-sided communication over shared memory and libfabric, as a PMPI interposition
    library: the MPI program stays unchanged."""

    # The checkout that this recipe is in.
    git = "file://" + ancestor(__file__, 7)

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("tools", default=True, description="Build the farside command and its benchmark")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3:")
    depends_on("libfabric@1.15:")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.10:")
    depends_on("cli11@2:", when="+tools")

    conflicts("%gcc@:11", msg="farside is written in C++20")
    conflicts("%clang@:13", msg="farside is written in C++20")

    def cmake_args(self):
        # MPICH's relatives, such as MVAPICH and Cray MPICH, have its binary interface.
        runtime = "openmpi" if self.spec["mpi"].name == "openmpi" else "mpich"
        return [
            self.define("FARSIDE_MPI", runtime),
            self.define("FARSIDE_MPICC_" + runtime, self.spec["mpi"].mpicc),
            self.define_from_variant("FARSIDE_TOOLS", "tools"),
            self.define("FARSIDE_TESTS", False),
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def installed_command_runs(self):
        if self.spec.satisfies("+tools"):
            Executable(self.prefix.bin.farside)("info")
