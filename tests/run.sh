#!/usr/bin/env bash
# Runs suites of tests, all of them even if one fails: `run.sh SUITE... [-- WORD...]` runs the tests whose names contain a word.
#   unit     needs no world
#   doc      examples in the documentation
#   fuzz     what reads untrusted input, each target for FUZZ_SECONDS
#   e2e      our programs on the test world: rollouts beside all others first, then the modules named `alone`, five at a time
#   openstack  our programs on OpenStack's own services, which take minutes of waiting
#   testbed  the test world itself
# `run.sh again SUITE NAME...` runs tests by their full names, one by one.
# `make` calls it: it sets CARGO_FLAGS, and THREADS, how many end-to-end tests run side by side. What the tests say is kept, with the
# time of each, in $CARGO_TARGET_DIR/tests.log.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
log=${CARGO_TARGET_DIR:?}/tests.log
failed=0

# run WHAT CARGO-ARGUMENTS... -- TEST-ARGUMENTS...
# libtest takes the time of each test by an option that is unstable: the variable lets it. It is not set when something is compiled.
run() {
    title "$1"
    shift
    # shellcheck disable=SC2086 # flags are words
    cargo test $CARGO_FLAGS --no-fail-fast --config 'target."cfg(all())".runner = ["env", "RUSTC_BOOTSTRAP=1"]' \
        "$@" -Z unstable-options --report-time 2>&1 | tee -a "$log" || failed=1
}

title() { printf '==> %s\n' "$1" | tee -a "$log"; }

# Test programs of all crates that need no world.
programs() {
    cargo metadata --no-deps --format-version 1 | grep -oE '"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]+"' | cut -d '"' -f 12 | grep -vx -e e2e -e testbed
}

# feed TEST-ARGUMENTS...
feed() {
    # shellcheck disable=SC2086
    cargo test $CARGO_FLAGS --no-fail-fast --lib --bins --test fuzz -- --nocapture "$@" 2>&1 |
        tee -a "$log" | grep --line-buffered -oE 'fuzz [^(]+ inputs,.*|.*(panicked|FAILED).*|^error.*' || failed=1
}

# Names of a suite's tests in modules named `alone` that contain one of the words.
alone() {
    local suite=$1 word words=()
    shift
    for word in "$@"; do words+=(-e "$word"); done
    # shellcheck disable=SC2086
    cargo test $CARGO_FLAGS --quiet --test "$suite" -- --list --format terse | sed -n 's/: test$//p' | grep alone:: | grep -F "${words[@]}"
}

if [ "${1:-}" = again ]; then
    suite=$2
    shift 2
    run "$suite, again" --test "$suite" -- --exact --test-threads 1 "$@"
    exit $failed
fi

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1"); shift; done
[ $# -eq 0 ] || shift
: > "$log"
for suite in "${suites[@]}"; do
    case $suite in
        unit)
            mapfile -t programs < <(programs)
            [ ${#programs[@]} -gt 0 ] || { echo "run.sh: cargo metadata lists no test programs" >&2; exit 1; }
            if [ $# -gt 0 ]; then
                run "unit tests" --lib --bins "${programs[@]/#/--test=}" -- "$@"
            else
                run "unit tests" --lib --bins "${programs[@]/#/--test=}" -- --skip readers_of_
                # One process at a time, and one test in it: what is in use at once is measured.
                FUZZ_MEMORY=1 run "readers, their memory measured" --lib -- --test-threads 1 readers_of_
            fi
            ;;
        doc)
            title "examples in the documentation"
            # shellcheck disable=SC2086
            cargo test $CARGO_FLAGS --doc -- "$@" 2>&1 | tee -a "$log" || failed=1
            ;;
        fuzz)
            title "every target for ${FUZZ_INPUTS:-${FUZZ_SECONDS:?} s}${FUZZ_INPUTS:+ inputs}, two at a time; then those whose memory is measured"
            feed --test-threads 2 --skip fuzz_memory_ fuzz_
            FUZZ_MEMORY=1 feed --test-threads 1 fuzz_memory_
            grep -qE 'FAILED|^error' "$log" && failed=1
            ;;
        openstack) run "on openstack, side by side" --test e2e -- --test-threads 4 on_openstack:: "$@" ;;
        e2e | testbed)
            if [ $# -gt 0 ] || [ "$suite" = testbed ]; then
                run "$suite, side by side" --test "$suite" -- --test-threads "$THREADS" --skip alone:: "$@"
            else
                # Rollouts wait for minutes and need little CPU, and by name they come last.
                rollouts=$(mktemp)
                (log=$rollouts; run "$suite, rollouts, side by side" --test "$suite" -- --test-threads $((THREADS / 3)) --skip alone:: rollout; exit $failed) > /dev/null &
                run "$suite, the others, side by side" --test "$suite" -- --test-threads $((THREADS - THREADS / 3)) --skip alone:: --skip on_openstack:: --skip rollout
                wait $! || failed=1
                tee -a "$log" < "$rollouts"
                rm -f "$rollouts"
            fi
            if [ $# -eq 0 ]; then
                run "$suite, alone" --test "$suite" -- --test-threads 5 alone::
            else
                mapfile -t names < <(alone "$suite" "$@")
                [ ${#names[@]} -eq 0 ] || run "$suite, alone" --test "$suite" -- --test-threads 5 --exact "${names[@]}"
            fi
            ;;
        *) echo "run.sh: no suite $suite" >&2; exit 2 ;;
    esac
done
exit $failed
