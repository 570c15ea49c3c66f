#!/usr/bin/env bash
# Puts the deck's tables into docs/deck.md, between its two deck markers, as the program prints them. Run after a change of the
# deck's schema and a build.
#   jobs/update-readme.sh [--check]      --check: change nothing, end with status 1 if docs/deck.md is out of date
# Environment: MINIPIPE (the program, default build/release/minipipe).
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

check=no
case ${1:-} in
  "") ;;
  --check) check=yes ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; known: --check" ;;
esac
[ -f "$minipipe" ] && [ -x "$minipipe" ] || die "$minipipe is not a program: build it first (cmake --preset release && cmake --build --preset release), or set MINIPIPE"
table=$(OMP_PROC_BIND=false "$minipipe" --help-deck-markdown) || die "$minipipe --help-deck-markdown failed"
TABLE=$table /usr/bin/python3 - "$root/docs/deck.md" "$check" << 'PYTHON'
import os
import pathlib
import sys

document, check = pathlib.Path(sys.argv[1]), sys.argv[2] == "yes"
begin, end = "<!-- deck -->\n", "<!-- /deck -->"
text, table = document.read_text(), os.environ["TABLE"]
if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
    sys.exit(f"error: {document} needs one line {begin.strip()} and, after it, one line {end}")
if "###" not in table:
    sys.exit("error: the program printed no tables")
table = table[table.index("###") :].strip()  # after warnings of Kokkos, if any
before, rest = text.split(begin)
new = before + begin + table + "\n" + end + rest.split(end)[1]
if check:
    sys.exit("error: docs/deck.md is out of date: run jobs/update-readme.sh" if new != text else 0)
if new != text:
    temporary = document.with_name(".deck.md.tmp")
    temporary.write_text(new)
    temporary.chmod(document.stat().st_mode)
    temporary.replace(document)
print(f"-- docs/deck.md: deck tables {'renewed' if new != text else 'are current'}")
PYTHON
