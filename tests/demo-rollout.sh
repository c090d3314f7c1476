#!/usr/bin/env bash
# Twelve clusters fall asleep and wake in waves: two canaries, four at a time. A canary that fails halts the wake; a retry goes on, an undo
# gives back what was before. Run it with `make demo-rollout`. Everything that it starts ends with it.
set -euo pipefail

bin=${HIBERNATE_BIN:-$(cd "$(dirname "$0")/../bin" && pwd)}
world=$(mktemp -d "${TMPDIR:-/tmp}/hibernate-demo-rollout-XXXXXX")
export PATH="$bin:$PATH" HIBERNATE_WORLD="$world/world" NO_COLOR=1
# shellcheck source=tests/demo-lib.sh
source "$(dirname "$0")/demo-lib.sh"

# Creates a rollout over the fleet, paused, and keeps its name. The two minutes that canaries have to hold their state are three seconds here.
rollout() {
    show kubectl hibernate "$@" -l env=dev -A --canary tier=canary --max-concurrency 4 --paused --yes -o name | tee "$world/out"
    name=$(tail -1 "$world/out")
    name=${name##*/}
    show kubectl patch powerrollout "$name" --type merge -p '{"spec":{"minSuccessTime":"3s"}}'
}

ended() { kubectl wait "powerrollout/$1" --for condition=Complete --timeout 3m >/dev/null; }

# What EC2 says, and who started when, in order.
waves() {
    kubectl get clusterdeployments -A -o json | python3 -c '
import json, sys
rows = []
for cluster in json.load(sys.stdin)["items"]:
    mark = json.loads(cluster["metadata"]["annotations"].get("hibernate.sh/rollout", "{}"))
    if mark.get("by") == sys.argv[1]:
        ended = mark.get("ended", {})
        rows.append((mark["at"], mark["group"], cluster["metadata"]["name"], ended.get("result", "under way"), ended.get("at", "")))
for since, group, name, result, at in sorted(rows):
    print("#   {} group {} {:8} {} {}".format(since, group, name, result, at))
' "$1"
}

step "A world starts: twelve clusters, a hub, EC2, our webhook and our controller"
testbed up --clusters 12 --instances 1 --timings '{"ec2Start": "3s", "ec2Stop": "3s", "operatorSettle": "1s"}' 2>&1
eval "$(testbed env)"
kubectl wait clusterdeployments -A --all --for 'jsonpath={.status.powerState}=Running' --timeout 3m >/dev/null
kubectl label clusterdeployments -A --all env=dev >/dev/null
kubectl label clusterdeployment -n demo demo tier=canary >/dev/null
kubectl label clusterdeployment -n demo-2 demo-2 tier=canary >/dev/null
show kubectl get clusterdeployments -A -L env,tier

step "A rollout of sleep, created paused: it shows its plan"
rollout --reason weekend
kubectl wait "powerrollout/$name" --for 'jsonpath={.status.phase}=Planned' --timeout 30s >/dev/null
show kubectl hibernate status "rollout/$name"

step "It goes on: canaries first, then four at a time"
show kubectl hibernate rollout resume "$name"
note "kubectl hibernate status rollout/$name --watch"
kubectl hibernate status "rollout/$name" --watch 2>&1 &
watch=$!
ended "$name"
sleep 2
kill "$watch" 2>/dev/null || true
wait "$watch" 2>/dev/null || true
waves "$name"
slept=$name

step "A wake whose canary fails: its credentials are revoked"
keys=$(kubectl get clusterdeployment -n demo demo -o 'jsonpath={.spec.platform.aws.credentialsSecretRef.name}')
good=$(kubectl get secret -n demo "$keys" -o 'jsonpath={.data.aws_access_key_id}')
kubectl patch secret -n demo "$keys" --type merge -p "{\"data\":{\"aws_access_key_id\":\"$(printf AKIAREVOKED | base64)\"}}" >/dev/null
rollout resume
show kubectl patch powerrollout "$name" --type merge -p '{"spec":{"deadline":"10s"}}'
show kubectl hibernate rollout resume "$name"
kubectl wait "powerrollout/$name" --for 'jsonpath={.status.phase}=Halted' --timeout 2m >/dev/null
show kubectl hibernate status "rollout/$name"
note "the others sleep on:"
show kubectl get clusterdeployments -A
kubectl wait "powerrollout/$name" --for 'jsonpath={.status.counts.Failed}=1' --timeout 1m >/dev/null

step "The credentials are back: a retry takes the canary again, and the rest follow"
kubectl patch secret -n demo "$keys" --type merge -p "{\"data\":{\"aws_access_key_id\":\"$good\"}}" >/dev/null
until kubectl get clusterdeployment -n demo demo -o 'jsonpath={.metadata.annotations.hibernate\.sh/rollout}' | grep -q '"ended"'; do sleep 0.5; done
show kubectl patch powerrollout "$name" --type merge -p '{"spec":{"deadline":"2m"}}'
show kubectl hibernate rollout retry "$name"
ended "$name"
show kubectl hibernate status "rollout/$name"
waves "$name"

step "An undo gives back the states from before the wake"
show kubectl hibernate rollout undo "$name" --yes
undo=$(kubectl get powerrollouts -o json | python3 -c '
import json, sys
print(next(one["metadata"]["name"] for one in json.load(sys.stdin)["items"] if one["spec"]["action"] == "Restore"))')
ended "$undo"
show kubectl hibernate status "rollout/$undo"
show kubectl get powerrollouts
test "$(kubectl get powerrollout "$slept" -o 'jsonpath={.status.phase}')" = Succeeded
test "$(kubectl get clusterdeployments -A -o 'jsonpath={.items[*].status.powerState}' | tr ' ' '\n' | sort -u)" = Hibernating
note "all twelve sleep again"

everything_ends
