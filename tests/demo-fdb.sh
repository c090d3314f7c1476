#!/usr/bin/env bash
# A FoundationDB operator removes a storage group that still has its data. The volume survives and the group comes back; without
# the webhook the same run loses it. API server, owner references, garbage collection and exec are real; the operator and its
# database are the double of docs/reference/doubles.md. Run it with `make demo-fdb`. Everything that it starts ends with it.
set -euo pipefail

bin=${HIBERNATE_BIN:-$(cd "$(dirname "$0")/../bin" && pwd)}
world=$(mktemp -d "${TMPDIR:-/tmp}/hibernate-demo-fdb-XXXXXX")
mkdir "$world/alias"
export PATH="$world/alias:$bin:$PATH" HIBERNATE_WORLD="$world/world" NO_COLOR=1
# shellcheck source=tests/demo-lib.sh
source "$(dirname "$0")/demo-lib.sh"

# First storage group of a cluster that is not to go.
first_storage() {
    kubectl get fdb "$1" -n "$1" -o json | python3 -c '
import json, sys
groups = json.load(sys.stdin)["status"]["processGroups"]
print(sorted(group["processGroupID"] for group in groups if group["processClass"] == "storage" and "removalTimestamp" not in group)[0])
'
}

claim_uid() { kubectl get pvc "$1-$2-data" -n "$1" -o 'jsonpath={.metadata.uid}' --ignore-not-found; }

# What stands for the data on the volume of this uid, and whether the database has moved it elsewhere.
data() {
    testbed call GET "/fdb/$1/$1" | python3 -c '
import json, sys
database = json.load(sys.stdin)
volume = database["volumes"].get(sys.argv[1])
print("{} (moved elsewhere: {})".format(volume["marker"], "yes" if volume["drained"] else "no") if volume else "none")
' "$2"
}

lost() {
    testbed call GET "/fdb/$1/$1" | python3 -c '
import json, sys
lost = [volume for volume in json.load(sys.stdin)["gone"] if not volume["drained"]]
for volume in lost:
    print("# LOST: {} of {} with data {}".format(volume["claim"], volume["group"], volume["marker"]))
sys.exit(0 if lost else 1)
'
}

wait_until() {
    for _ in $(seq 120); do
        if eval "$2"; then return 0; fi
        sleep 0.5
    done
    note "waited in vain until $1"
    return 1
}

# Makes a database whose removed groups are kept for two hours. Its operator runs as long as the second request.
database() {
    local options="{\"namespace\":\"$1\",\"annotations\":{\"hibernate.sh/minimum-suspension\":\"2h\"}}"
    testbed call POST /fdb "{\"name\":\"$1\",\"options\":$options}" >/dev/null
    testbed call GET "/fdb/$1/$1/operator" >/dev/null 2>&1 &
    wait_until "it is reconciled" '[ -n "$(kubectl get fdb '"$1 -n $1"' -o "jsonpath={.status.generations.reconciled}")" ]'
}

# A storage group is removed by mistake, by an operator that does not wait for its data to be moved.
remove() {
    testbed call PATCH "/fdb/$1/$1/settings" '{"wrong":true}' >/dev/null
    show kubectl patch fdb "$1" -n "$1" --type merge -p "{\"spec\":{\"processGroupsToRemove\":[\"$2\"]}}"
    wait_until "the Pod is gone" '[ -z "$(kubectl get pod "'"$1-$2"'" -n "'"$1"'" --ignore-not-found -o name)" ]'
}

step "A world starts: an API server, the double of the operator, our webhook and our controller"
testbed up --clusters 0 --spokes 0 2>&1
eval "$(testbed env)"
database sample
show kubectl get pods,pvc -n sample
group=$(first_storage sample)
uid=$(claim_uid sample "$group")
before=$(data sample "$uid")
note "$group has the volume $uid with the data $before"

step "The operator removes it with the data on it"
remove sample "$group"
sleep 2
note "Its Pod is gone, its volume is not:"
show kubectl get pvc "sample-$group-data" -n sample
wait_until "it is stamped" 'kubectl hibernate status fdb/sample -n sample -o json | grep -q "\"since\""'
show kubectl hibernate status fdb/sample -n sample

step "It is brought back, by the name of FoundationDB's own plugin"
testbed call PATCH /fdb/sample/sample/settings '{"wrong":false}' >/dev/null
show kubectl hibernate install-alias "$world/alias"
show kubectl fdb recover process-groups -n sample -c sample "$group" --wait=false -z 2
show kubectl get pod "sample-$group" -n sample
after=$(data sample "$(claim_uid sample "$group")")
note "volume before: $uid, data $before"
note "volume after:  $(claim_uid sample "$group"), data $after"
[ "$(claim_uid sample "$group")" = "$uid" ] && [ "$after" = "$before" ]

step "The same without the webhook"
show kubectl delete validatingwebhookconfiguration hibernate-webhook
database bare
group=$(first_storage bare)
note "$group has the volume $(claim_uid bare "$group") with the data $(data bare "$(claim_uid bare "$group")")"
show kubectl hibernate status fdb/bare -n bare
remove bare "$group"
wait_until "the volume is gone" '[ -z "$(claim_uid bare "'"$group"'")" ]'
lost bare
if show kubectl hibernate recover process-groups -n bare -c bare "$group" --yes; then
    note "this should have been refused"
    exit 1
fi

everything_ends
