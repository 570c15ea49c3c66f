#!/usr/bin/env bash
# Runs all cases of a deck with [sweep] on this machine, one after the other, and ends with a table and heat maps. Safe to run
# again: finished cases are skipped, stopped ones go on from their checkpoint. A failed case is named and the others go on.
#   jobs/sweep.sh DECK [OUT] [block.key=value ...]       OUT: folder of the cases, default output.directory of the deck
#   jobs/sweep.sh DECK [OUT] [...] --report              runs nothing: table of what is finished, and what is not
# Ctrl-C or SIGTERM stops the case with a checkpoint and ends the sweep; the same command goes on from there.
# Environment: MINIPIPE_RANKS (ranks of every case; default: parallel.data times parallel.stages of the case, stages counting once
# if they are 0; as many as parallel.data run all stages of a replica in one process).
# Writes OUT/case_K, OUT/case_K.log, OUT/table.json, OUT/report.html and pictures. Exit status 1 if a case is not finished, 75 if
# the sweep was stopped.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

run=yes deck='' out='' overrides=()
for argument in "$@"; do
  case $argument in
    -h | --help) usage ;;
    --report) run=no ;;
    -*) die "unknown argument '$argument'; see jobs/sweep.sh --help" ;;
    *=*) overrides+=("$argument") ;;
    *) if [ -z "$deck" ]; then deck=$argument; elif [ -z "$out" ]; then out=$argument; else die "'$argument': a deck and a folder are given already"; fi ;;
  esac
done
[ -n "$deck" ] || die "no deck; usage: jobs/sweep.sh DECK [OUT] [block.key=value ...]"
[ -z "$out" ] || overrides+=("output.directory=$out")
need_program

list=$("$minipipe" train "$deck" --cases --list ${overrides[@]+"${overrides[@]}"} < /dev/null) || exit $?
list=$(printf '%s\n' "$list" | grep -aP '^\d+\t')
total=$(printf '%s\n' "$list" | wc -l)
[ -n "$out" ] || out=$(dirname "$(printf '%s\n' "$list" | head -1 | cut -f 3)")
if [ "$run" = yes ]; then take_folder "$out"; else mkdir -p "$out" || die "$out cannot be made; name a folder that can be written to"; fi

# The settings of a case without the comments on where they come from, and without what a restart changes.
settings() { "$minipipe" train "$deck" --case "$1" ${overrides[@]+"${overrides[@]}"} --print-deck < /dev/null | sed -n '/ = /s/ *# .*//p'; } # CASE

finished() { # CASE FOLDER
  local now
  is_done "$2" || return 1
  now=$(settings "$1") || return 1
  if [ -f "$2/settings.txt" ]; then
    cmp -s - "$2/settings.txt" <<< "$now"
  else
    # Batch jobs leave no copy of the settings.
    is_done "$2" "$(sed -n 's/^steps = //p' <<< "$now")"
  fi
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# The launcher is in a session of its own, so that a Ctrl-C does not kill it before the program has written its checkpoint.
child='' stops=0
# shellcheck disable=SC2317
stop() {
  stops=$((stops + 1))
  [ -z "$child" ] || kill -"$([ $stops = 1 ] && echo USR1 || echo TERM)" "$child" 2> /dev/null || true
  # The terminal may be gone.
  say "stopping after a checkpoint; once more ends at once" 2> /dev/null || true
}
[ "$run" = no ] || trap stop INT TERM HUP

run_case() { # CASE RANKS FOLDER
  local resume=() status=0
  mkdir -p "$3" || return 3
  rm -f "$3.log"
  if [ -f "$3/settings.txt" ] && settings "$1" | cmp -s - "$3/settings.txt"; then resume=(run.resume=latest); fi
  settings "$1" > "$3/settings.txt" || return 3
  if [ "$2" = 1 ]; then
    # Without a launcher, which would take longer than a small case.
    launch_command=(env OMP_NUM_THREADS=1 OMP_PROC_BIND=false OMPI_MCA_ess_singleton_isolated=1
      OMPI_MCA_orte_create_session_dirs=0 "$minipipe")
  else
    mpirun_command "$2"
  fi
  [ $stops = 0 ] || return 75
  setsid "${launch_command[@]}" train "$deck" --case "$1" ${overrides[@]+"${overrides[@]}"} ${resume[@]+"${resume[@]}"} > "$3.log" 2>&1 < /dev/null &
  child=$!
  wait_through "$child" stops || status=$?
  child=
  return $status
}

# Has the device room for the small files of a case? The next case would fail as well.
room() { head -c 65536 /dev/zero 2> /dev/null > "$out/.room" && rm -f "$out/.room"; }

folders=() missing=() waiting=() skipped=0
while IFS=$'\t' read -r case ranks folder values <&3; do
  if finished "$case" "$folder"; then
    skipped=$((skipped + 1))
    folders+=("$folder")
  elif [ "$run" = no ]; then
    missing+=("case $case ($values): $(cat "$folder/status.txt" 2> /dev/null || echo "not run yet")")
  else
    waiting+=("$case"$'\t'"$ranks"$'\t'"$folder"$'\t'"$values")
  fi
done 3<<< "$list"

ran=0 spent=0 full=no
for line in ${waiting[@]+"${waiting[@]}"}; do
  IFS=$'\t' read -r case ranks folder values <<< "$line"
  if [ $stops != 0 ] || [ $full = yes ]; then
    missing+=("case $case ($values): not run")
    continue
  fi
  ranks=${MINIPIPE_RANKS:-$ranks}
  # Any number will do: one stage of each replica.
  [ "$ranks" != 0 ] || ranks=$(settings "$case" | sed -n 's/^data = \([0-9]*\)$/\1/p')
  [ -n "$ranks" ] || ranks=1
  left=
  [ $ran = 0 ] || left=", about $(clock $((spent * (${#waiting[@]} - ran) / ran))) left"
  say "case $case of 0..$((total - 1)): $values, $ranks ranks$left"
  begin=$(date +%s)
  status=0
  run_case "$case" "$ranks" "$folder" || status=$?
  spent=$((spent + $(date +%s) - begin))
  ran=$((ran + 1))
  if [ $status = 0 ]; then
    folders+=("$folder")
    rm -f "$folder/status.txt"
    continue
  fi
  if [ $status = 75 ] || [ $stops != 0 ]; then
    what="stopped early"
    say "case $case stopped early; run the same command again to go on"
  else
    what="failed, status $status"
    say "case $case FAILED with status $status: $(grep -m 1 '^minipipe:' "$folder.log" 2> /dev/null || tail -n 1 "$folder.log" 2> /dev/null)"
  fi
  { echo "$what" > "$folder/status.txt"; } 2> /dev/null || true
  missing+=("case $case ($values): $what, see $folder.log")
  if ! room; then
    full=yes
    say "no room in $out: the other cases are not run; make room and run the same command again, finished cases are kept"
  fi
done
say "$total cases: ${#folders[@]} finished ($skipped of them before), ${#missing[@]} not"
trap - INT TERM HUP

status=0
if [ $stops = 0 ] && [ ${#folders[@]} -gt 0 ]; then
  /usr/bin/python3 "$root/jobs/report.py" "${folders[@]}" --out "$out" || status=$?
fi
if [ ${#missing[@]} -gt 0 ]; then
  printf 'not finished: %s\n' "${missing[@]}" >&2
  status=1
fi
[ $stops = 0 ] || status=75
exit $status
