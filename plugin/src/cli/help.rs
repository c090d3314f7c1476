//! The longer texts of `--help`. Of the examples, `-h` has the first three.
//!
//! A paragraph is one line: clap fills it to the width of the terminal. Lines of lists and examples fit into 80
//! columns, because clap would break them anywhere. The tests of [`super::layout`] check both.

/// Begins the `--help` of the program.
pub(crate) const ABOUT: &str = "\
Hibernate and resume clusters and workloads.

For a ClusterDeployment the plugin sets spec.powerState, and Hive or hibernate-controller does the rest. For a KKP Cluster it \
sets the annotation hibernate.sh/power-state, and hibernate-controller does the rest. For a workload it sets replicas to 0 and \
records the previous count in the annotation hibernate.sh/replicas in the same write. For a CronJob it records \
the value of spec.suspend and sets it to true.";

/// Ends the `--help` of every command that goes to the hub.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or nothing to do
  1  error
  2  wrong usage
  3  refused: by a webhook, a policy, the schema, a preflight, or a protection
  4  timed out while waiting
  When several targets fail for different reasons, the exit code is 1.";

/// Where flags stand, and which are accepted and do nothing.
pub(crate) const FLAGS: &str = "\
Put flags after `hibernate`: kubectl drops flags that precede a plugin's name (`kubectl hibernate web -n shop` works, \
`kubectl -n shop hibernate web` fails).

kubectl's flags --cache-dir, --kuberc, --log-flush-frequency, --match-server-version, --profile, --profile-output and --vmodule \
are accepted and have no effect.";

