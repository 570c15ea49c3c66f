# shellcheck shell=bash
# Shared by the scripts in jobs/: where things are, and how to say that something went wrong.
# Sourced, not run. Sets: root (the checkout), cache (dependencies built from source), jobs_parallel, minipipe (the program).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# A batch system may start jobs without HOME: then the user's entry in the password database says it.
cache=${MINIPIPE_CACHE:-${XDG_CACHE_HOME:-${HOME:-$(echo ~)}/.cache}/minipipe}
jobs_parallel=${MINIPIPE_JOBS:-$(nproc)}

say() { printf '%s\n' "-- $*"; }
die() { printf '%s\n' "error: $*" >&2; exit 1; }

# Prints the comment at the head of the script, and ends it.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; exit 0; }

# The scripts go to the checkout, from which the decks name their data; paths that the user gives are from where the user is.
from_here() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac; } # PATH
# A deck may also be one of the checkout, as the documents name them.
deck_from_here() { if [ -e "$1" ]; then from_here "$1"; else printf '%s\n' "$1"; fi; } # DECK

# For scripts whose only argument is the folder of their results: sets out.
only_folder() { # DEFAULT ARGUMENT...
  out=$1
  shift
  case ${1:-} in
    -h | --help) usage ;;
    -*) die "unknown option '$1'; see --help" ;;
  esac
  [ $# -le 1 ] || die "unknown argument '$2'; see --help"
  out=$(if [ -n "${1:-}" ]; then from_here "$1"; else printf '%s\n' "$out"; fi)
}

# Makes the folder of a script's results and keeps other scripts from writing there at the same time, which would overwrite each
# other's logs and tables. The lock ends with this process and what it has started, however they end.
take_folder() { # FOLDER
  local lock holder status=0
  mkdir -p "$1" && { exec {lock}>> "$1/.script.lock"; } || die "$1 cannot be written to; name another folder for the results"
  if ! command -v flock > /dev/null; then return 0; fi
  flock -n -E 200 "$lock" 2> /dev/null || status=$?
  case $status in
    0) printf '%s\n' "$(basename "$0"), host $(uname -n), pid $$" 2> /dev/null > "$1/.script.lock" || true ;;
    200)
      holder=$(head -n 1 "$1/.script.lock")
      die "$1: another script is writing there (${holder:-it has not told its name}), or a run that it has left; name another folder, or wait for it or end it"
      ;;
    *) say "warning: the file system of $1 cannot lock files: do not start a second script there while this one runs" >&2 ;;
  esac
}

# Reads a script's options: --NAME VALUE sets the variable NAME (dashes as _), --NAME of a "NAME!" sets it to the option itself.
# block.key=value goes into the array overrides. Only a "NAME?" may have an empty value.
read_options() { # "NAME.." ARGUMENT...
  local known=" $1 " option variable
  shift
  overrides=()
  while [ $# -gt 0 ]; do
    option=$1
    shift
    variable=${option#--}
    variable=${variable//-/_}
    case $option in
      -h | --help) usage ;;
      -*) [[ $option =~ ^--[a-z-]+$ ]] || die "unknown argument '$option'; see --help" ;;
      *.*=*) overrides+=("$option"); continue ;;
      *) die "unknown argument '$option'; see --help" ;;
    esac
    case $known in
      *" ${option#--}! "*) printf -v "$variable" %s "$option"; continue ;;
      *" ${option#--}? "*) [ $# -gt 0 ] || die "$option needs a value; see --help" ;;
      *" ${option#--} "*) [ -n "${1:-}" ] || die "$option needs a value; see --help" ;;
      *) die "unknown argument '$option'; see --help" ;;
    esac
    case $variable in
      out) printf -v "$variable" %s "$(from_here "$1")" ;;
      deck) printf -v "$variable" %s "$(deck_from_here "$1")" ;;
      *) printf -v "$variable" %s "$1" ;;
    esac
    shift
  done
}

# Waits for a child through the signals that the script traps: one ends `wait`, not the child, whose status is kept for the next
# `wait`. COUNTER names the variable that the trap counts up. Returns the child's status.
wait_through() { # CHILD COUNTER
  local seen status
  while :; do
    seen=${!2} status=0
    wait "$1" || status=$?
    [ "$seen" != "${!2}" ] || return $status
  done
}

# With STEPS, after so many updates: more may be wanted now.
is_done() { # FOLDER [STEPS]
  [ -f "$1/summary.json" ] && grep -q '"done":true' "$1/summary.json" && { [ -z "${2:-}" ] || grep -q "\"steps\":$2," "$1/summary.json"; }
}

# Open MPI refuses to start as root unless told; containers and batch images commonly run as root.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# The environment jobs/setup.sh wrote: MINIPIPE_KOKKOS_HOST, MINIPIPE_KOKKOS_CUDA, MINIPIPE_CUDA_ARCH.
load_setup() {
  [ -f "$cache/setup.env" ] || die "no $cache/setup.env: run jobs/setup.sh first"
  # shellcheck disable=SC1091
  . "$cache/setup.env"
}

# The architecture of this machine's first GPU, such as sm_90; nothing where there is none. Code for another one does not run.
card_arch() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1) || true
  [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]] || printf 'sm_%s' "${capability/./}"
}

configure_and_build() { # PRESET [TARGET...]
  local preset=$1
  shift
  local launcher=()
  command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  (cd "$root" && cmake --preset "$preset" "${launcher[@]}" && cmake --build --preset "$preset" --parallel "$jobs_parallel" ${1:+--target "$@"})
}

minipipe=${MINIPIPE:-$root/build/release/minipipe}
# Large arrays on huge pages where the system gives them on request: otherwise how fast memory is read differs by a third from
# process to process, as the small pages happen to lie. For runs, not for what builds them.
huge_pages=GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}

# Builds the program where there is none.
need_program() { [ -x "$minipipe" ] || { load_setup && configure_and_build release minipipe; }; }

# The command that runs minipipe on N ranks, bound to one core each where there are enough cores, else side by side on the
# cores there are: in the array launch_command.
mpirun_command() { # RANKS
  if [ "$1" -le "$(nproc)" ]; then
    launch_command=(--bind-to core)
  else
    launch_command=(--oversubscribe --bind-to none)
  fi
  launch_command=(env "$huge_pages" OMP_NUM_THREADS=1 OMP_PROC_BIND=false mpirun "${launch_command[@]}" -n "$1" "$minipipe")
}

mpirun_minipipe() { # RANKS ARGUMENT...
  mpirun_command "$1"
  shift
  "${launch_command[@]}" "$@"
}

# Runs one process with its threads on cores of their own.
bound() { # FIRST_CORE THREADS COMMAND...
  local first=$1 threads=$2
  shift 2
  [ $((first + threads)) -le "$(nproc --all)" ] ||
    die "$threads threads from core $first on: this machine has $(nproc --all) cores; use fewer threads or an earlier core"
  env "$huge_pages" OMP_NUM_THREADS="$threads" OMP_PROC_BIND=close OMP_PLACES=cores \
    taskset -c "$first-$((first + threads - 1))" "$@"
}
