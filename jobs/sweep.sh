#!/usr/bin/env bash
# Runs all cases of a deck with [sweep] on this machine, one after the other, and ends with a table and heat maps. Safe to run
# again: finished cases are skipped, stopped ones go on from their checkpoint. A failed case is named and the others go on.
#   jobs/sweep.sh DECK [OUT] [block.key=value ...]       OUT: folder of the cases, default output.directory of the deck
#   jobs/sweep.sh DECK [OUT] [...] --report              runs nothing: table of what is finished, and what is not
# Environment: MINIPIPE_RANKS (ranks of every case; default: parallel.data times parallel.stages of the case, stages counting once
# if they are 0; as many as parallel.data run all stages of a replica in one process).
# Writes OUT/case_K, OUT/case_K.log, OUT/table.json, OUT/report.html and pictures. Exit status 1 if a case is not finished.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

run=yes deck='' out='' overrides=()
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,9p' "$0"; exit 0 ;;
    --report) run=no ;;
    -*) die "unknown argument '$argument'; see jobs/sweep.sh --help" ;;
    *=*) overrides+=("$argument") ;;
    *) if [ -z "$deck" ]; then deck=$argument; elif [ -z "$out" ]; then out=$argument; else die "'$argument': a deck and a folder are given already"; fi ;;
  esac
done
[ -n "$deck" ] || die "no deck; usage: jobs/sweep.sh DECK [OUT] [block.key=value ...]"
[ -z "$out" ] || overrides+=("output.directory=$out")
[ -x "$minipipe" ] || { load_setup && configure_and_build release minipipe; }

list=$("$minipipe" train "$deck" --cases --list ${overrides[@]+"${overrides[@]}"} < /dev/null) || exit $?
list=$(printf '%s\n' "$list" | grep -P '^\d+\t')
total=$(printf '%s\n' "$list" | wc -l)
[ -n "$out" ] || out=$(dirname "$(printf '%s\n' "$list" | head -1 | cut -f 3)")
mkdir -p "$out" || die "$out cannot be made; name a folder that can be written to: jobs/sweep.sh $deck OUT"

# The settings of a case without the comments on where they come from, and without what a restart changes.
settings() { "$minipipe" train "$deck" --case "$1" ${overrides[@]+"${overrides[@]}"} --print-deck < /dev/null | sed -n '/ = /s/ *# .*//p'; } # CASE

finished() { # CASE FOLDER
  [ -f "$2/summary.json" ] && grep -q '"done":true' "$2/summary.json" || return 1
  # Batch jobs leave no copy of the settings.
  [ ! -f "$2/settings.txt" ] || settings "$1" | cmp -s - "$2/settings.txt"
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

run_case() { # CASE RANKS FOLDER
  local resume=()
  mkdir -p "$3" || return 3
  if [ -f "$3/settings.txt" ] && settings "$1" | cmp -s - "$3/settings.txt"; then resume=(run.resume=latest); fi
  settings "$1" > "$3/settings.txt" || return 2
  mpirun_minipipe "$2" train "$deck" --case "$1" ${overrides[@]+"${overrides[@]}"} ${resume[@]+"${resume[@]}"} > "$3.log" 2>&1 < /dev/null
}

folders=() missing=() skipped=0 ran=0 spent=0
while IFS=$'\t' read -r case ranks folder values <&3; do
  ranks=${MINIPIPE_RANKS:-$ranks}
  # Any number will do: one stage of each replica.
  [ "$ranks" != 0 ] || ranks=$(settings "$case" | sed -n 's/^data = \([0-9]*\)$/\1/p')
  [ -n "$ranks" ] || ranks=1
  if finished "$case" "$folder"; then
    skipped=$((skipped + 1))
    folders+=("$folder")
    continue
  fi
  if [ "$run" = no ]; then
    missing+=("case $case ($values): $(cat "$folder/status.txt" 2> /dev/null || echo "not run yet")")
    continue
  fi
  left=
  [ $ran = 0 ] || left=", about $(clock $((spent * (total - case) / ran))) left"
  say "case $case of 0..$((total - 1)): $values, $ranks ranks$left"
  begin=$(date +%s)
  status=0
  run_case "$case" "$ranks" "$folder" || status=$?
  spent=$((spent + $(date +%s) - begin))
  ran=$((ran + 1))
  if [ $status = 0 ]; then
    folders+=("$folder")
    rm -f "$folder/status.txt"
  else
    echo "failed, status $status" > "$folder/status.txt" 2> /dev/null || true
    say "case $case FAILED with status $status: $(grep -m 1 '^minipipe:' "$folder.log" 2> /dev/null || tail -n 1 "$folder.log" 2> /dev/null)"
    missing+=("case $case ($values): failed, status $status, see $folder.log")
  fi
done 3<<< "$list"
say "$total cases: ${#folders[@]} finished ($skipped of them before), ${#missing[@]} not"

status=0
if [ ${#folders[@]} -gt 0 ]; then
  /usr/bin/python3 "$root/jobs/report.py" "${folders[@]}" --out "$out" || status=$?
fi
if [ ${#missing[@]} -gt 0 ]; then
  printf 'not finished: %s\n' "${missing[@]}" >&2
  status=1
fi
exit $status