/// How targets are named.
pub(crate) const TARGETS: &str = "\
Targets:
  NAME          of any type on the hub, if only one target has this name
  TYPE/NAME     such as cd/demo, cluster/abc, deploy/web, sts/db
  TYPE NAME...  the same for several names
  TYPE          with --all or -l SELECTOR; ClusterDeployments if there is no TYPE
  ns/NAME       all Deployments, StatefulSets and CronJobs of a namespace

  Types: clusterdeployment (cd), cluster (KKP's, on its seed), deployment (deploy), statefulset (sts), cronjob (cj), machinedeployment (md), \
each also with its group, as in machinedeployment.cluster.x-k8s.io

  If a target has the name of a command, write TYPE/NAME.";

/// Of kinds whose sleep must be confirmed.
pub(crate) const CONFIRMATION: &str = "\
KKP Clusters:
  A dehydration deletes all Pods, without regard to PodDisruptionBudgets, and all Machines, and stops the control plane. Volumes \
and load balancers remain and are still billed. The plugin asks hibernate-controller for a preflight (by the annotation \
hibernate.sh/preflight-requested-at), waits up to 30s for the result, prints it, and asks for confirmation.

  --yes skips the question, not the preflight: if the preflight refuses, the exit code is 3; if it does not answer, the plugin warns and continues. Without a \
terminal, --yes is required.

  --force accepts Pods without a controller, unfinished Jobs, and webhooks that a wake has to call while their Pods do not run. It \
never overrides any other refusal of the preflight, the admission webhook, or the annotation hibernate.sh/protected. A later \
request without --force withdraws it.

  --all and -l select Clusters only with their TYPE, as in `kubectl hibernate cluster --all`.";

/// Of the bare form.
pub(crate) const HIBERNATE_EXAMPLES: &str = "\
Examples:
  # Put a cluster to sleep and say why
  kubectl hibernate demo --reason \"weekend\"

  # Put it to sleep for the night: hibernate-controller wakes it again
  kubectl hibernate demo --for 14h

  # Wake it
  kubectl hibernate resume demo --wait

  # Put it to sleep until the next morning
  kubectl hibernate demo --until \"tomorrow 08:00\"

  # Put it to sleep, and wait until its machines are stopped
  kubectl hibernate cd/demo --wait --timeout 20m

  # Cancel the scheduled resume
  kubectl annotate clusterdeployment demo hibernate.sh/wake-at-

  # Dehydrate a user cluster of a KKP seed (see below)
  kubectl hibernate cluster/abc --reason \"weekend\" --wait

  # Put workloads to sleep; their replica counts are recorded
  kubectl hibernate deploy/web sts/db machinedeployment/workers -n shop

  # Put all Deployments, StatefulSets and CronJobs of a namespace to sleep
  kubectl hibernate ns/shop

  # Put all clusters of a team to sleep, in all namespaces
  kubectl hibernate -l team=blue -A --yes

  # The same, two canaries first, then 20 at a time
  kubectl hibernate -l team=blue -A --canary team-1/a --canary team-1/b \\
    --max-concurrency 20 --wait

  # Show what sleeps, since when, requested by whom and why
  kubectl hibernate status";

/// Of rollouts, beside the flags that create one.
pub(crate) const ROLLOUTS: &str = "\
Rollouts:
  With any option for a rollout, the plugin does not change the targets itself: it creates one PowerRollout over ClusterDeployments, or over KKP's Clusters, and \
hibernate-controller starts them, canaries first. It refuses (exit code 3) if the hub has no PowerRollouts, no controller runs, \
or Hive's own hibernation controller is not disabled; with --paused only if the hub has none. maxTargets is the number that the plugin has shown: \
the rollout halts if it selects more when it starts.

  --wait ends with 0 once all have succeeded or were in that state already; with 1 if any failed, timed out or was overridden, \
or the rollout halts or is aborted; with 3 if any was refused; with 4 if --timeout or --not-after passes before. It keeps waiting \
while the rollout is paused.";

/// Of `check`.
pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  # Check the installation: rules, Pods, certificate, policies, versions
  kubectl hibernate check

  # Before you install: Kubernetes version, permissions, leftovers
  kubectl hibernate check --pre

  # Before you uninstall: what would be deleted, or never wake
  kubectl hibernate check --before-uninstall

  # For a script
  kubectl hibernate check -o json";

/// What `check` prints.
pub(crate) const CHECKS: &str = "\
Findings:
  ok           healthy
  warning      works, but needs attention
  failed       does not work: the exit code is 1
  not checked  you lack the permission that the line names

Below a warning or a failure stands the command that fixes it, where one command can. `check` only reads, and sends one dry run of a PowerRollout that \
the webhook must reject. The names of the findings stay the same in later versions.";

/// Of `rollout`.
pub(crate) const ROLLOUT_EXAMPLES: &str = "\
Examples:
  # Put all clusters with a label to sleep: a canary first, then 20 at a time
  kubectl hibernate -l env=dev -A --canary team-1/demo --max-concurrency 20

  # Follow it
  kubectl hibernate status rollout/hibernate-20261124-180000-x7k2q --watch

  # Start nothing for now, and go on
  kubectl hibernate rollout pause hibernate-20261124-180000-x7k2q
  kubectl hibernate rollout resume hibernate-20261124-180000-x7k2q

  # Give every target the state back that it had before
  kubectl hibernate rollout undo hibernate-20261124-180000-x7k2q";

/// Of `rollout`: how one is named.
pub(crate) const ROLLOUT_NAMES: &str = "\
Names are completed. rollout/NAME, powerrollout/NAME and pr/NAME name the same rollout.";

/// Of the verbs of `rollout`.
pub(crate) const VERB_EXAMPLES: &str = "\
Examples:
  # Start no more targets, and go on
  kubectl hibernate rollout pause night
  kubectl hibernate rollout resume night

  # After it has halted: go on in spite of the failures, or try them again
  kubectl hibernate rollout accept night
  kubectl hibernate rollout retry night

  # End it; what sleeps stays asleep
  kubectl hibernate rollout abort night";

/// Of the verbs of `rollout`: what they leave as it is.
pub(crate) const VERB_LIMITS: &str = "\
If the rollout is in that state already, it says `unchanged`. The exit code is 3 if the rollout cannot do it: only one that has halted has \
failures to accept, and one that is over can only be retried or undone.";

/// Of `rollout undo`.
pub(crate) const UNDO_EXAMPLES: &str = "\
Examples:
  # Give every target the state back that it had before
  kubectl hibernate rollout undo night --wait

  # Show the rollout that this would create
  kubectl hibernate rollout undo night --dry-run -o yaml";

/// Of `rollout undo`: what it does.
pub(crate) const UNDO_STEPS: &str = "\
It aborts the rollout and creates another one with the action Restore. That changes only targets that are still as the rollout left \
them: what anybody has changed since is left alone.";

/// Of `dehydrate`.
pub(crate) const DEHYDRATE_EXAMPLES: &str = "\
Examples:
  # Dehydrate a user cluster of a KKP seed
  kubectl hibernate dehydrate cluster/abc --reason \"weekend\" --wait

  # From a script, although Pods without a controller are lost
  kubectl hibernate dehydrate cluster/abc --yes --force

  # Hydrate it
  kubectl hibernate hydrate cluster/abc --wait";

/// Of `resume`.
pub(crate) const RESUME_EXAMPLES: &str = "\
Examples:
  # Wake a cluster and wait until it is ready
  kubectl hibernate resume demo --wait

  # Resume it, and refuse hibernation until the demonstration is over
  kubectl hibernate resume demo --hold-awake --until 18:00 --reason \"demo day\"

  # A cluster that runs already: have its machines checked now
  kubectl hibernate resume cd/demo

  # Hydrate a user cluster of a KKP seed
  kubectl hibernate hydrate cluster/abc --wait

  # Resume workloads with their recorded replica counts
  kubectl hibernate resume deploy/web sts/db -n shop

  # Resume all workloads of a namespace
  kubectl hibernate resume ns/shop

  # Wake all ClusterDeployments of a namespace
  kubectl hibernate wake --all -n clusters --yes

  # Wake a fleet 20 at a time, and halt if more than 5% of it fails
  kubectl hibernate wake -l env=dev -A --max-concurrency 20 --max-failures 5%";

/// Of `plan`.
pub(crate) const PLAN_EXAMPLES: &str = "\
Examples:
  # What would block or slow the sleep of a cluster, and what stays billed
  kubectl hibernate plan demo

  # The same, after a fresh check of the cloud and the cluster
  kubectl hibernate plan demo --fresh

  # Check whether certificates outlast two weeks of sleep
  kubectl hibernate plan demo --for 336h

  # What the dehydration of a user cluster of KKP does, and what refuses it
  kubectl hibernate plan cluster/abc --fresh

  # What would scale a Deployment again while it sleeps
  kubectl hibernate plan deploy/web -n shop

  # In which order a rollout would start, and how long that takes
  kubectl hibernate plan -l env=dev -A --canary team-1/demo \\
    --max-concurrency 20

  # The clusters of a team that cannot be put to sleep
  kubectl hibernate plan -l team=blue -A -o json |
    jq '.items[] | select(.verdict == \"Blocked\") | .name'";

/// Of `plan`: what it reads, and the form of its JSON.
pub(crate) const PLAN_OUTPUT: &str = "\
`plan` queries only the hub and changes nothing: a server-side dry run gives the webhook's answer for a ClusterDeployment or a workload. Findings about the cloud and \
the cluster come from hibernate-controller, at the time shown. The controller checks awake ClusterDeployments every hour, and \
any cluster when --fresh requests it (by the annotation hibernate.sh/preflight-requested-at). The exit code is 3 if anything blocks, 4 if \
--fresh timed out.

Codes such as V6 are rules of the admission webhook. Refused and HubWarns are other refusals and warnings of the hub, HubNotAsked \
means that you have no permission for the dry run, and WebhookDown that the webhook does not answer.

JSON and YAML print a list of this form; later versions only add fields:
  {\"apiVersion\": \"hibernate.sh/v1alpha1\", \"kind\": \"PlanList\", \"items\": [{
     \"type\", \"namespace\", \"name\", \"desired\", \"observed\"
     \"verdict\"      Blocked, Slowed or Clear
     \"until\"        the end of the planned sleep, if --for or --until gave one
     \"foundAt\"      when hibernate-controller last checked
     \"findings\": [{\"severity\": block, warn or info, \"code\",
                   \"source\": hub or controller, \"message\"}]
  }]}

