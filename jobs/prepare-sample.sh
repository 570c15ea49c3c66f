#!/usr/bin/env bash
# Makes data/sample/{train,validation}.h5: the bytes of the GNU Collaborative International Dictionary of English, as Debian's
# package dict-gcide ships it. Safe to run again: files that are there and open are kept.
#   jobs/prepare-sample.sh [--force]
# Environment: MINIPIPE (the program, default build/release/minipipe), GCIDE (the compressed dictionary).
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

dictionary=${GCIDE:-/usr/share/dictd/gcide.dict.dz}
out=$root/data/sample

force=no
for argument in "$@"; do
  case $argument in
    --force) force=yes ;;
    -h | --help) usage ;;
    *) die "unknown argument '$argument'; known: --force" ;;
  esac
done

# True if the file is an HDF5 file with tokens in it. Files get their names only when they are whole, so without h5py it is
# enough that HDF5's signature is there.
opens_well() { # FILE
  [ -s "$1" ] || return 1
  if /usr/bin/python3 -c 'import h5py' 2> /dev/null; then
    /usr/bin/python3 -c 'import h5py, sys; sys.exit(not h5py.File(sys.argv[1], "r")["tokens"].shape[0] > 1)' "$1" 2> /dev/null
  else
    [ "$(head -c 4 "$1" | tail -c 3)" = HDF ]
  fi
}

if [ "$force" = no ] && opens_well "$out/train.h5" && opens_well "$out/validation.h5"; then
  say "$out has train.h5 and validation.h5 already; --force makes them again"
  exit 0
fi

[ -f "$minipipe" ] && [ -x "$minipipe" ] || die "$minipipe is not a program: build it first (cmake --preset release && cmake --build --preset release), or set MINIPIPE"
[ -r "$dictionary" ] || die "$dictionary is not there: apt-get install dict-gcide (or jobs/setup.sh), or set GCIDE to a copy"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gzip -dc < "$dictionary" > "$work/gcide.txt" || die "cannot decompress $dictionary into $work: is it whole, and is there space?"
# What may be there is damaged or half of a pair, or --force was given.
"$minipipe" prepare --text "$work/gcide.txt" --out "$out" --validation 0.02 --force
