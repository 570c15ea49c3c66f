#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests through CTest.
#   jobs/test.sh [ctest arguments...]      for example: jobs/test.sh -L unit
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

case ${1:-} in -h | --help) usage ;; esac
"$root/jobs/setup.sh" --no-data
load_setup
configure_and_build release
cd "$root/build/release"
# Three at a time on two cores: whole runs of the program wait half of their time.
ctest --output-on-failure --no-tests=error --parallel "${MINIPIPE_TEST_JOBS:-3}" "$@"