With options for a rollout it is a RolloutPlan with \"estimatedSeconds\", whose items have \"namespace\", \"name\", \"group\", \"domain\", \
\"state\" (Starts, or as in a status: AlreadyInState, Deferred, Refused, Overridden), \"reason\" and \"position\": when it starts, counted \
from 1. The estimate is rough: 5 minutes a target.";

/// Of `status`.
pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  # All ClusterDeployments of the namespace, and all KKP Clusters of the seed
  kubectl hibernate status

  # KKP Clusters, with what stays billed and when certificates expire
  kubectl hibernate status clusters -o wide

  # Of all namespaces, with platform, region and hibernateAfter
  kubectl hibernate status -A -o wide

  # Deployments that sleep
  kubectl hibernate status deploy -n shop

  # All Deployments, StatefulSets and CronJobs of a namespace
  kubectl hibernate status ns/shop

  # One target, followed until interrupted
  kubectl hibernate status cd/demo --watch

  # A FoundationDBCluster: its health, and the process groups that are suspended
  kubectl hibernate status fdb/sample

  # A ClusterPool: its sizes, its clusters, and which of them it keeps running
  kubectl hibernate status pool/small -n pools

  # All rollouts, and one of them with its targets, followed
  kubectl hibernate status rollouts
  kubectl hibernate status rollout/night --watch";

