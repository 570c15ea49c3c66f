"""cmake --install, and a small project that uses the installed package."""

import os
import shutil
import subprocess
from pathlib import Path

import support

BUILD = Path(support.MINIPIPE).resolve().parent

LISTS = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C CXX)
find_package(minipipe 0.1 CONFIG REQUIRED COMPONENTS {component})
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


if __name__ == "__main__":
    support.main([test_program, test_schedules, test_core, test_no_source_paths, test_unknown_component])
