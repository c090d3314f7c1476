#!/usr/bin/env bash
# Three clusters from Friday to Monday, in minutes: they fall asleep in the evening, one is held awake on Saturday, one is woken for good, and
# all are awake on Monday. The clock of webhook, controller and plugin jumps from edge to edge. Run it with `make demo-schedule`. Everything
# that it starts ends with it.
set -euo pipefail

bin=${HIBERNATE_BIN:-$(cd "$(dirname "$0")/../bin" && pwd)}
world=$(mktemp -d "${TMPDIR:-/tmp}/hibernate-demo-schedule-XXXXXX")
export PATH="$bin:$PATH" HIBERNATE_WORLD="$world/world" NO_COLOR=1
# shellcheck source=tests/demo-lib.sh
source "$(dirname "$0")/demo-lib.sh"

# The clock of our programs: a library that is loaded first adds the seconds in a file.
clock=$world/shift.so shift=$world/shift zone=Europe/Berlin
cc -shared -fPIC -o "$clock" "$(dirname "$0")/e2e/clock/shift.c"
echo 0 >"$shift"
kubectl() { LD_PRELOAD=$clock CLOCK_SHIFT=$shift command kubectl "$@"; }
friday=$(TZ=$zone date -d 'next friday' +%F)

# Sets the clock: so many days after the Friday, at this time in Berlin.
go() {
    at=$(TZ=$zone date -d "$(date -d "$friday +$1 days" +%F) $2" +%s)
    echo $((at - $(date +%s))) >"$shift.new"
    mv "$shift.new" "$shift"
    note "it is $(LC_ALL=C TZ=$zone date -d "@$at" '+%A, %H:%M:%S') in Berlin"
}

# Starts one of our programs with that clock.
start() {
    testbed call POST /programs "$(python3 -c '
import json, sys
program, library, shift, *args = sys.argv[1:]
print(json.dumps({"program": program, "args": args, "environment": {"LD_PRELOAD": library, "CLOCK_SHIFT": shift}}))
' "$1" "$clock" "$shift" "${@:2}")" >/dev/null
}

reach() { command kubectl wait clusterdeployments -A "${@:2}" --for "jsonpath={.status.powerState}=$1" --timeout 3m >/dev/null; }
ended() { command kubectl wait powerrollouts --all --for condition=Complete --timeout 3m >/dev/null; }

step "A world starts: three clusters, a hub, EC2, our webhook and our controller"
testbed up --clusters 3 --instances 1 --without controller,webhook --timings '{"ec2Start": "2s", "ec2Stop": "2s", "operatorSettle": "1s"}' 2>&1
eval "$(testbed env)"
# Its certificate is of the time of the API server.
start webhook
go 0 12:00:00
start controller --lease-duration 3s --renew-deadline 2s --retry-period 500ms
command kubectl label clusterdeployments -A --all env=dev >/dev/null
reach Running --all
show kubectl hibernate status -A

step "A schedule for office hours"
show kubectl hibernate schedule create platform -l env=dev --cluster-wide --zone $zone --awake "Mon-Fri 07:30-18:00" --yes
show kubectl hibernate schedule next cpsch/platform --days 5
show kubectl hibernate schedule explain cd/demo -n demo

step "Friday evening: they fall asleep"
go 0 17:59:57
reach Hibernating --all
ended
show kubectl hibernate status -A
show kubectl hibernate status cpsch/platform

step "Saturday: one is needed for three hours, and one is woken without an end"
go 1 10:00:00
show kubectl hibernate resume demo -n demo --hold-awake --for 3h --reason "a demo" --wait --timeout 3m
show kubectl hibernate resume demo-2 -n demo-2 --reason "a long test" --wait --timeout 3m
go 1 13:00:00
note "the hold ends: that cluster falls asleep again, and what was woken without an end stays awake until the next sleep"
reach Hibernating --field-selector metadata.name=demo
ended
show kubectl hibernate status -A
test "$(command kubectl get clusterdeployment demo-2 -n demo-2 -o 'jsonpath={.status.powerState}')" = Running

step "Monday morning: they wake"
go 3 07:29:57
reach Running --all
ended
show kubectl hibernate status -A
show kubectl hibernate status cpsch/platform

step "Each edge was a rollout, with the person who wrote the schedule"
show kubectl get powerrollouts -o 'custom-columns=NAME:.metadata.name,ACTION:.spec.action,AS-OF:.spec.asOf,REASON:.spec.reason,PHASE:.status.phase,BY:.metadata.annotations.hibernate\.sh/requested-by'
test "$(command kubectl get powerrollouts -o name | wc -l)" = 3

everything_ends