/// Of `status`: the form of its JSON.
pub(crate) const STATUS_OUTPUT: &str = "\
JSON and YAML print a list of this form; later versions only add fields:
  {\"apiVersion\": \"hibernate.sh/v1alpha1\", \"kind\": \"TargetStatusList\",
   \"items\": [{
     \"type\", \"namespace\", \"name\"  the target
     \"desired\"                    Running or Hibernating
     \"observed\"                   its power state, as its own system names it;
                                  empty if unknown
     \"since\"                      when that began, RFC 3339
     \"requestedBy\", \"requestedAt\", \"reason\"
     \"step\": {\"reason\", \"message\", \"failed\"}  during a transition
     \"instances\": {\"total\", \"awaited\"}        as far as the conditions tell
     \"platform\", \"region\", \"hibernateAfter\", \"firesAt\"  ClusterDeployments
     \"wakeAt\", \"holdAwakeUntil\", \"holdAwakeBy\"        ClusterDeployments
     \"replicas\", \"recordedReplicas\"                    workloads
     \"recordedSuspend\"                                 CronJobs
     \"displayName\", \"version\"                          KKP Clusters
     \"pausedBy\", \"pauseReason\"       who set spec.pause, and why
     \"certificatesExpireAt\"          the first one of the control plane
     \"scaledDownMachines\"            Machines that a wake creates
     \"remaining\": {\"volumes\", \"loadBalancers\"}    what stays billed
     \"recordError\"                   why the record cannot be used
     \"protected\"
  }]}

Of pools it is a PoolStatusList, whose items have \"namespace\", \"name\", \"size\", \"runningCount\", \"maxSize\", \
\"hibernateAfter\", \"standby\", \"ready\", \"waitingClaims\" and \"clusters\": items as above with \"claim\" and \"poolWants\".

Of FoundationDBClusters it is a FoundationDBStatusList, whose items have \"namespace\", \"name\", \"protected\" (yes, no or \
unknown), \"unprotectedBecause\", \"unlocked\" (volumes in use with the annotation hibernate.sh/release), \"excluded\" (groups excluded in the database and not \
removed), \"minimumSuspension\", \"skipped\", \
\"recovering\", \"health\": {\"available\", \"healthy\", \"fullReplication\"} and \"suspended\": [{\"group\", \"class\", \"zone\", \
\"since\", \"expires\", \"released\", \"why\", \"claim\", \"size\"}].

