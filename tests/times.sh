#!/usr/bin/env bash
# Where the time of the last test run went: the 30 slowest tests, and the sum of each module. Tests run side by side, so the sums are
# more than the time that has passed.
set -euo pipefail
log=${CARGO_TARGET_DIR:?}/tests.log
[ -s "$log" ] || { echo "no test run in $log: run \`make test\` first"; exit 1; }
times() { sed -nE 's/^test ([^ ]+) \.\.\. [a-zA-Z]+ <([0-9.]+)s>$/\2 \1/p' "$log"; }
echo "slowest tests (seconds)"
# awk reads to the end: `head` would close the pipe, and pipefail would end the script.
times | sort -rn | awk 'NR <= 30 { printf "%8.1f  %s\n", $1, $2 }'
echo "modules (seconds, tests)"
times | awk '{ n = split($2, part, "::"); module = part[1] == "alone" && n > 2 ? part[1] "::" part[2] : part[1]; sum[module] += $1; count[module]++ }
    END { for (module in sum) printf "%8.1f %5d  %s\n", sum[module], count[module], module }' | sort -rn
echo "parts (seconds of the clock, as the runner says)"
sed -nE 's/^==> (.*)/\1/p; s/^ *Running .*\((.*)\)$/  \1/p; s/^test result: .* ([0-9]+) passed; ([0-9]+) failed.* finished in ([0-9.]+)s$/    \3 s, \1 passed, \2 failed/p' "$log"
