"""cmake --install, and a small project that uses the installed package."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import support

BUILD = Path(support.MINIPIPE).resolve().parent

LISTS = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES CXX)
get_directory_property(names_before VARIABLES)
set(prefixes "${{CMAKE_PREFIX_PATH}}")
find_package(minipipe 0.1 CONFIG REQUIRED COMPONENTS {component})
get_directory_property(names VARIABLES)
list(FILTER names INCLUDE REGEX "^MINIPIPE_|^minipipe_(known|wanted)|^HDF5_(FOUND|PREFER_PARALLEL)$|^MPI_CXX_FOUND$|^component$")
list(REMOVE_ITEM names ${{names_before}})
if(names OR NOT prefixes STREQUAL CMAKE_PREFIX_PATH)
  message(FATAL_ERROR "variables that find_package(minipipe) leaves: ${{names}}; CMAKE_PREFIX_PATH=${{CMAKE_PREFIX_PATH}}")
endif()
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE minipipe::{component})
"""

SCHEDULES = """#include <cstdio>
#include "schedules/simulate/efficiency.hpp"
int main() { std::printf("%.3f\\n", minipipe::schedules::bubble_speed_up(2, 4)); }
"""

DECK = """#include <cstdio>
#include "core/deck/parse.hpp"
int main() { std::printf("%d\\n", static_cast<int>(minipipe::core::read_deck("[run]\\nsteps = 7", "deck").run.steps)); }
"""


def call(*command, status=0):
    environment = {name: value for name, value in os.environ.items() if name not in ("Kokkos_ROOT", "KokkosKernels_ROOT")}
    done = subprocess.run([str(part) for part in command], env=environment, text=True, timeout=200, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"{command}\nstatus {done.returncode}, wanted {status}\n{done.stdout}"
    return done.stdout


def installed():
    prefix = Path("installed").resolve()
    if not prefix.exists():
        call("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def configure(name, component, source):
    shutil.rmtree(name, ignore_errors=True)
    Path(name).mkdir()
    Path(name, "CMakeLists.txt").write_text(LISTS.format(component=component))
    Path(name, "main.cpp").write_text(source)
    return ("cmake", "-G", "Ninja", "-S", name, "-B", f"{name}/build", f"-DCMAKE_PREFIX_PATH={installed()}")


def test_program():
    support.assert_contains(call(installed() / "bin/minipipe", "--version"), "minipipe 0.1")


def test_schedules():
    # Nothing else may be needed: the other packages are made impossible to find.
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Kokkos", "MPI", "HDF5", "nlohmann_json", "CLI11")]
    call(*configure("schedules", "schedules", SCHEDULES), *hidden)
    call("cmake", "--build", "schedules/build")
    assert call("schedules/build/consumer") == "1.250\n"


def test_core():
    call(*configure("core", "core", DECK))
    call("cmake", "--build", "core/build")
    assert call("core/build/consumer") == "7\n"


def test_no_source_paths():
    """The package can be moved: it names neither the sources nor the build folder."""
    for file in (installed() / "lib").rglob("*.cmake"):
        text = file.read_text()
        for folder in (str(support.SOURCE), str(BUILD)):
            assert folder + "/" not in text, f"{file} names {folder}"


def test_unknown_component():
    support.assert_contains(call(*configure("unknown", "shedules", SCHEDULES), status=1), "minipipe has no component shedules; it has")


# Debian's packages of jobs/setup.sh -> Spack's; None: a tool of Debian or of developers, or the sample text.
SPACK = {
    "build-essential": None, "ccache": None, "dpkg-dev": None, "clang-format": None, "dict-gcide": None, "pkg-config": None, "git": None,
    "cmake": "cmake", "ninja-build": "ninja", "libopenmpi-dev": "openmpi", "openmpi-bin": "openmpi",
    "libhdf5-openmpi-dev": "hdf5", "libopenblas-serial-dev": "openblas", "libdnnl-dev": "onednn", "libtomlplusplus-dev": "tomlplusplus",
    "libcli11-dev": "cli11", "nlohmann-json3-dev": "nlohmann-json", "librandom123-dev": "random123", "libsentencepiece-dev": "sentencepiece",
    "libgtest-dev": "googletest", "libgmock-dev": "googletest", "python3": "python", "python3-numpy": "py-numpy", "python3-h5py": "py-h5py",
    "python3-matplotlib": "py-matplotlib",
}


def test_recipes():
    """spack.yaml asks for what jobs/setup.sh installs, and apptainer.def runs jobs/setup.sh itself."""
    setup = (support.SOURCE / "jobs/setup.sh").read_text()
    packages = re.search(r"^packages=\((.*?)\)", setup, re.MULTILINE | re.DOTALL).group(1).split()
    specs = re.findall(r"^  - ([\w-]+)", (support.SOURCE / "spack.yaml").read_text(), re.MULTILINE)
    assert set(packages) == set(SPACK), f"jobs/setup.sh and this test: {sorted(set(packages) ^ set(SPACK))}"
    wanted = {name for name in SPACK.values() if name} | {"kokkos", "kokkos-kernels"}
    assert sorted(specs) == sorted(wanted), f"spack.yaml and jobs/setup.sh: {sorted(set(specs) ^ wanted)}"
    definition = (support.SOURCE / "apptainer.def").read_text()
    support.assert_contains(definition, "jobs/setup.sh --no-data", "cmake --preset release", "cmake --install build/release")
    needs = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", (support.SOURCE / "CMakeLists.txt").read_text()).group(1)
    support.assert_contains((support.SOURCE / "spack.yaml").read_text(), f"- cmake@{needs}:")


if __name__ == "__main__":
    support.main([test_program, test_schedules, test_core, test_no_source_paths, test_unknown_component, test_recipes])
