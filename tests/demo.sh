#!/usr/bin/env bash
# A cluster is put to sleep and woken, on a whole world of real parts on this machine. Run it with `make demo`.
# Everything that it starts ends with it.
set -euo pipefail

bin=${HIBERNATE_BIN:-$(cd "$(dirname "$0")/../bin" && pwd)}
world=$(mktemp -d "${TMPDIR:-/tmp}/hibernate-demo-XXXXXX")
export PATH="$bin:$PATH" HIBERNATE_WORLD="$world/world" NO_COLOR=1
# shellcheck source=tests/demo-lib.sh
source "$(dirname "$0")/demo-lib.sh"

# The same for a command that must be refused: the demo fails if it passes.
refused() {
    if show "$@"; then
        note "this should have been refused"
        return 1
    fi
}

instances() {
    testbed call GET /status | python3 -c '
import json, sys
for cluster in json.load(sys.stdin)["clusters"]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(cluster["instances"].items()))
    print("# EC2 says of {}: {}; its API server {}".format(cluster["infraID"], states, "answers" if cluster["open"] else "is off"))
'
}

step "A world starts: hub and spoke API servers, EC2, six machines, our webhook and our controller"
testbed up --timings '{"ec2Start": "4s", "ec2Stop": "4s", "operatorSettle": "8s"}' 2>&1
eval "$(testbed env)"
show kubectl wait clusterdeployment demo --for 'jsonpath={.status.powerState}=Running' --timeout 3m
show kubectl get clusterdeployments
instances

step "The cluster is put to sleep"
show kubectl hibernate demo --reason weekend --wait --timeout 3m
instances
show kubectl hibernate status demo

step "The webhook refuses what cannot work"
note "A cluster that somebody protects:"
show kubectl hibernate resume demo --wait --timeout 3m
show kubectl annotate clusterdeployment demo hibernate.sh/protected=true
refused kubectl hibernate demo
show kubectl annotate clusterdeployment demo hibernate.sh/protected-
note "A time after which no cluster would ever run:"
refused kubectl patch clusterdeployment demo --type merge -p '{"spec":{"hibernateAfter":"0s"}}'

step "Plain kubectl does the same, as another user"
show kubectl patch clusterdeployment demo --as alice --type merge -p '{"spec":{"powerState":"Hibernating"}}'
show kubectl wait clusterdeployment demo --for 'jsonpath={.status.powerState}=Hibernating' --timeout 3m
instances

step "The audit trail: who asked, when, and what happened"
kubectl get clusterdeployment demo -o json | python3 -c '
import json, sys
for key, value in sorted(json.load(sys.stdin)["metadata"]["annotations"].items()):
    if key.startswith("hibernate.sh/"):
        print(f"  {key}: {value}")
'
show kubectl get events.events.k8s.io --field-selector regarding.name=demo -o 'custom-columns=TIME:.eventTime,FROM:.reportingController,REASON:.reason,NOTE:.note'

step "And it is woken"
sleep 5 # so that there is a sleep to count
show kubectl hibernate resume demo --wait --timeout 3m
instances
show kubectl hibernate status demo

step "What the sleeps have avoided"
printf 'InstanceType,MarketPriceHourly\nm6i.xlarge,0.192\n' > "$world/prices.csv"
show kubectl hibernate savings --prices "$world/prices.csv"

step "The same in a browser: the page's fleet, as text"
python3 tests/demo-page.py

everything_ends
