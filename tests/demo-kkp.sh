#!/usr/bin/env bash
# A user cluster of KKP falls asleep and comes back: five machines in two MachineDeployments, one of them autoscaled, three volumes, two load
# balancers, and disruption budgets that allow no disruption. Both API servers, the workloads, evictions and webhooks are real; KKP,
# machine-controller and the cloud are the double of docs/reference/doubles.md. Run it with `make demo-kkp`. Everything that it starts ends with it.
set -euo pipefail

bin=${HIBERNATE_BIN:-$(cd "$(dirname "$0")/../bin" && pwd)}
world=$(mktemp -d "${TMPDIR:-/tmp}/hibernate-demo-kkp-XXXXXX")
export PATH="$bin:$PATH" HIBERNATE_WORLD="$world/world" NO_COLOR=1
id=shop
# shellcheck source=tests/demo-lib.sh
source "$(dirname "$0")/demo-lib.sh"

hibernate() { show kubectl hibernate "cluster/$id" --reason weekend --yes --wait --timeout 5m; }
resume() { show kubectl hibernate resume "cluster/$id" --wait --timeout 5m; }
status() { show kubectl hibernate status "cluster/$id"; }

# The user cluster as its own users see it, past the gate in front of its API server.
user=$world/user.kubeconfig
user() { kubectl --kubeconfig "$user" "$@"; }

# What must come back as it was: counts and annotations of MachineDeployments, volumes and what is on them, load balancers, the control plane.
picture() {
    {
        user get machinedeployments.cluster.k8s.io -A -o json
        user get pv,pvc,svc -A -o json
        kubectl get deployments,statefulsets -n "cluster-$id" -o json
        testbed call GET "/kkp/$id"
    } | python3 -c '
import json, sys
text, at, decoder, out = sys.stdin.read(), 0, json.JSONDecoder(), []
while text[at:].strip():
    at += len(text[at:]) - len(text[at:].lstrip())
    value, at = decoder.raw_decode(text, at)
    for one in value.get("items", []):
        meta, spec = one["metadata"], one["spec"]
        if one["kind"] == "Service" and spec.get("type") != "LoadBalancer":
            continue
        keys = []
        if one["kind"] == "MachineDeployment":
            keys = sorted((key, value) for key, value in meta.get("annotations", {}).items() if "autoscaler" in key or "hibernate" in key)
        kept = {"PersistentVolume": spec.get("csi"), "PersistentVolumeClaim": spec.get("volumeName"), "Service": one.get("status", {}).get("loadBalancer")}
        out.append(" ".join(map(str, [one["kind"], meta["name"], meta["uid"], spec.get("replicas", ""), kept.get(one["kind"], ""), keys])))
    for handle, data in value.get("cloud", {}).get("volumes", {}).items():
        out.append("data on {}: {}".format(handle, data))
print("\n".join(sorted(out)))
'
}

# How the Pods of the drain ended, and whether the double saw anything that must never happen.
judge() {
    testbed call GET "/kkp/$id/log" | python3 -c '
import json, sys
log = json.load(sys.stdin)
gone = [call["at"] for call in log["calls"] if call["by"] == "cloud" and "is gone" in call["text"]]
drained = [pod for pod in log["pods"] if not pod["ofDaemonSet"]]
early = [pod for pod in drained if pod["how"] == "Graceful" and pod["at"] <= min(gone)]
print("# {} of {} Pods ended by themselves in their grace period, before the first instance was gone".format(len(early), len(drained)))
print("# replicas of etcd, in order: {}".format([count["replicas"] for count in log["etcd"]]))
print("# what must never happen: {}".format([one["text"] for one in log["violations"]] or "nothing of it"))
sys.exit(0 if len(early) == len(drained) and not log["violations"] else 1)
'
}

step "A world starts: a seed with KKP, a user cluster, our controller"
testbed up --clusters 0 --without webhook,controller 2>&1
eval "$(testbed env)"
ln -s world/spoke-0/kubeconfig "$user"
kubectl apply -f "$(dirname "$0")/../manifests/components/kkp/controller-rbac.yaml" >/dev/null
testbed call POST /kkp "{\"id\":\"$id\"}" >/dev/null
testbed call POST /programs '{"program":"controller","args":["--kkp"]}' >/dev/null
show kubectl get cluster "$id" -o 'custom-columns=NAME:.metadata.name,PHASE:.status.phase,PAUSED:.spec.pause,DEHYDRATED:.status.conditions.ClusterDehydrated.reason'
show kubectl --kubeconfig "$user" get machinedeployments.cluster.k8s.io,nodes -A
show kubectl --kubeconfig "$user" get pods,pdb,pvc -A
picture > "$world/before"

step "It falls asleep"
hibernate
status
show kubectl get deployments,statefulsets -n "cluster-$id"
note "instances in the cloud: $(testbed call GET "/kkp/$id" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["cloud"]["instances"]))')"
note "KKP shows it as $(kubectl get cluster "$id" -o 'jsonpath={.status.phase}, API server {.status.extendedHealth.apiserver}')"
judge

step "It comes back"
resume
show kubectl --kubeconfig "$user" get machinedeployments.cluster.k8s.io,nodes -A
picture > "$world/after"
if diff "$world/before" "$world/after"; then note "counts, annotations, volumes, data and load balancers are as before"; else exit 1; fi
wc -l < "$world/after" | xargs printf '# %s objects and volumes compared\n'
judge >/dev/null

everything_ends