Of rollouts it is a RolloutStatusList, whose items have \"name\", \"action\", \"phase\", \"message\", \"requestedBy\", \"reason\", \"createdAt\", \
\"notBefore\", \"notAfter\", \"startedAt\", \"estimatedEnd\", \"finishedAt\", \"restoreOf\", \"awaitsApproval\", \"haltedGroup\", \"total\", \"counts\" (by state), \"groups\": \
[{\"name\", \"total\"}] and \"targets\": [{\"namespace\", \"name\", \"state\", \"reason\"}].

With --watch, JSON and YAML print one such item per change. Fields without a value are left out.";

/// Of `recover process-groups`, under both names.
pub(crate) const RECOVER_EXAMPLES: &str = "\
Examples:
  # What is suspended, and until when
  kubectl hibernate status fdb/sample

  # What would be done
  kubectl hibernate recover process-groups -c sample storage-1 --dry-run

  # Bring a storage group back, on its old volume
  kubectl hibernate recover process-groups -c sample storage-1

  # The same by the name that its Pod had, and as FoundationDB's own plugin
  kubectl hibernate recover process-groups sample-storage-1
  kubectl fdb recover process-groups sample-storage-1

  # Everything that is suspended, or all of one class, without a question
  kubectl hibernate recover process-groups -c sample --all-suspended --yes
  kubectl hibernate recover process-groups -c sample --process-class log --yes

  # After raising processCounts, or with a chosen replacement group
  kubectl hibernate recover process-groups -c sample storage-1 \\
    --replacement none
  kubectl hibernate recover process-groups -c sample storage-1 \\
    --replacement storage-98765";

/// Of `recover process-groups`, under both names: what it does.
pub(crate) const RECOVER_STEPS: &str = "\
What it does, with spec.skip set so that the operator does not interfere: renews the hold on the PersistentVolumeClaim and the \
Service; removes the ID from processGroupsToRemove and processGroupsToRemoveWithoutExclusion, and adds the replacement group \
there; removes the removal marks from the status, and marks the replacement group; runs `fdbcli --exec 'include ...'` in a Pod of the cluster; creates a missing \
Service; verifies that every edit was kept; ends spec.skip; waits for the Pod on its old volume and until the operator sees its process report, and runs `include` again if \
the operator sees it excluded; removes its own annotations.

Run the same command again to finish an interrupted recovery.";

/// Of `install-alias`.
pub(crate) const ALIAS_EXAMPLES: &str = "\
Examples:
  # A link kubectl-fdb-recover in the folder on PATH that has this program
  kubectl hibernate install-alias

  # In a folder of your own on PATH
  kubectl hibernate install-alias ~/bin

  # Remove it, before this program goes
  kubectl hibernate install-alias --remove";

/// Of `install-alias`: what it changes.
pub(crate) const ALIAS_EFFECT: &str = "\
`kubectl fdb recover process-groups ...` then runs this program, and every other `kubectl fdb ...` still runs FoundationDB's own \
plugin.";

/// Of `completion`.
pub(crate) const COMPLETION_EXAMPLES: &str = "\
Examples:
  # Let kubectl 1.26 and later complete `kubectl hibernate ...`: write
  # kubectl_complete-hibernate into the folder on PATH that has this program
  kubectl hibernate completion --install

  # Remove it, before this program goes
  kubectl hibernate completion --remove

  # Print that script, for a folder of your own on PATH
  kubectl hibernate completion > ~/bin/kubectl_complete-hibernate
  chmod +x ~/bin/kubectl_complete-hibernate

  # Complete `kubectl-hibernate` itself in bash
  source <(kubectl hibernate completion bash)";

/// Of `version`.
pub(crate) const VERSION_EXAMPLES: &str = "\
Examples:
  kubectl hibernate version
  kubectl hibernate version -o json";
